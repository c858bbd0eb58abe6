//! Decisions of an app's topic rules about its sessions: operations of clients, log-ins, subscriptions and wills.
//!
//! Decides and performs nothing: the shard carries out allowed operations, and asks webhooks through
//! [`crate::session::gate`] if the rules leave a decision to them. If the app has no rules, each decision is one
//! look-up. Deliveries are not checked: a connection receives only topics that it was allowed to subscribe to, and
//! [`crate::session::recheck`] ends subscriptions after the rules change.

use std::collections::HashSet;
use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_delivery::rules::{AppRules, Holder, Known, Reason, Verdict, is_ruled};
use noroshi_protocol::mqtt::TopicFilter;
use noroshi_store::LoggedIn;
use noroshi_types::rule::{Action, Claims, Denied, Needs};
use noroshi_types::topic::needs_rule;
use noroshi_types::{AppId, Topic};

use crate::session::gate::Asked;
use crate::session::login::PendingLogIn;
use crate::session::permission::{Decided, Permissions, Verdicts};
use crate::session::registry::Session;
use crate::session::request::BoxedRequest;
use crate::session::topic_index::{Subscription, TopicIndex};

/// Topics of one operation that a webhook is asked about; the others are denied.
const ASKED_MAX: usize = 64;
/// How often a log-in is read again: each time the rules removed one of its topics.
const LOG_IN_PASSES_MAX: u8 = 4;

/// The rules of all apps, as far as this node knows them.
#[derive(Clone, Copy)]
pub(crate) struct TopicRules<'a>(pub(crate) &'a Delivery);

/// Under which rules a session stands.
enum Ruling {
    /// The app has none.
    None,
    By(Arc<AppRules>, Holder),
    /// The session kept too little of its token to decide.
    Unknown,
}

/// What becomes of an operation.
pub(crate) enum Decision {
    Perform(BoxedRequest, Decided),
    /// A webhook must be asked.
    Ask(Asked),
    /// The session kept too little of its token to decide.
    LogInAgain,
}

/// What becomes of a log-in.
pub(crate) enum LogInDecision {
    Allowed,
    /// Something is denied, or a webhook must be asked: the log-in waits, and is then read again.
    Ask(Asked),
    /// Too little is known to decide, or the log-in was read again too often.
    Undecidable,
}

/// Subscriptions that a session lost when the rules changed.
pub(crate) struct Lost {
    pub(crate) topics: Vec<(Topic, Reason)>,
    /// The topics among them that end in the store too.
    pub(crate) durable: Vec<Topic>,
    pub(crate) holder: Holder,
}

impl<'a> TopicRules<'a> {
    fn ruling(self, session: &Session) -> Ruling {
        match self.0.rules.of(session.app) {
            None => Ruling::None,
            Some(rules) if !knows(session, rules.rules.needs()) => Ruling::Unknown,
            Some(rules) => Ruling::By(rules, holder_of(session)),
        }
    }

    fn check(self, rules: &Arc<AppRules>, holder: &Holder, action: Action, name: &str) -> Verdict {
        match is_ruled(name) {
            true => self.0.rules.check(rules, holder, action, name),
            false => Verdict::Allowed,
        }
    }

    /// Decides about a client's request. `may_ask`: another webhook may be asked now.
    pub(crate) fn decide(
        self,
        session: &Session,
        op: BoxedRequest,
        may_ask: impl FnOnce() -> bool,
    ) -> Decision {
        let (rules, holder) = match self.ruling(session) {
            Ruling::None => {
                let verdicts = op.denied_without_rules();
                return Decision::Perform(op, Decided { rules: None, verdicts });
            }
            Ruling::Unknown => return Decision::LogInAgain,
            Ruling::By(rules, holder) => (rules, holder),
        };
        let (action, may_ask) = (op.action(), may_ask());
        let mut asked = 0;
        let verdict = |name: Box<str>| match self.check(&rules, &holder, action, &name) {
            Verdict::Ask if !may_ask || asked >= ASKED_MAX => (name, Verdict::Denied(Reason::Unanswered)),
            Verdict::Ask => {
                asked += 1;
                (name, Verdict::Ask)
            }
            verdict => (name, verdict),
        };
        let verdicts: Verdicts = op.names().into_iter().map(verdict).collect();
        if asked == 0 {
            return Decision::Perform(op, Decided { rules: Some(rules), verdicts });
        }
        let (op, needed, durable) = (Some(op), Vec::new(), Vec::new());
        Decision::Ask(Asked { op, rules, holder, action, verdicts, needed, durable })
    }

