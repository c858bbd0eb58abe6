//! Operations, log-ins and subscriptions where topic rules are enforced: carries out what [`TopicRules`] allows.
//!
//! Everything a client asks for that needs a permission passes [`Shard::run_op`]. The decisions are in
//! [`crate::session::topic_rules`], the questions to webhooks in [`crate::session::gate`].

use std::collections::VecDeque;
use std::sync::Arc;

use noroshi_delivery::rules::{AppRules, Verdict};
use noroshi_store::LoggedIn;
use noroshi_types::{CloseReason, Topic};

use crate::protocol::effect::{Reply as Outcome, TopicNotice};
use crate::session::gate::{Asked, Entry, Gate, Permitted, end_durable};
use crate::session::permission::Decided;
use crate::session::phase::Phase;
use crate::session::recheck::Recheck;
use crate::session::request::BoxedRequest;
use crate::session::topic_rules::{Decision, LogInDecision, Lost, TopicRules, Undecidable};
use crate::shard::Shard;
use crate::shard::mailbox::Reply;
use crate::wire::Protocol;

/// Topics and filters checked in one turn (a connection is checked as a whole, which may exceed it): at a microsecond
/// each, half a millisecond.
const TOPICS_PER_TURN: usize = 512;
/// Places looked at in one turn: most are of other apps, or empty.
const PLACES_PER_TURN: usize = 4_096;

