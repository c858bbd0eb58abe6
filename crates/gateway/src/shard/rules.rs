//! Topic rules where they are enforced.

use crate::lifecycle::phase::Phase;
use crate::session::gate::{Answering, Asked, Gate, Permitted, end_durable};
use crate::protocol::effect::{Reply as Outcome, TopicNotice};
use crate::session::operation::Operation;
use crate::session::permission::{Decided, Ruling, Verdicts, holder_of, knows, needs_claims, ruling};
use crate::session::recheck::{RETURNS, Recheck};
use crate::session::registry::Session;
use crate::shard::Shard;
use crate::shard::mailbox::Reply;
use crate::wire::Protocol;
use futures_util::future::join_all;
use noroshi_delivery::Delivery;
use noroshi_delivery::rules::{AppRules, Holder, Known, Reason, Verdict};
use noroshi_protocol::mqtt::TopicFilter;
use noroshi_store::LoggedIn;
use noroshi_types::rule::{Action, Claims};
use noroshi_types::topic::needs_rule;
use noroshi_types::{CloseReason, Topic, limits};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Operations that wait at one gate.
const WAITING_MAX: usize = 64;

/// What they hold together, where several wait: with [`crate::session::gate::ASKING_MAX`] 64 MiB of a shard. One may wait in any
/// case: its message was not too large.
const WAITING_BYTES_MAX: usize = limits::CLIENT_MESSAGE_BYTES;

/// Topics of one operation that a webhook is asked about; the others are denied.
const ASKED_MAX: usize = 64;

/// How often a log-in is read again: each time something was taken away from what it may hear.
const LOG_IN_PASSES_MAX: u8 = 4;

/// Topics and filters checked in one turn, and those of one more connection: at a microsecond each half a millisecond.
const TOPICS_PER_TURN: usize = 512;

/// Places looked at in one turn: most are of other apps, or empty.
const PLACES_PER_TURN: usize = 4_096;

impl Shard {
    /// Carries out what a client asks for, as far as it may: now, or when a webhook has answered.
    pub(crate) fn run_op(&mut self, slot: u32, op: Box<dyn Operation>) {
        if let Some(gate) = self.gates.get_mut(&slot) {
            let bytes: usize = gate.waiting.iter().chain([&op]).map(|op| op.bytes()).sum();
            let is_over = bytes > WAITING_BYTES_MAX && !gate.waiting.is_empty();
            if is_over || gate.waiting.len() >= WAITING_MAX {
                return self.begin_close(slot, CloseReason::RateLimited);
            }
            return gate.waiting.push_back(op);
        }
        self.try_op(slot, op);
    }

