//! Decisions by topic rules: the current rules of every app, and the webhooks that some rules ask.
//!
//! ```text
//!   auth ── rules of all apps ──► Rules::set ──► Edge::rules_changed (sessions are checked again)
//!   shard ──► check ──► allowed, denied, or ask ──► ask ──► cache ── webhook (egress)
//! ```
//!
//! `Rules::check` answers at once and never waits. If a rule says `ask` and the cache has no answer, the caller asks
//! outside its thread. Every failure there denies.
//!
//! Invariant: new rules are in place before the edge is notified. A subscription that was checked before is checked
//! again; a later one is checked by the new rules.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use noroshi_egress::Egress;
use noroshi_types::rule::{Action, Claims, Decision, Denied, Needs, Subject, TopicRules};
use noroshi_types::{AppId, AppName, DeviceId, Topic, UserId};

use crate::context::Context;

mod cache;
mod metrics;
#[cfg(test)]
mod tests;
mod webhook;

use cache::{Cache, Question};
pub(crate) use metrics::Metrics;
use webhook::PendingQuestions;
pub use webhook::QUESTIONS_IN_FLIGHT_MAX;

/// The rules of one app, with the state of its webhook.
#[derive(Debug)]
pub struct AppRules {
    pub rules: Arc<TopicRules>,
    name: AppName,
    /// Answers under these rules: changed rules get a new cache.
    cache: Cache,
    pending: Arc<PendingQuestions>,
}

impl AppRules {
    /// The decision of the rules, before any webhook is asked. A subscription may name a filter.
    fn decide(&self, holder: &Holder, action: Action, topic: &str) -> Decision {
        let subject = holder.subject();
        match action {
            Action::Subscribe => self.rules.decide_filter(topic, subject),
            Action::Publish => self.rules.decide(action, topic, subject),
        }
    }
}

/// The device that asks for access, with what its session knows about it.
#[derive(Debug, Clone)]
pub struct Holder {
    pub app: AppId,
    pub device: DeviceId,
    pub user: Option<UserId>,
    /// `None` for a device token.
    pub claims: Option<Arc<Claims>>,
}

/// What a session keeps for the rules of its app.
#[derive(Debug)]
pub struct Known {
    pub user: Option<UserId>,
    pub claims: Option<Arc<Claims>>,
}

impl Known {
    /// Whether it suffices for these rules. Claims were extracted from the JWT when the session began, for the rules of
    /// that time.
    pub fn covers(&self, needs: &Needs) -> bool {
        self.claims.as_ref().is_none_or(|claims| claims.needs().covers(needs))
    }
}

impl Holder {
    fn subject(&self) -> Subject<'_> {
        Subject { device: &self.device, user: self.user.as_ref(), claims: self.claims.as_deref() }
    }
}

/// Why access is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Rule(Denied),
    /// The webhook denied it.
    Webhook,
    /// The webhook did not answer, or too many questions were pending.
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
    /// The webhook decides.
    Ask,
}

/// The rules of all apps.
pub struct Rules {
    context: Arc<Context>,
    metrics: Metrics,
    apps: ArcSwap<HashMap<AppId, Arc<AppRules>>>,
    /// For webhooks. Set once, before anything runs.
    egress: OnceLock<Arc<Egress>>,
}

impl Rules {
    pub(crate) fn new(context: Arc<Context>, metrics: Metrics) -> Self {
        Self { context, metrics, apps: ArcSwap::default(), egress: OnceLock::new() }
    }

    /// Without egress every question to a webhook is denied. A second call is ignored.
    pub fn attach_webhooks(&self, egress: Arc<Egress>) {
        let _ = self.egress.set(egress);
    }

    /// The rules of an app, if it has any.
    pub fn of(&self, app: AppId) -> Option<Arc<AppRules>> {
        self.apps.load().get(&app).cloned()
    }

    /// Whether `rules` are still the rules of the app. `None`: the app had none.
    pub fn are_current(&self, app: AppId, rules: Option<&Arc<AppRules>>) -> bool {
        match (self.apps.load().get(&app), rules) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (now, then) => now.is_none() && then.is_none(),
        }
    }

    /// Replaces the rules of all apps. Sessions of apps whose rules changed are checked again.
    pub fn set(&self, rules: &HashMap<AppId, (AppName, Arc<TopicRules>)>) {
        let changed = self.replace(rules);
        if let Some(edge) = self.context.edge().filter(|_| !changed.is_empty()) {
            edge.rules_changed(&changed);
        }
    }

    /// Returns the apps whose rules changed.
    fn replace(&self, rules: &HashMap<AppId, (AppName, Arc<TopicRules>)>) -> Vec<AppId> {
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
            // Questions in flight still count.
            let pending = known.map_or_else(Arc::default, |known| known.pending.clone());
            let (rules, name, cache) = (rules.clone(), name.clone(), Cache::default());
            now.insert(*app, Arc::new(AppRules { rules, name, cache, pending }));
        }
        self.apps.store(Arc::new(now));
        changed
    }

    /// Whether a device may use a topic, or everything that a filter in MQTT's syntax matches. Never waits. Counts a
    /// denial.
    pub fn check(&self, app: &AppRules, holder: &Holder, action: Action, topic: &str) -> Verdict {
        let verdict = self.look_up(app, holder, action, topic);
        if let Verdict::Denied(reason) = verdict {
            self.denied(holder, action, topic, reason);
        }
        verdict
    }

    /// Whether a durable subscription stays. If a rule reserves the topic for API keys, one of them created it.
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
                match app.cache.answer(&question, self.context.now()) {
                    Some(allowed) => {
                        self.metrics.topic_ask_cache_hits.inc();
                        if allowed { Verdict::Allowed } else { Verdict::Denied(Reason::Webhook) }
                    }
                    None => Verdict::Ask,
                }
            }
        }
    }

    /// As [`Rules::check`], and asks the webhook if it decides. Cancel-safe: the next caller repeats a dropped
    /// question.
    pub async fn ask(
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

    /// The decision of the rules, to explain it to people. Asks no webhook.
    pub fn explain(&self, holder: &Holder, action: Action, topic: &str) -> (Decision, Option<Arc<AppRules>>) {
        let Some(app) = self.of(holder.app) else { return (Decision::Unruled, None) };
        (app.decide(holder, action, topic), Some(app))
    }

    fn denied(&self, holder: &Holder, action: Action, topic: &str, reason: Reason) {
        self.metrics.denied(action, reason);
        tracing::debug!(
            app = holder.app.0,
            device = holder.device.as_str(),
            topic,
            action = action.as_str(),
            reason = reason.code(),
            "topic rules denied access"
        );
    }
}

/// Whether rules apply to the topic: they do not for the service's own topics.
pub fn is_ruled(topic: &str) -> bool {
    !noroshi_types::topic::is_server_topic(topic)
}
