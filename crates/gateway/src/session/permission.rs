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
use noroshi_delivery::rules::{AppRules, Holder, Known, Reason, Verdict};
use noroshi_protocol::mqtt::{Answer, SubscribeRefused, SubscribeRequest, UnsubscribeRequest};
use noroshi_protocol::native;
use noroshi_protocol::socket_io;
use noroshi_protocol::xmpp::{self, Refusal};
use noroshi_store::LoggedIn;
use noroshi_types::rule::{Action, Claims, Denied, Needs};
use noroshi_types::topic::needs_rule;
use noroshi_types::{AppId, CloseReason, JsonText, NotificationId, Position, Topic, limits};

use crate::protocol::mqtt::publishing::Published;
use crate::session::gate::{Asked, Permitted};
use crate::session::registry::Session;
use crate::shard::Shard;
use crate::shard::connection::Protocol;

/// Operations that wait at one gate.
const WAITING_MAX: usize = 64;
/// What they hold together, where several wait: with [`crate::session::gate::ASKING_MAX`] 64 MiB of a shard. One may wait in any
/// case: its message was not too large.
const WAITING_BYTES_MAX: usize = limits::CLIENT_MESSAGE_BYTES;
/// What a name takes besides its text, and an operation besides its names.
const NAME_BYTES: usize = 48;
/// Topics of one operation that a webhook is asked about; the others are denied.
const ASKED_MAX: usize = 64;
/// How often a log-in is read again: each time something was taken away from what it may hear.
const LOG_IN_PASSES_MAX: u8 = 4;

/// What a client asks for.
pub(crate) enum Op {
    Subscribe { topics: Vec<Topic>, since: Vec<(Topic, Position)>, reply: Option<socket_io::Reply> },
    Unsubscribe { topics: Vec<Topic> },
    MqttSubscribe(SubscribeRequest),
    MqttUnsubscribe(UnsubscribeRequest),
    MqttPublish { published: Box<Published>, answer: Option<Answer> },
    XmppSubscribe { topic: Topic, durable: bool, request: xmpp::Request },
    XmppUnsubscribe { topic: Topic, durable: bool, request: xmpp::Request },
    XmppItems { topic: Topic, id: Option<NotificationId>, max: usize, request: xmpp::Request },
    XmppPublish { topic: Topic, data: JsonText, request: xmpp::Request },
    XmppCreate { topic: Topic, request: xmpp::Request },
}

impl Op {
    fn action(&self) -> Action {
        match self {
            Op::MqttPublish { .. } | Op::XmppPublish { .. } | Op::XmppCreate { .. } => Action::Publish,
            _ => Action::Subscribe,
        }
    }

    /// What it holds while it waits: what the client sent, and what each name and the operation itself take.
    fn bytes(&self) -> usize {
        let name = |name: &str| NAME_BYTES + name.len();
        let names = |topics: &[Topic]| topics.iter().map(|topic| name(topic.as_str())).sum::<usize>();
        let sent = match self {
            Op::Subscribe { topics, since, .. } => {
                names(topics) + since.iter().map(|(topic, _)| name(topic.as_str())).sum::<usize>()
            }
            Op::Unsubscribe { topics } => names(topics),
            Op::MqttSubscribe(request) => request.subscriptions(0).map(|one| name(one.filter.as_str())).sum(),
            Op::MqttUnsubscribe(request) => request.filters().map(|filter| name(filter.as_str())).sum(),
            Op::MqttPublish { published, .. } => {
                name(published.topic.as_str()) + published.data.as_str().len()
            }
            Op::XmppPublish { topic, data, request } => {
                name(topic.as_str()) + data.as_str().len() + request.held_bytes()
            }
            Op::XmppSubscribe { topic, request, .. }
            | Op::XmppUnsubscribe { topic, request, .. }
            | Op::XmppCreate { topic, request }
            | Op::XmppItems { topic, request, .. } => name(topic.as_str()) + request.held_bytes(),
        };
        NAME_BYTES + sent
    }

    /// What no app without rules opens. Other protocols than MQTT cannot name it.
    fn denied_without_rules(&self) -> Verdicts {
        let denied = Verdict::Denied(Reason::Rule(Denied::NoRule));
        match self {
            Op::MqttSubscribe(_) => {
                let names = self.names().into_iter();
                names.filter(|name| needs_rule(name)).map(|name| (name, denied)).collect()
            }
            _ => Verdicts::new(),
        }
    }

