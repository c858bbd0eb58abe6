//! Topic rules: which devices may subscribe and publish to which topics of an app.
//!
//! An app has an ordered list for each [`Action`]. Each [`Rule`] has a [`Pattern`] and states who is allowed.
//! The first rule whose pattern matches the topic decides; if none matches, access is denied. Without a list
//! there is no decision ([`Decision::Unruled`]).
//!
//! A topic filter with wildcards is allowed only if an allowing rule matches every topic that the filter can
//! match, and no earlier rule could deny one of them.
//!
//! Reading order: [`pattern`], [`claims`], then this file. This module does not call webhooks:
//! [`Decision::Ask`] tells the caller to do so.

use std::fmt;
use std::time::Duration;

use crate::topic::needs_rule;
use crate::{DeviceId, UserId};

pub mod claims;
pub mod pattern;
#[cfg(test)]
mod tests;

pub use claims::{ClaimName, Claims};
pub use pattern::Pattern;

/// Rules per app, for subscribing and publishing together.
pub const RULES_MAX: usize = 256;
/// The rules of an app as JSON: 256 patterns of 128 bytes, with their keys and the webhook.
pub const RULES_BYTES_MAX: usize = 64 << 10;
/// Claims that the rules of one app use: sessions keep only these.
pub const CLAIMS_MAX: usize = 16;

crate::names! {
    /// What a device wants to do with a topic.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Action {
        Subscribe => "subscribe",
        Publish => "publish",
    }
}

crate::names! {
    /// Who is allowed by a rule.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Allow {
        /// Every device of the app.
        Anyone => "anyone",
        /// Devices whose JWT lists the topic in its claim `topics`.
        Token => "token",
        /// Only API keys, no devices.
        Server => "server",
        /// Devices that the app's webhook allows.
        Ask => "ask",
    }
}

impl Allow {
    /// The decision of the rule with this number for what it matches; `listed`: whether the JWT lists that.
    fn decide(self, rule: usize, listed: impl FnOnce() -> bool) -> Decision {
        match self {
            Allow::Anyone => Decision::Allowed { rule },
            Allow::Ask => Decision::Ask { rule },
            Allow::Server => Decision::Denied(Denied::Server { rule }),
            Allow::Token if listed() => Decision::Allowed { rule },
            Allow::Token => Decision::Denied(Denied::NotInToken { rule }),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub pattern: Pattern,
    pub allow: Allow,
}

/// The webhook for rules with [`Allow::Ask`]. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    pub url: String,
    /// The key that signs requests.
    pub secret: Vec<u8>,
    pub timeout: Duration,
    /// The default lifetime of an answer.
    pub expires_in: Duration,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.url)
            .field("timeout", &self.timeout)
            .field("expires_in", &self.expires_in)
            .finish_non_exhaustive()
    }
}

/// The rules of one app.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicRules {
    subscribe: Option<Vec<Rule>>,
    publish: Option<Vec<Rule>>,
    webhook: Option<Webhook>,
    needs: Needs,
}

/// The attributes of a device that the rules need, apart from its id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    pub user: bool,
    /// The JWT claim `topics`.
    pub topics: bool,
    /// Other claims, sorted.
    pub claims: Vec<ClaimName>,
}

impl Needs {
    /// Whether a session that kept what `self` names has everything that `other` needs.
    pub fn covers(&self, other: &Needs) -> bool {
        (self.user || !other.user)
            && (self.topics || !other.topics)
            && other.claims.iter().all(|name| self.claims.binary_search(name).is_ok())
    }
}

/// The device for which rules are evaluated.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub device: &'a DeviceId,
    pub user: Option<&'a UserId>,
    /// `None` for a device token, which has no claims.
    pub claims: Option<&'a Claims>,
}

/// The decision. Rules are numbered from 0 within their list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The app has no rules for this action.
    Unruled,
    /// This rule allows it.
    Allowed { rule: usize },
    /// The webhook decides.
    Ask { rule: usize },
    /// It is not allowed.
    Denied(Denied),
}

/// Why access is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// No rule matches.
    NoRule,
    /// The rule allows API keys only.
    Server { rule: usize },
    /// The device's JWT does not list the topic.
    NotInToken { rule: usize },
    /// The rule matches a part of the topics of a wildcard filter, and does not allow them.
    Overlap { rule: usize },
}

