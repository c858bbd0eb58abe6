//! Verdicts of topic rules, and what a webhook permitted for a log-in.

use std::collections::HashMap;
use std::sync::Arc;

use noroshi_delivery::rules::{AppRules, Reason, Verdict};
use noroshi_types::Topic;

/// The verdicts of the rules about the names of an operation. Empty if the app has no rules.
pub(crate) type Verdicts = Vec<(Box<str>, Verdict)>;

/// The verdicts about an operation, and the rules that made them.
pub(crate) struct Decided {
    /// None if the app has no rules.
    pub(crate) rules: Option<Arc<AppRules>>,
    pub(crate) verdicts: Verdicts,
}

impl Decided {
    /// What is denied, by name: a client names up to 1,000 topics at once.
    pub(crate) fn denied(&self) -> HashMap<&str, Reason> {
        let denied = self.verdicts.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Denied(reason) => Some((&**name, *reason)),
            Verdict::Allowed | Verdict::Ask => None,
        });
        denied.collect()
    }

    pub(crate) fn denies(&self, name: &str) -> bool {
        let denied = |(named, verdict): &(Box<str>, Verdict)| {
            **named == *name && matches!(verdict, Verdict::Denied(_))
        };
        self.verdicts.iter().any(denied)
    }

    /// Divides topics into those that are allowed, and those that are denied with the reasons.
    pub(crate) fn split(&self, topics: Vec<Topic>) -> (Vec<Topic>, Vec<(Topic, Reason)>) {
        let denied = self.denied();
        let (mut allowed, mut refused) = (Vec::with_capacity(topics.len()), Vec::new());
        for topic in topics {
            match denied.get(topic.as_str()) {
                Some(reason) => refused.push((topic, *reason)),
                None => allowed.push(topic),
            }
        }
        (allowed, refused)
    }
}

/// Topics and filters that a webhook allowed for a log-in. They are valid only under the rules that asked the webhook.
#[derive(Default)]
pub(crate) struct Permissions {
    rules: Option<Arc<AppRules>>,
    names: Vec<Box<str>>,
}

impl Permissions {
    pub(crate) fn add(&mut self, rules: &Arc<AppRules>, name: Box<str>) {
        if !self.rules.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, rules)) {
            (self.rules, self.names) = (Some(rules.clone()), Vec::new());
        }
        self.names.push(name);
    }

    pub(crate) fn has(&self, rules: &Arc<AppRules>, name: &str) -> bool {
        let is_current = self.rules.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, rules));
        is_current && self.names.iter().any(|known| **known == *name)
    }
}