    /// The topics and filters that need a permission, in order.
    fn names(&self) -> Vec<Box<str>> {
        match self {
            Op::Subscribe { topics, .. } => topics.iter().map(|topic| topic.as_str().into()).collect(),
            Op::MqttSubscribe(request) => {
                request.subscriptions(0).map(|one| one.filter.plain().into()).collect()
            }
            Op::MqttPublish { published, .. } => vec![published.topic.as_str().into()],
            Op::XmppSubscribe { topic, .. }
            | Op::XmppItems { topic, .. }
            | Op::XmppCreate { topic, .. }
            | Op::XmppPublish { topic, .. } => vec![topic.as_str().into()],
            Op::Unsubscribe { .. } | Op::MqttUnsubscribe(_) | Op::XmppUnsubscribe { .. } => Vec::new(),
        }
    }
}

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
    fn add(&mut self, rules: &Arc<AppRules>, name: Box<str>) {
        if !self.rules.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, rules)) {
            (self.rules, self.names) = (Some(rules.clone()), Vec::new());
        }
        self.names.push(name);
    }

    fn has(&self, rules: &Arc<AppRules>, name: &str) -> bool {
        let is_current = self.rules.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, rules));
        is_current && self.names.iter().any(|known| **known == *name)
    }
}

/// Under which rules a session stands.
enum Ruling {
    /// The app has none.
    None,
    By(Arc<AppRules>, Holder),
    /// The session kept too little of its token: it has to log in again.
    Unknown,
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

fn needs_claims(needs: &Needs) -> bool {
    needs.topics || !needs.claims.is_empty()
}

impl Shard {
    fn ruling(&self, session: &Session) -> Ruling {
        let Some(rules) = self.delivery.rules().of(session.app) else { return Ruling::None };
        if !knows(session, rules.rules.needs()) {
            return Ruling::Unknown;
        }
        let holder = holder_of(session);
        Ruling::By(rules, holder)
    }

    /// Carries out what a client asks for, as far as it may: now, or when a webhook has answered.
    pub(crate) fn run_op(&mut self, slot: u32, op: Op) {
        if let Some(gate) = self.gates.get_mut(&slot) {
            let bytes: usize = gate.waiting.iter().chain([&op]).map(Op::bytes).sum();
            let is_over = bytes > WAITING_BYTES_MAX && !gate.waiting.is_empty();
            if is_over || gate.waiting.len() >= WAITING_MAX {
                return self.begin_close(slot, CloseReason::RateLimited);
            }
            return gate.waiting.push_back(op);
        }
        self.try_op(slot, op);
    }

    pub(crate) fn try_op(&mut self, slot: u32, op: Op) {
        let Some(session) = self.connection(slot).and_then(|it| it.session.clone()) else { return };
        let (rules, holder) = match self.ruling(&session) {
            Ruling::None => {
                let verdicts = op.denied_without_rules();
                return self.perform(slot, op, Decided { rules: None, verdicts });
            }
            Ruling::Unknown => return self.begin_close(slot, CloseReason::RulesChanged),
            Ruling::By(rules, holder) => (rules, holder),
        };
        let action = op.action();
        let mut asked = 0;
        let has_room = self.asking.has_room(session.app);
        let check = |name: Box<str>| {
            let verdict = match Delivery::is_ruled(&name) {
                true => self.delivery.check_topic(&rules, &holder, action, &name),
                false => Verdict::Allowed,
            };
            match verdict {
                Verdict::Ask if !has_room || asked >= ASKED_MAX => {
                    (name, Verdict::Denied(Reason::Unanswered))
                }
                Verdict::Ask => {
                    asked += 1;
                    (name, Verdict::Ask)
                }
                verdict => (name, verdict),
            }
        };
        let verdicts: Verdicts = op.names().into_iter().map(check).collect();
        if asked == 0 {
            return self.perform(slot, op, Decided { rules: Some(rules), verdicts });
        }
        let (op, needed, durable) = (Some(op), Vec::new(), Vec::new());
        self.ask_webhooks(slot, Asked { op, rules, holder, action, verdicts, needed, durable });
    }