    /// Whether all topics of a log-in are allowed. Denied topics are removed from it and ended in the store, and the
    /// log-in is read again. `filters`: the filters of the session that continues, without those that name a topic.
    pub(crate) fn decide_log_in(
        self,
        pending: &PendingLogIn,
        logged_in: &LoggedIn,
        filters: impl FnOnce() -> Vec<TopicFilter>,
    ) -> LogInDecision {
        let PendingLogIn { login, claims, denied, permitted, passes } = pending;
        let Some(rules) = self.0.rules.of(login.app) else { return LogInDecision::Allowed };
        let known = Known { user: logged_in.user.clone(), claims: claims.clone() };
        let needs = rules.rules.needs();
        // A JWT that was verified before these rules existed.
        let lacks_claims = login.user.is_some() && known.claims.is_none() && needs_claims(needs);
        if !known.covers(needs) || lacks_claims || *passes >= LOG_IN_PASSES_MAX {
            return LogInDecision::Undecidable;
        }
        let Known { user, claims } = known;
        let holder = Holder { app: login.app, device: login.device.clone(), user, claims };
        let (mut verdicts, mut needed, mut durable) = (Verdicts::new(), Vec::new(), Vec::new());
        for topic in logged_in.topics.iter().filter(|topic| is_ruled(topic.as_str())) {
            let is_own = login.session_topics.contains(topic);
            let verdict = match is_own {
                _ if permitted.has(&rules, topic.as_str()) => Verdict::Allowed,
                true => self.0.rules.check(&rules, &holder, Action::Subscribe, topic.as_str()),
                false => self.0.rules.check_durable(&rules, &holder, topic),
            };
            if verdict == Verdict::Allowed {
                continue;
            }
            if !is_own {
                needed.push(topic.as_str().into());
                durable.push(topic.clone());
            }
            verdicts.push((topic.as_str().into(), verdict));
        }
        // A filter that the rules themselves deny ends its session when that would continue.
        for filter in &filters() {
            let name = filter.plain();
            let is_known = permitted.has(&rules, name)
                || denied.iter().any(|(denied, ..)| denied.as_str() == name)
                || !is_ruled(name);
            if !is_known && self.0.rules.check(&rules, &holder, Action::Subscribe, name) == Verdict::Ask {
                needed.push(name.into());
                verdicts.push((name.into(), Verdict::Ask));
            }
        }
        if verdicts.is_empty() {
            return LogInDecision::Allowed;
        }
        let action = Action::Subscribe;
        LogInDecision::Ask(Asked { op: None, rules, holder, action, verdicts, needed, durable })
    }

    pub(crate) fn has_publish_rules(self, app: AppId) -> bool {
        self.0.rules.of(app).is_some_and(|rules| rules.rules.rules(Action::Publish).is_some())
    }