    pub(crate) fn try_op(&mut self, slot: u32, op: Box<dyn Operation>) {
        let Some(session) = self.connection(slot).and_then(|it| it.session.clone()) else { return };
        let (rules, holder) = match ruling(&self.delivery, &session) {
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

    fn perform(&mut self, slot: u32, op: Box<dyn Operation>, decided: Decided) {
        self.reply_to_adapter(slot, op, Outcome::Decided(decided));
    }

    /// Whether a durable subscription that was made elsewhere may be heard: rules may have changed since it was allowed.
    pub(crate) fn may_hear(&self, session: &Session, topic: &Topic) -> bool {
        match ruling(&self.delivery, session) {
            Ruling::By(rules, holder) if Delivery::is_ruled(topic.as_str()) => {
                !matches!(self.delivery.check_durable(&rules, &holder, topic), Verdict::Denied(_))
            }
            Ruling::By(..) => true,
            Ruling::None => !needs_rule(topic.as_str()),
            Ruling::Unknown => false,
        }
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
        let conversation = self.conversation(slot);
        let stored = conversation.map(|conversation| conversation.stored_filters(logged_in.kept.as_deref()));
        for filter in stored.unwrap_or_default() {
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

    /// Asks webhooks beside the shard, then ends the durable subscriptions that are denied. The caller has checked that
    /// there is room for what it asks.
    pub(crate) fn ask_webhooks(&mut self, slot: u32, asked: Asked) {
        let Asked { op, rules, holder, action, verdicts, needed, durable } = asked;
        let Some(connection) = self.connection(slot) else { return };
        let (to, protocol) = ((slot, connection.generation), connection.protocol.as_str());
        self.gate_number += 1;
        self.asking.begin(holder.app);
        let (number, app, of_gate) = (self.gate_number, holder.app, rules.clone());
        let (shared, index, delivery) = (self.shared.clone(), usize::from(self.index), self.delivery.clone());
        let answering = Answering::new(number, app, move |permitted| {
            if std::thread::panicking() {
                shared.metrics.panics.inc();
            }
            shared.mailboxes[index].reply(Reply::Permitted { to, permitted });
        });
        let question = self.delivery.work_while_held(async move {
            let answering = answering;
            let answer = |(name, verdict): (Box<str>, Verdict)| {
                let (delivery, rules, holder) = (&delivery, &rules, &holder);
                async move {
                    match verdict {
                        Verdict::Ask => {
                            let verdict = delivery.ask_topic(rules, holder, action, &name, protocol).await;
                            (name, verdict)
                        }
                        verdict => (name, verdict),
                    }
                }
            };
            let verdicts: Verdicts = join_all(verdicts.into_iter().map(answer)).await;
            let by_name: HashMap<&str, Verdict> =
                verdicts.iter().map(|(name, verdict)| (&**name, *verdict)).collect();
            let verdict = |name: &str| by_name.get(name).copied();
            // Without an answer nothing ends for good, and nothing may be delivered: the device has to come back.
            let unanswered =
                needed.iter().any(|name| verdict(name) == Some(Verdict::Denied(Reason::Unanswered)));
            let is_denied = |topic: &Topic| {
                matches!(verdict(topic.as_str()), Some(Verdict::Denied(Reason::Rule(_) | Reason::Webhook)))
            };
            let ended: Vec<Topic> = durable.into_iter().filter(is_denied).collect();
            drop(by_name);
            // By rules that changed meanwhile nothing ends: the log-in is decided again.
            let is_current = delivery.rules().are_current(holder.app, Some(&rules));
            let ended = if is_current { ended } else { Vec::new() };
            let failed = unanswered || !end_durable(&delivery, &holder, &ended).await;
            answering.answer(verdicts, failed);
        });
        let waiting = VecDeque::new();
        self.gates.insert(slot, Gate { number, app, rules: of_gate, op, waiting, _question: question });
    }

    pub(crate) fn handle_permitted(&mut self, (slot, generation): (u32, u64), permitted: Permitted) {
        self.asking.end(permitted.app);
        if self.gates.get(&slot).is_none_or(|gate| gate.number != permitted.number) {
            return;
        }
        let Some(gate) = self.gates.remove(&slot) else { return };
        if self.at(slot, generation).is_some_and(|connection| connection.is_alive()) {
            self.guard(Some(slot), |shard| match gate.op {
                None => shard.go_on_with_log_in(slot, generation, &gate.rules, permitted),
                Some(_) => shard.pass_gate(slot, gate, permitted),
            });
        }
    }

    fn pass_gate(&mut self, slot: u32, gate: Gate, permitted: Permitted) {
        let Gate { app, rules, op, mut waiting, .. } = gate;
        let Permitted { verdicts, failed, .. } = permitted;
        if failed {
            return self.begin_close(slot, CloseReason::Internal);
        }
        match op {
            Some(op) if self.delivery.rules().are_current(app, Some(&rules)) => {
                self.perform(slot, op, Decided { rules: Some(rules), verdicts });
            }
            // The rules changed: it is decided again, before what came after it.
            Some(op) => waiting.push_front(op),
            None => {}
        }
        while let Some(op) = waiting.pop_front() {
            if !self.is_alive(slot) {
                return;
            }
            self.try_op(slot, op);
            if let Some(gate) = self.gates.get_mut(&slot) {
                gate.waiting = waiting;
                return;
            }
        }
    }

    /// Looks at the next connections whose app's rules changed.
    pub(crate) fn go_on_with_recheck(&mut self) {
        let changed = self.mailbox().take_rechecks();
        if self.recheck.is_none() && changed.is_empty() {
            return;
        }
        let now_ms = self.now.ms32();
        let mut recheck = self.recheck.take().unwrap_or_else(|| Recheck::new(now_ms));
        for app in changed {
            recheck.begin(app);
            // The lap finds them again.
            recheck.returning.forget(app);
        }
        let mut topics_left = TOPICS_PER_TURN;
        for _ in 0..PLACES_PER_TURN {
            let Some(place) = recheck.next_place(self.connections.capacity()) else { break };
            let Some(connection) = self.connections.get(place) else { continue };
            let app = connection.session.as_ref().map(|session| session.app);
            let Some(app) = app.filter(|app| recheck.laps.contains_key(app)) else { continue };
            if connection.phase != Phase::Open {
                continue;
            }
            let (slot, generation, topics) = (place as u32, connection.generation, connection.topics.len());
            let cost = topics + self.client_filters(slot).len();
            self.guard(Some(slot), |shard| {
                if !shard.recheck_session(slot) {
                    recheck.returning.push(app, (slot, generation));
                }
            });
            topics_left = topics_left.saturating_sub(cost.max(1));
            if topics_left == 0 {
                break;
            }
        }
        while !recheck.returning.is_empty() && recheck.returns.take(RETURNS, now_ms) {
            let Some((slot, generation)) = recheck.returning.pop() else { break };
            if self.at(slot, generation).is_some_and(|connection| connection.phase == Phase::Open) {
                self.guard(Some(slot), |shard| shard.recheck_now(slot));
            }
        }
        if !recheck.laps.is_empty() || !recheck.returning.is_empty() {
            self.recheck = Some(recheck);
        }
    }

    /// Checks what a connection was allowed by `rules`, where they are not those of its app any more.
    pub(crate) fn recheck_if_changed(&mut self, slot: u32, rules: Option<&Arc<AppRules>>) {
        let session = self.connection(slot).and_then(|connection| connection.session.as_ref());
        let Some(app) = session.map(|session| session.app) else { return };
        if !self.delivery.rules().are_current(app, rules) {
            self.recheck_now(slot);
        }
    }

    /// Checks one connection. If its session kept too little to decide, it has to log in again.
    pub(crate) fn recheck_now(&mut self, slot: u32) {
        if !self.recheck_session(slot) {
            self.begin_close(slot, CloseReason::RulesChanged);
        }
    }

    /// False if the session kept too little to decide.
    fn recheck_session(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.get(slot as usize) else { return true };
        let Some(session) = connection.session.clone() else { return true };
        let Some(rules) = self.delivery.rules().of(session.app) else { return true };
        if !knows(&session, rules.rules.needs()) {
            return false;
        }
        let holder = holder_of(&session);
        let check = |name: &str| match Delivery::is_ruled(name) {
            true => self.delivery.check_topic(&rules, &holder, Action::Subscribe, name),
            false => Verdict::Allowed,
        };
        let mut ended: Vec<(Topic, Reason)> = Vec::new();
        let mut durable = Vec::new();
        // An API key may have made other durable subscriptions.
        let filters = self.client_filters(slot);
        let of_client: HashSet<&str> = filters.iter().map(|filter| filter.as_str()).collect();
        for subscription in &connection.topics {
            let Some(topic) = self.topics.entry(subscription.index()).map(|entry| &entry.topic) else {
                continue;
            };
            let verdict = match subscription.is_own() || of_client.contains(topic.as_str()) {
                true => check(topic.as_str()),
                false if !Delivery::is_ruled(topic.as_str()) => Verdict::Allowed,
                false => self.delivery.check_durable(&rules, &holder, topic),
            };
            if let Verdict::Denied(reason) = verdict {
                durable.extend((!subscription.is_own()).then(|| topic.clone()));
                ended.push((topic.clone(), reason));
            }
        }
        let is_lost = |filter: &TopicFilter| matches!(check(filter.plain()), Verdict::Denied(_));
        let has_lost_filter =
            filters.iter().any(|filter| filter.topic().is_none() && is_lost(filter));
        if ended.is_empty() && !has_lost_filter {
            return true;
        }
        let protocol = connection.protocol;
        let keys: Vec<_> =
            ended.iter().map(|(topic, _)| self.shared.registry.topic_key(session.app, topic)).collect();
        self.unsubscribe(slot, &keys);
        if !durable.is_empty() {
            let delivery = self.delivery.clone();
            self.delivery.work(async move {
                end_durable(&delivery, &holder, &durable).await;
            });
        }
        match protocol {
            Protocol::Native | Protocol::SocketIo => {
                for (topic, reason) in ended {
                    let (code, text) = (reason.code(), reason.text());
                    let notice = TopicNotice { code: "topic_revoked", topic: &topic, reason: code, text };
                    self.send_topic_notice(slot, &notice);
                }
            }
            Protocol::Http | Protocol::Echo => {}
            _ => self.begin_close(slot, CloseReason::Unauthorized),
        }
        true
    }
}