    pub(crate) fn perform(&mut self, slot: u32, op: Op, Decided { rules, verdicts }: Decided) {
        // A client names up to 1,000 topics at once.
        let reason = |verdict: &Verdict| match verdict {
            Verdict::Denied(reason) => Some(*reason),
            Verdict::Allowed | Verdict::Ask => None,
        };
        let denied: HashMap<&str, Reason> =
            verdicts.iter().filter_map(|(name, verdict)| Some((&**name, reason(verdict)?))).collect();
        let denied = |name: &str| denied.get(name).copied();
        match op {
            Op::Subscribe { topics, since, reply } => {
                let is_denied = |topic: &Topic| denied(topic.as_str()).is_some();
                let (refused, topics): (Vec<Topic>, Vec<Topic>) = topics.into_iter().partition(is_denied);
                let mut result = self.subscribe_all(slot, topics, since);
                for topic in &refused {
                    let Some(reason) = denied(topic.as_str()) else { continue };
                    self.tell_topic(slot, "topic_forbidden", topic, reason.code(), reason.text());
                    let text = format!("{topic}: {}", reason.text());
                    result = result.and(Err(("topic_forbidden", text)));
                }
                match (reply, result) {
                    (Some(reply), result) => self.reply(slot, reply, result),
                    (None, Err((code, text))) if code != "topic_forbidden" => {
                        self.tell_error(slot, code, &text)
                    }
                    (None, _) => {}
                }
            }
            Op::Unsubscribe { topics } => {
                if let Some(app) = self.app_of_session(slot) {
                    self.unsubscribe_all(slot, app, &topics);
                }
            }
            Op::MqttSubscribe(mut request) => {
                request.refuse(|filter| denied(filter.plain()).map(|_| SubscribeRefused::NotAllowed));
                self.make_mqtt_subscriptions(slot, request, rules);
            }
            Op::MqttUnsubscribe(request) => self.end_mqtt_subscriptions(slot, request),
            Op::MqttPublish { published, answer } => {
                let allowed = self.publishes(slot, &published.topic, rules.as_deref(), &verdicts);
                self.publish_mqtt_allowed(slot, *published, answer, allowed);
            }
            Op::XmppSubscribe { topic, durable, request } => match denied(topic.as_str()) {
                Some(_) => self.answer_xmpp(slot, request, xmpp::Answer::Refused(Refusal::Forbidden)),
                None => self.subscribe_xmpp(slot, topic, durable, rules, request),
            },
            Op::XmppUnsubscribe { topic, durable, request } => {
                self.unsubscribe_xmpp(slot, topic, durable, request);
            }
            Op::XmppItems { topic, id, max, request } => match denied(topic.as_str()) {
                Some(_) => self.answer_xmpp(slot, request, xmpp::Answer::Refused(Refusal::Forbidden)),
                None => self.tell_items(slot, topic, id, max, request),
            },
            Op::XmppPublish { topic, data, request } => {
                let allowed = self.publishes(slot, &topic, rules.as_deref(), &verdicts);
                self.publish_xmpp(slot, topic, data, request, allowed);
            }
            Op::XmppCreate { topic, request } => {
                let allowed = self.publishes(slot, &topic, rules.as_deref(), &verdicts);
                self.create_xmpp(slot, topic, request, allowed);
            }
        }
    }

    /// Where the app has rules for publishing they alone decide, else its filters do.
    fn publishes(&mut self, slot: u32, topic: &Topic, rules: Option<&AppRules>, verdicts: &Verdicts) -> bool {
        let Some(app) = self.app_of_session(slot) else { return false };
        match rules.is_some_and(|rules| rules.rules.rules(Action::Publish).is_some()) {
            true => verdicts.first().is_some_and(|(_, verdict)| *verdict == Verdict::Allowed),
            false => self.may_publish(app, topic),
        }
    }