    /// What the rules make a device to a topic, in the terms of XEP-0060 §4.1. A webhook that decides is not asked: the
    /// device has no affiliation until it tries. `is_filtered`: the app's filters let clients publish to the topic.
    pub(crate) fn affiliation(self, session: &Session, topic: &Topic, is_filtered: bool) -> &'static str {
        let (rules, holder) = match self.ruling(session) {
            Ruling::None => return if is_filtered { "publisher" } else { "none" },
            Ruling::Unknown => return "none",
            Ruling::By(rules, holder) => (rules, holder),
        };
        let publish = match rules.rules.rules(Action::Publish) {
            Some(_) => self.check(&rules, &holder, Action::Publish, topic.as_str()),
            None if is_filtered => Verdict::Allowed,
            None => Verdict::Denied(Reason::Rule(Denied::NoRule)),
        };
        match (self.check(&rules, &holder, Action::Subscribe, topic.as_str()), publish) {
            (Verdict::Allowed, Verdict::Allowed) => "publisher",
            (Verdict::Denied(_), Verdict::Allowed) => "publish-only",
            (Verdict::Allowed, _) => "member",
            (Verdict::Denied(_), Verdict::Denied(_)) => "outcast",
            (Verdict::Ask, _) | (_, Verdict::Ask) => "none",
        }
    }

    /// Whether a session may publish its will, by rules or filters; with [`Verdict::Ask`] also whom to ask.
    pub(crate) fn may_leave_will(
        self,
        session: &Session,
        topic: &Topic,
        is_filtered: bool,
    ) -> (Verdict, Option<(Arc<AppRules>, Holder)>) {
        let denied = Verdict::Denied(Reason::Unanswered);
        if !self.has_publish_rules(session.app) {
            return (if is_filtered { Verdict::Allowed } else { denied }, None);
        }
        match self.ruling(session) {
            Ruling::By(rules, holder) => {
                let verdict = self.0.rules.check(&rules, &holder, Action::Publish, topic.as_str());
                (verdict, Some((rules, holder)))
            }
            Ruling::None | Ruling::Unknown => (denied, None),
        }
    }

    /// Whether a session may receive a durable subscription that was made elsewhere: rules may have changed since it
    /// was allowed.
    pub(crate) fn may_receive(self, session: &Session, topic: &Topic) -> bool {
        match self.ruling(session) {
            Ruling::By(rules, holder) if is_ruled(topic.as_str()) => {
                !matches!(self.0.rules.check_durable(&rules, &holder, topic), Verdict::Denied(_))
            }
            Ruling::By(..) => true,
            Ruling::None => !needs_rule(topic.as_str()),
            Ruling::Unknown => false,
        }
    }

    /// Whether a session that continues may keep a filter that its client subscribed to. A webhook that decides was
    /// asked for the log-in.
    pub(crate) fn may_keep_filter(self, session: &Session, permitted: &Permissions, filter: &str) -> bool {
        if !is_ruled(filter) {
            return true;
        }
        let (rules, holder) = match self.ruling(session) {
            Ruling::None => return !needs_rule(filter),
            Ruling::Unknown => return false,
            Ruling::By(rules, holder) => (rules, holder),
        };
        permitted.has(&rules, filter)
            || self.0.rules.check(&rules, &holder, Action::Subscribe, filter) == Verdict::Allowed
    }

    /// What a session may not receive any more. `Err` if it kept too little of its token to decide. `filters`: what its
    /// client subscribed to over MQTT; API keys may have made the other durable subscriptions.
    pub(crate) fn lost(
        self,
        session: &Session,
        subscriptions: &[Subscription],
        topics: &TopicIndex,
        filters: &[&TopicFilter],
    ) -> Result<Option<Lost>, Undecidable> {
        let Some(rules) = self.0.rules.of(session.app) else { return Ok(None) };
        if !knows(session, rules.rules.needs()) {
            return Err(Undecidable);
        }
        let holder = holder_of(session);
        let check = |name: &str| self.check(&rules, &holder, Action::Subscribe, name);
        let mut lost: Vec<(Topic, Reason)> = Vec::new();
        let mut durable = Vec::new();
        let of_client: HashSet<&str> = filters.iter().map(|filter| filter.as_str()).collect();
        for subscription in subscriptions {
            let Some(topic) = topics.entry(subscription.index()).map(|entry| &entry.topic) else { continue };
            let verdict = match subscription.is_own() || of_client.contains(topic.as_str()) {
                true => check(topic.as_str()),
                false if !is_ruled(topic.as_str()) => Verdict::Allowed,
                false => self.0.rules.check_durable(&rules, &holder, topic),
            };
            if let Verdict::Denied(reason) = verdict {
                durable.extend((!subscription.is_own()).then(|| topic.clone()));
                lost.push((topic.clone(), reason));
            }
        }
        let is_lost = |filter: &TopicFilter| matches!(check(filter.plain()), Verdict::Denied(_));
        let has_lost_filter = filters.iter().any(|filter| filter.topic().is_none() && is_lost(filter));
        let is_intact = lost.is_empty() && !has_lost_filter;
        Ok((!is_intact).then_some(Lost { topics: lost, durable, holder }))
    }
}

/// A session kept too little of its token for the rules of its app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Undecidable;

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

fn needs_claims(needs: &Needs) -> bool {
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

/// Replaces the claims of a session by those of its new token. Returns whether anything changed.
pub(crate) fn renew_claims(session: &Session, is_of_jwt: bool, claims: Option<Arc<Claims>>) -> bool {
    let is_of_other_kind = session.set_of_jwt(is_of_jwt);
    let known = session.known.load_full();
    let Some(known) = known.filter(|known| known.claims != claims) else { return is_of_other_kind };
    session.known.store(Some(Arc::new(Known { user: known.user.clone(), claims })));
    true
}
