//! Verdicts of topic rules, and what a webhook permitted for a log-in.

use std::sync::Arc;

use noroshi_delivery::rules::{AppRules, Verdict};

/// What the rules say to the names of an operation. Empty where the app has none.
pub(crate) type Verdicts = Vec<(Box<str>, Verdict)>;

/// What the rules say to an operation, and which rules these are.
pub(crate) struct Decided {
    /// None where the app has none.
    pub(crate) rules: Option<Arc<AppRules>>,
    pub(crate) verdicts: Verdicts,
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