    /// What the rules make a device to a topic, in the words of XEP-0060 §4.1. Where a webhook decides it is not asked: the
    /// device is nothing in particular until it tries.
    pub(crate) fn affiliation(&mut self, slot: u32, topic: &Topic) -> Option<&'static str> {
        let session = self.connection(slot)?.session.clone()?;
        let filtered = self.may_publish(session.app, topic);
        let (rules, holder) = match self.ruling(&session) {
            Ruling::None => return Some(if filtered { "publisher" } else { "none" }),
            Ruling::Unknown => return Some("none"),
            Ruling::By(rules, holder) => (rules, holder),
        };
        let check = |action| match Delivery::is_ruled(topic.as_str()) {
            true => self.delivery.check_topic(&rules, &holder, action, topic.as_str()),
            false => Verdict::Allowed,
        };
        let publish = match rules.rules.rules(Action::Publish) {
            Some(_) => check(Action::Publish),
            None if filtered => Verdict::Allowed,
            None => Verdict::Denied(Reason::Rule(Denied::NoRule)),
        };
        Some(match (check(Action::Subscribe), publish) {
            (Verdict::Allowed, Verdict::Allowed) => "publisher",
            (Verdict::Denied(_), Verdict::Allowed) => "publish-only",
            (Verdict::Allowed, _) => "member",
            (Verdict::Denied(_), Verdict::Denied(_)) => "outcast",
            (Verdict::Ask, _) | (_, Verdict::Ask) => "none",
        })
    }

    pub(crate) fn has_publish_rules(&self, app: AppId) -> bool {
        self.delivery.rules().of(app).is_some_and(|rules| rules.rules.rules(Action::Publish).is_some())
    }

    fn app_of_session(&mut self, slot: u32) -> Option<AppId> {
        Some(self.connection(slot)?.session.as_ref()?.app)
    }

    /// Whether a session may publish its will, by rules or filters; with [`Verdict::Ask`] whom to ask.
    pub(crate) fn may_leave_will(
        &self,
        session: &Session,
        topic: &Topic,
    ) -> (Verdict, Option<(Arc<AppRules>, Holder)>) {
        if !self.has_publish_rules(session.app) {
            let allowed = self.may_publish(session.app, topic);
            let denied = Verdict::Denied(Reason::Unanswered);
            return (if allowed { Verdict::Allowed } else { denied }, None);
        }
        match self.ruling(session) {
            Ruling::By(rules, holder) => {
                let verdict = self.delivery.check_topic(&rules, &holder, Action::Publish, topic.as_str());
                (verdict, Some((rules, holder)))
            }
            Ruling::None | Ruling::Unknown => (Verdict::Denied(Reason::Unanswered), None),
        }
    }

    /// Whether a durable subscription that was made elsewhere may be heard: rules may have changed since it was allowed.
    pub(crate) fn may_hear(&self, session: &Session, topic: &Topic) -> bool {
        match self.ruling(session) {
            Ruling::By(rules, holder) if Delivery::is_ruled(topic.as_str()) => {
                !matches!(self.delivery.check_durable(&rules, &holder, topic), Verdict::Denied(_))
            }
            Ruling::By(..) => true,
            Ruling::None => !needs_rule(topic.as_str()),
            Ruling::Unknown => false,
        }
    }

    /// Whether a session that goes on may keep a filter that its client subscribed to. What a webhook decides about was
    /// asked for the log-in.
    pub(crate) fn may_keep_filter(&self, session: &Session, permitted: &Permissions, filter: &str) -> bool {
        if !Delivery::is_ruled(filter) {
            return true;
        }
        let (rules, holder) = match self.ruling(session) {
            Ruling::None => return !needs_rule(filter),
            Ruling::Unknown => return false,
            Ruling::By(rules, holder) => (rules, holder),
        };
        permitted.has(&rules, filter)
            || self.delivery.check_topic(&rules, &holder, Action::Subscribe, filter) == Verdict::Allowed
    }