impl Denied {
    /// Stable.
    pub fn code(self) -> &'static str {
        match self {
            Denied::NoRule => "no_rule",
            Denied::Server { .. } => "server_only",
            Denied::NotInToken { .. } => "not_in_token",
            Denied::Overlap { .. } => "overlap",
        }
    }

    /// The text for people.
    pub fn text(self) -> &'static str {
        match self {
            Denied::NoRule => "no topic rule of the app allows it",
            Denied::Server { .. } => "only API keys may do this",
            Denied::NotInToken { .. } => "the claim \"topics\" of the device's JWT does not list it",
            Denied::Overlap { .. } => "the filter matches topics that the device may not subscribe to",
        }
    }

    pub fn rule(self) -> Option<usize> {
        match self {
            Denied::NoRule => None,
            Denied::Server { rule } | Denied::NotInToken { rule } | Denied::Overlap { rule } => Some(rule),
        }
    }
}

/// Why the lists are not valid rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    #[error("an app may have at most {RULES_MAX} topic rules")]
    TooMany,
    #[error("topic rules may use at most {CLAIMS_MAX} claims")]
    TooManyClaims,
    #[error("a rule has \"allow\": \"ask\", but the rules define no webhook (\"ask\")")]
    NoWebhook,
}

impl TopicRules {
    pub fn new(
        subscribe: Option<Vec<Rule>>,
        publish: Option<Vec<Rule>>,
        webhook: Option<Webhook>,
    ) -> Result<Self, RulesError> {
        let all = || subscribe.iter().chain(&publish).flatten();
        if all().count() > RULES_MAX {
            return Err(RulesError::TooMany);
        }
        if webhook.is_none() && all().any(|rule| rule.allow == Allow::Ask) {
            return Err(RulesError::NoWebhook);
        }
        let mut needs = Needs::default();
        for rule in all() {
            needs.user |= rule.pattern.names_user() || rule.allow == Allow::Ask;
            needs.topics |= rule.allow == Allow::Token;
            needs.claims.extend(rule.pattern.claims().cloned());
        }
        needs.claims.sort_unstable();
        needs.claims.dedup();
        if needs.claims.len() > CLAIMS_MAX {
            return Err(RulesError::TooManyClaims);
        }
        Ok(Self { subscribe, publish, webhook, needs })
    }

    /// For rules that cannot be parsed: denies every device.
    pub fn deny_all() -> Self {
        Self { subscribe: Some(Vec::new()), publish: Some(Vec::new()), ..Self::default() }
    }

    pub fn rules(&self, action: Action) -> Option<&[Rule]> {
        match action {
            Action::Subscribe => self.subscribe.as_deref(),
            Action::Publish => self.publish.as_deref(),
        }
    }

    pub fn webhook(&self) -> Option<&Webhook> {
        self.webhook.as_ref()
    }

    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Decides whether a device may perform an action on a topic.
    pub fn decide(&self, action: Action, topic: &str, subject: Subject<'_>) -> Decision {
        let Some(rules) = self.rules(action) else { return unruled(topic) };
        let matching = rules.iter().position(|rule| rule.pattern.matches(topic, subject));
        let Some(rule) = matching else { return Decision::Denied(Denied::NoRule) };
        rules[rule].allow.decide(rule, || subject.claims.is_some_and(|claims| claims.lists(topic)))
    }

    /// Decides whether a device may subscribe to an MQTT topic filter, that is, to everything that it can
    /// match.
    pub fn decide_filter(&self, filter: &str, subject: Subject<'_>) -> Decision {
        if !filter.contains(['+', '#']) {
            return self.decide(Action::Subscribe, filter, subject);
        }
        let Some(rules) = &self.subscribe else { return unruled(filter) };
        for (number, rule) in rules.iter().enumerate() {
            if rule.pattern.covers(filter, subject) {
                let listed = || subject.claims.is_some_and(|claims| claims.covers(filter));
                return rule.allow.decide(number, listed);
            }
            // The rule applies to a part of the filter's topics: it must allow those, and the next rules
            // decide the rest.
            if rule.allow != Allow::Anyone && rule.pattern.overlaps(filter, subject) {
                return Decision::Denied(Denied::Overlap { rule: number });
            }
        }
        Decision::Denied(Denied::NoRule)
    }
}

/// The decision without rules for an action: names that start with `$` require a rule.
fn unruled(name: &str) -> Decision {
    match needs_rule(name) {
        true => Decision::Denied(Denied::NoRule),
        false => Decision::Unruled,
    }
}
