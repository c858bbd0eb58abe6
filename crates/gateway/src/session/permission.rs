//! Topic rules where they are enforced: what a client asks for passes them before it is carried out.
//!
//! What rules decide by themselves is carried out at once. Where a webhook decides, the operation waits at a gate
//! ([`crate::session::gate`]).
//!
//! Without rules of the app all of this is one look-up. The way of a delivery has no check: a connection hears only
//! what it was allowed to subscribe to ([`crate::session::recheck`] sees to it when rules change).

use std::collections::HashMap;
use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_delivery::rules::{AppRules, Holder, Reason, Verdict};
use noroshi_types::Topic;
use noroshi_types::rule::Needs;

use crate::session::registry::Session;

/// What the rules say to the names of an operation. Empty where the app has none.
pub(crate) type Verdicts = Vec<(Box<str>, Verdict)>;

/// What the rules say to an operation, and which rules these are.
pub(crate) struct Decided {
    /// None where the app has none.
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

/// Under which rules a session stands.
pub(crate) enum Ruling {
    /// The app has none.
    None,
    By(Arc<AppRules>, Holder),
    /// The session kept too little of its token: it has to log in again.
    Unknown,
}

/// The rules of a session's app, and what they know of the session.
pub(crate) fn ruling(delivery: &Delivery, session: &Session) -> Ruling {
    match delivery.rules().of(session.app) {
        None => Ruling::None,
        Some(rules) if !knows(session, rules.rules.needs()) => Ruling::Unknown,
        Some(rules) => Ruling::By(rules, holder_of(session)),
    }
}

/// Whether a session kept enough for the rules of its app.
pub(crate) fn knows(session: &Session, needs: &Needs) -> bool {
    match &*session.known.load() {
        Some(known) if session.is_of_jwt() && known.claims.is_none() => !needs_claims(needs),
        Some(known) => known.covers(needs),
        // It began while there were no rules. A device token has no claims, so only the user can be missing.
        None if session.is_of_jwt() => Needs::default().covers(needs),
        None => session.user_key == 0 || !needs.user,
    }
}

pub(crate) fn needs_claims(needs: &Needs) -> bool {
    needs.topics || !needs.claims.is_empty()
}

pub(crate) fn holder_of(session: &Session) -> Holder {
    let known = session.known.load();
    let known = known.as_ref();
    Holder {
        app: session.app,
        device: session.device.clone(),
        user: known.and_then(|known| known.user.clone()),
        claims: known.and_then(|known| known.claims.clone()),
    }
}