    /// Whether all topics of a log-in are allowed. If not, it waits or ends: what is denied is taken out of it, ended in
    /// the store, and the log-in is read again. Where there is no room to wait, the device has to come back.
    pub(crate) fn settle_log_in(&mut self, slot: u32, logged_in: &LoggedIn) -> bool {
        let Some(opening) = self.connections.get(slot as usize).and_then(|it| it.opening.as_deref()) else {
            return true;
        };
        let Some(login) = &opening.login else { return true };
        let Some(rules) = self.delivery.rules().of(login.app) else { return true };
        let known = Known { user: logged_in.user.clone(), claims: opening.claims.clone() };
        let needs = rules.rules.needs();
        // A JWT that was looked at before these rules were there.
        let is_jwt = login.user.is_some();
        let lacks_claims = is_jwt && known.claims.is_none() && needs_claims(needs);
        if !known.covers(needs) || lacks_claims || opening.passes >= LOG_IN_PASSES_MAX {
            self.fail_log_in(slot);
            return false;
        }
        let Known { user, claims } = known;
        let holder = Holder { app: login.app, device: login.device.clone(), user, claims };
        let (mut verdicts, mut needed, mut durable) = (Verdicts::new(), Vec::new(), Vec::new());
        for topic in logged_in.topics.iter().filter(|topic| Delivery::is_ruled(topic.as_str())) {
            let is_own = login.session_topics.contains(topic);
            let verdict = match is_own {
                _ if opening.permitted.has(&rules, topic.as_str()) => Verdict::Allowed,
                true => self.delivery.check_topic(&rules, &holder, Action::Subscribe, topic.as_str()),
                false => self.delivery.check_durable(&rules, &holder, topic),
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
        // A filter that the rules themselves deny ends its session when that would go on.
        for filter in self.kept_filters(slot, logged_in.kept.as_deref()) {
            let name = filter.plain();
            let is_known = opening.permitted.has(&rules, name)
                || opening.denied.iter().any(|(denied, ..)| denied.as_str() == name)
                || !Delivery::is_ruled(name);
            let check = || self.delivery.check_topic(&rules, &holder, Action::Subscribe, name);
            if !is_known && check() == Verdict::Ask {
                needed.push(name.into());
                verdicts.push((name.into(), Verdict::Ask));
            }
        }
        if verdicts.is_empty() {
            return true;
        }
        let asks = verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Ask);
        if asks && !self.asking.has_room(holder.app) {
            self.fail_log_in(slot);
            return false;
        }
        let action = Action::Subscribe;
        self.ask_webhooks(slot, Asked { op: None, rules, holder, action, verdicts, needed, durable });
        false
    }

    pub(crate) fn go_on_with_log_in(
        &mut self,
        slot: u32,
        generation: u64,
        rules: &Arc<AppRules>,
        permitted: Permitted,
    ) {
        let delivery = self.delivery.clone();
        let Some(opening) = self.connection(slot).and_then(|it| it.opening.as_deref_mut()) else { return };
        let Some(login) = &mut opening.login else { return };
        opening.passes += 1;
        if !delivery.rules().are_current(login.app, Some(rules)) {
            return self.queue_log_in(slot, generation);
        }
        for (name, verdict) in permitted.verdicts {
            let topic = Topic::from_trusted(&name);
            match verdict {
                Verdict::Denied(reason) => {
                    login.topics.retain(|named| *named != topic);
                    login.session_topics.retain(|named| *named != topic);
                    opening.denied.push((topic, reason.code(), reason.text()));
                }
                Verdict::Allowed | Verdict::Ask => opening.permitted.add(rules, name),
            }
        }
        match permitted.failed {
            true => self.fail_log_in(slot),
            false => self.queue_log_in(slot, generation),
        }
    }

    /// Tells a client of a topic that it may not use, or not any more, where its protocol has words for it.
    pub(crate) fn tell_topic(&mut self, slot: u32, code: &str, topic: &Topic, reason: &str, text: &str) {
        let Some(protocol) = self.connection(slot).map(|connection| connection.protocol) else { return };
        match protocol {
            Protocol::Native => {
                let mut json = Vec::new();
                native::topic_error(&mut json, code, topic, reason, text);
                self.send_json(slot, "error", &json);
            }
            Protocol::SocketIo => {
                let packet = socket_io::encode::topic_error(code, topic, reason, text);
                self.send_packet(slot, packet);
            }
            Protocol::Http | Protocol::Mqtt | Protocol::Xmpp | Protocol::Echo => {}
        }
    }

    /// Replaces the claims of a session by those of its new token. Returns whether anything changed.
    pub(crate) fn renew_claims(
        &self,
        session: &Session,
        is_of_jwt: bool,
        claims: Option<Arc<Claims>>,
    ) -> bool {
        let is_of_other_kind = session.set_of_jwt(is_of_jwt);
        let known = session.known.load_full();
        let Some(known) = known.filter(|known| known.claims != claims) else { return is_of_other_kind };
        session.known.store(Some(Arc::new(Known { user: known.user.clone(), claims })));
        true
    }
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