impl Shard {
    pub(crate) fn rules(&self) -> TopicRules<'_> {
        TopicRules(&self.delivery)
    }

    /// Carries out the allowed part of a client's request: now, or when a webhook has answered.
    pub(crate) fn run_op(&mut self, slot: u32, op: BoxedRequest) {
        match self.sessions.gates.enter(slot, op) {
            Entry::Pass(op) => self.try_op(slot, op),
            Entry::Waits => {}
            Entry::Full => self.begin_close(slot, CloseReason::RateLimited),
        }
    }

    fn try_op(&mut self, slot: u32, op: BoxedRequest) {
        let Some(session) = self.session(slot).cloned() else { return };
        match self.rules().decide(&session, op, || self.sessions.gates.has_room(session.app)) {
            Decision::Perform(op, decided) => self.reply_to_adapter(slot, op, Outcome::Decided(decided)),
            Decision::Ask(asked) => self.ask_webhooks(slot, asked),
            Decision::LogInAgain => self.begin_close(slot, CloseReason::RulesChanged),
        }
    }

    /// Whether all topics of a log-in are allowed. If not, it waits or ends. If it cannot wait because the places are
    /// full, the device must reconnect.
    pub(crate) fn authorize_log_in(&mut self, slot: u32, logged_in: &LoggedIn) -> bool {
        let Some(opening) = self.connections.get(slot as usize).and_then(|it| it.opening.as_deref()) else {
            return true;
        };
        let Some(pending) = &opening.login else { return true };
        let stored = logged_in.kept.as_deref();
        let adapter = self.adapter(slot);
        let filters = || adapter.map(|it| it.stored_filters(stored)).unwrap_or_default();
        match self.rules().decide_log_in(pending, logged_in, filters) {
            LogInDecision::Allowed => return true,
            LogInDecision::Ask(asked)
                if !asked.needs_webhook() || self.sessions.gates.has_room(asked.holder.app) =>
            {
                self.ask_webhooks(slot, asked);
            }
            LogInDecision::Ask(_) | LogInDecision::Undecidable => {
                self.begin_close(slot, CloseReason::Overloaded)
            }
        }
        false
    }

    fn ask_webhooks(&mut self, slot: u32, asked: Asked) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let (to, protocol) = ((slot, connection.generation), connection.protocol.as_str());
        let (shared, index) = (self.shared.clone(), usize::from(self.index));
        self.sessions.gates.ask(slot, protocol, &self.delivery, asked, move |permitted| {
            if std::thread::panicking() {
                shared.metrics.panics.inc();
            }
            shared.mailboxes[index].reply(Reply::Permitted { to, permitted });
        });
    }

    pub(crate) fn handle_permitted(&mut self, (slot, generation): (u32, u64), permitted: Permitted) {
        let Some(Gate { rules, op, waiting, .. }) = self.sessions.gates.take(slot, &permitted) else {
            return;
        };
        if self.at(slot, generation).is_some_and(|connection| connection.is_alive()) {
            self.guard(Some(slot), |shard| match op {
                None => shard.continue_ruled_log_in(slot, generation, &rules, permitted),
                Some(op) => shard.pass_gate(slot, op, waiting, rules, permitted),
            });
        }
    }

    fn pass_gate(
        &mut self,
        slot: u32,
        op: BoxedRequest,
        mut waiting: VecDeque<BoxedRequest>,
        rules: Arc<AppRules>,
        Permitted { app, verdicts, failed, .. }: Permitted,
    ) {
        if failed {
            return self.begin_close(slot, CloseReason::Internal);
        }
        match self.delivery.rules.are_current(app, Some(&rules)) {
            true => {
                let decided = Decided { rules: Some(rules), verdicts };
                self.reply_to_adapter(slot, op, Outcome::Decided(decided));
            }
            // The rules changed: it is decided again, before later operations.
            false => waiting.push_front(op),
        }
        while let Some(op) = waiting.pop_front() {
            if !self.is_alive(slot) {
                return;
            }
            self.try_op(slot, op);
            match self.sessions.gates.wait_behind(slot, waiting) {
                Some(rest) => waiting = rest,
                None => return,
            }
        }
    }

    fn continue_ruled_log_in(
        &mut self,
        slot: u32,
        generation: u64,
        rules: &Arc<AppRules>,
        permitted: Permitted,
    ) {
        let delivery = self.delivery.clone();
        let Some(opening) = self.connection(slot).and_then(|it| it.opening.as_deref_mut()) else { return };
        let Some(pending) = &mut opening.login else { return };
        pending.passes += 1;
        let login = &mut pending.login;
        if !delivery.rules.are_current(login.app, Some(rules)) {
            return self.queue_log_in(slot, generation);
        }
        for (name, verdict) in permitted.verdicts {
            let topic = Topic::from_trusted(&name);
            match verdict {
                Verdict::Denied(reason) => {
                    login.topics.retain(|named| *named != topic);
                    login.session_topics.retain(|named| *named != topic);
                    pending.denied.push((topic, reason));
                }
                Verdict::Allowed | Verdict::Ask => pending.permitted.add(rules, name),
            }
        }
        match permitted.failed {
            true => self.begin_close(slot, CloseReason::Overloaded),
            false => self.queue_log_in(slot, generation),
        }
    }

    /// Checks the next connections whose app's rules changed.
    pub(crate) fn continue_recheck(&mut self) {
        let changed = self.mailbox().rechecks.take();
        if self.sessions.recheck.is_none() && changed.is_empty() {
            return;
        }
        let now_ms = self.now.ms32();
        let mut recheck = self.sessions.recheck.take().unwrap_or_else(|| Recheck::new(now_ms));
        changed.into_iter().for_each(|app| recheck.begin(app));
        let mut topics_left = TOPICS_PER_TURN;
        for _ in 0..PLACES_PER_TURN {
            let Some(place) = recheck.next_place(self.connections.capacity()) else { break };
            let Some(connection) = self.connections.get(place) else { continue };
            let app = connection.attachment.session.as_ref().map(|session| session.app);
            let Some(app) = app.filter(|app| recheck.concerns(*app)) else { continue };
            if connection.phase != Phase::Open {
                continue;
            }
            let (slot, generation, topics) =
                (place as u32, connection.generation, connection.attachment.topics.len());
            let cost = topics + self.client_filters(slot).len();
            self.guard(Some(slot), |shard| {
                if shard.recheck_session(slot) == Err(Undecidable) {
                    recheck.log_in_again(app, (slot, generation));
                }
            });
            topics_left = topics_left.saturating_sub(cost.max(1));
            if topics_left == 0 {
                break;
            }
        }
        while let Some((slot, generation)) = recheck.next_to_log_in(now_ms) {
            if self.at(slot, generation).is_some_and(|connection| connection.phase == Phase::Open) {
                self.guard(Some(slot), |shard| shard.recheck_now(slot));
            }
        }
        self.sessions.recheck = (!recheck.is_done()).then_some(recheck);
    }

    /// Checks everything that `rules` allowed a connection, if the rules of its app have changed since.
    pub(crate) fn recheck_if_changed(&mut self, slot: u32, rules: Option<&Arc<AppRules>>) {
        let Some(app) = self.session(slot).map(|session| session.app) else { return };
        if !self.delivery.rules.are_current(app, rules) {
            self.recheck_now(slot);
        }
    }

    /// Checks one connection. If its session kept too little to decide, it has to log in again.
    pub(crate) fn recheck_now(&mut self, slot: u32) {
        if self.recheck_session(slot) == Err(Undecidable) {
            self.begin_close(slot, CloseReason::RulesChanged);
        }
    }

    fn recheck_session(&mut self, slot: u32) -> Result<(), Undecidable> {
        let Some(connection) = self.connections.get(slot as usize) else { return Ok(()) };
        let Some(session) = connection.attachment.session.clone() else { return Ok(()) };
        let filters = self.client_filters(slot);
        let lost =
            self.rules().lost(&session, &connection.attachment.topics, &self.sessions.topics, &filters)?;
        let Some(Lost { topics, durable, holder }) = lost else { return Ok(()) };
        let protocol = connection.protocol;
        let keys: Vec<_> =
            topics.iter().map(|(topic, _)| self.shared.registry.topic_key(session.app, topic)).collect();
        self.unsubscribe(slot, &keys);
        if !durable.is_empty() {
            let delivery = self.delivery.clone();
            self.delivery.work(async move {
                end_durable(&delivery, &holder, &durable).await;
            });
        }
        match protocol {
            Protocol::Native | Protocol::SocketIo => {
                for (topic, reason) in topics {
                    self.send_topic_notice(
                        slot,
                        &TopicNotice { code: "topic_revoked", topic: &topic, reason },
                    );
                }
            }
            Protocol::Http | Protocol::Echo => {}
            // Their clients learn of it when they subscribe again.
            _ => self.begin_close(slot, CloseReason::Unauthorized),
        }
        Ok(())
    }
}
