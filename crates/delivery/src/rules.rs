//! Decisions by topic rules: the rules of every app as of the last change, and the webhooks that some rules ask.
//!
//! ```text
//!   auth ── rules of all apps ──► Rules::set ──► Edge::rules_changed (sessions are checked again)
//!   shard ──► check_topic ──► allowed, denied, or ask ──► ask_topic ──► cache ── webhook (egress)
//! ```
//!
//! [`crate::Delivery::check_topic`] answers at once and never waits. Where a rule says `ask` and the cache has no answer, the caller asks
//! beside its thread. Whatever goes wrong there is a no.
//!
//! Invariant: a change is in place before the edge is told. A subscription that was checked before is checked again; one
//! that is checked later is checked by the new rules.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use noroshi_egress::Egress;
use noroshi_types::rule::{Action, Claims, Decision, Denied, Needs, Subject, TopicRules};
use noroshi_types::{AppId, AppName, DeviceId, Topic, UserId};

use crate::Delivery;

mod ask;
mod cache;
pub(crate) mod metrics;
#[cfg(test)]
mod tests;

use ask::Asks;
pub use ask::UNDER_WAY_MAX;
use cache::{Cache, Question};

/// Whose rules they are, and what the webhook of the app has to do.
#[derive(Debug)]
pub struct AppRules {
    pub rules: Arc<TopicRules>,
    name: AppName,
    /// Answers to these rules: after a change the cache is another one.
    cache: Cache,
    asks: Arc<Asks>,
}

impl AppRules {
    /// What the rules say, before any webhook is asked. A subscription may name a filter.
    fn decide(&self, holder: &Holder, action: Action, topic: &str) -> Decision {
        let subject = holder.subject();
        match action {
            Action::Subscribe => self.rules.decide_filter(topic, subject),
            Action::Publish => self.rules.decide(action, topic, subject),
        }
    }
}

/// Who wants something: a device, with what its session knows of it.
#[derive(Debug, Clone)]
pub struct Holder {
    pub app: AppId,
    pub device: DeviceId,
    pub user: Option<UserId>,
    /// None for a device token.
    pub claims: Option<Arc<Claims>>,
}

/// What a session keeps for the rules of its app.
#[derive(Debug)]
pub struct Known {
    pub user: Option<UserId>,
    pub claims: Option<Arc<Claims>>,
}

impl Known {
    /// Whether it is enough for these rules: a JWT was looked at when the session began, for the rules of that time.
    pub fn covers(&self, needs: &Needs) -> bool {
        self.claims.as_ref().is_none_or(|claims| claims.needs().covers(needs))
    }
}

impl Holder {
    fn subject(&self) -> Subject<'_> {
        Subject { device: &self.device, user: self.user.as_ref(), claims: self.claims.as_deref() }
    }
}

/// Why a device may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Rule(Denied),
    /// The webhook said no.
    Webhook,
    /// The webhook did not answer, or there was no room to ask it.
    Unanswered,
}

impl Reason {
    /// Stable.
    pub fn code(self) -> &'static str {
        match self {
            Reason::Rule(denied) => denied.code(),
            Reason::Webhook => "webhook",
            Reason::Unanswered => "unanswered",
        }
    }

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Rule(denied) => denied.text(),
            Reason::Webhook => "the app's webhook does not allow it",
            Reason::Unanswered => "the app's webhook gave no answer",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Denied(Reason),
    /// The webhook has to be asked.
    Ask,
}

/// Of one node.
pub struct Rules {
    apps: ArcSwap<HashMap<AppId, Arc<AppRules>>>,
    /// Set once, before anything runs. Without it every question is answered with no.
    egress: OnceLock<Arc<Egress>>,
}

impl Rules {
    pub(crate) fn new() -> Self {
        Self { apps: ArcSwap::default(), egress: OnceLock::new() }
    }

    /// The rules of an app that has some.
    pub fn of(&self, app: AppId) -> Option<Arc<AppRules>> {
        self.apps.load().get(&app).cloned()
    }

    /// Whether an app's rules are still those that something was decided by. `None`: the app had none.
    pub fn are_current(&self, app: AppId, rules: Option<&Arc<AppRules>>) -> bool {
        match (self.apps.load().get(&app), rules) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (now, then) => now.is_none() && then.is_none(),
        }
    }

    /// Puts rules in place. Returns the apps whose rules are others now.
    fn set(&self, rules: &HashMap<AppId, (AppName, Arc<TopicRules>)>) -> Vec<AppId> {
        let before = self.apps.load_full();
        let mut changed: Vec<AppId> = before.keys().filter(|app| !rules.contains_key(app)).copied().collect();
        let mut now = HashMap::with_capacity(rules.len());
        for (app, (name, rules)) in rules {
            let known = before.get(app);
            if let Some(known) = known.filter(|known| known.rules == *rules) {
                now.insert(*app, known.clone());
                continue;
            }
            changed.push(*app);
            // What is under way counts on.
            let asks = known.map_or_else(Arc::default, |known| known.asks.clone());
            let (rules, name, cache) = (rules.clone(), name.clone(), Cache::default());
            now.insert(*app, Arc::new(AppRules { rules, name, cache, asks }));
        }
        self.apps.store(Arc::new(now));
        changed
    }
}

impl Delivery {
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Connects the way out to webhooks. A second call is ignored.
    pub fn attach_webhooks(&self, egress: Arc<Egress>) {
        let _ = self.rules.egress.set(egress);
    }

    /// The topic rules of all apps are these now: sessions of the apps concerned are checked again.
    pub fn set_topic_rules(&self, rules: &HashMap<AppId, (AppName, Arc<TopicRules>)>) {
        let changed = self.rules.set(rules);
        if let Some(edge) = self.edge().filter(|_| !changed.is_empty()) {
            edge.rules_changed(&changed);
        }
    }

    /// Whether a device may do something with a topic, or with what a filter in MQTT's syntax matches. Never waits.
    /// A no is counted.
    pub fn check_topic(&self, app: &AppRules, holder: &Holder, action: Action, topic: &str) -> Verdict {
        let verdict = self.look_up(app, holder, action, topic);
        if let Verdict::Denied(reason) = verdict {
            self.denied(holder, action, topic, reason);
        }
        verdict
    }

    /// Whether a durable subscription stays. Where a rule leaves a topic to API keys one of them made it.
    pub fn check_durable(&self, app: &AppRules, holder: &Holder, topic: &Topic) -> Verdict {
        match self.look_up(app, holder, Action::Subscribe, topic.as_str()) {
            Verdict::Denied(Reason::Rule(Denied::Server { .. })) => Verdict::Allowed,
            verdict => verdict,
        }
    }

    fn look_up(&self, app: &AppRules, holder: &Holder, action: Action, topic: &str) -> Verdict {
        match app.decide(holder, action, topic) {
            Decision::Unruled | Decision::Allowed { .. } => Verdict::Allowed,
            Decision::Denied(denied) => Verdict::Denied(Reason::Rule(denied)),
            Decision::Ask { .. } => {
                let question = Question::new(holder, action, topic);
                match app.cache.answer(&question, self.clock.now()) {
                    Some(allowed) => {
                        self.metrics.rules.cache_hits.inc();
                        if allowed { Verdict::Allowed } else { Verdict::Denied(Reason::Webhook) }
                    }
                    None => Verdict::Ask,
                }
            }
        }
    }

    /// As [`Delivery::check_topic`], and asks the webhook where it has to. Cancel-safe: a question that is dropped is
    /// asked again by whoever needs it.
    pub async fn ask_topic(
        &self,
        app: &AppRules,
        holder: &Holder,
        action: Action,
        topic: &str,
        protocol: &'static str,
    ) -> Verdict {
        let verdict = match self.look_up(app, holder, action, topic) {
            Verdict::Ask => self.ask_webhook(app, holder, action, topic, protocol).await,
            verdict => verdict,
        };
        if let Verdict::Denied(reason) = verdict {
            self.denied(holder, action, topic, reason);
        }
        verdict
    }

    /// What the rules say, for people who ask why. Asks no webhook.
    pub fn explain_topic(
        &self,
        holder: &Holder,
        action: Action,
        topic: &str,
    ) -> (Decision, Option<Arc<AppRules>>) {
        let Some(app) = self.rules.of(holder.app) else { return (Decision::Unruled, None) };
        (app.decide(holder, action, topic), Some(app))
    }

    fn denied(&self, holder: &Holder, action: Action, topic: &str, reason: Reason) {
        self.metrics.rules.denied(action, reason);
        tracing::debug!(
            app = holder.app.0,
            device = holder.device.as_str(),
            topic,
            action = action.as_str(),
            reason = reason.code(),
            "topic rules deny it"
        );
    }

    /// For a topic of the service's own no rule counts.
    pub fn is_ruled(topic: &str) -> bool {
        !noroshi_types::topic::is_services_own(topic)
    }
}
