//! Runs the adapters of protocols ([`crate::protocol`]) and carries out what they ask for.
//!
//! [`Shard::converse`] calls one method of a connection's adapter with a [`Context`] made of references into the shard,
//! then carries out the effects in order. An effect may call the adapter again (its reply, a message that is offered):
//! those effects are carried out first, so the order of effects is the order on the wire.
//!
//! Invariants: effects of a connection that ends meanwhile are dropped, except for those that concern others. The
//! buffers of effects are reused, so a call of an adapter allocates nothing for them.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use noroshi_protocol::mqtt::TopicFilter;
use noroshi_protocol::ws::Input;
use noroshi_types::{AppId, CloseReason, ItemsNotice, NotificationId, Timestamp};

use super::Shard;
use super::connection::Connection;
use super::mailbox::{Close, Reply as Mailed};
use super::shared::Shared;
use crate::fanout::mail::Mail;
use crate::io::tls::TlsSession;
use crate::lifecycle::Origin;
use crate::protocol::context::{Context, Facts, Network, Peers, Progress};
use crate::protocol::effect::{Attach, Effect, REFUSED_BY_PROTOCOL, Refusal, Reply, TopicNotice};
use crate::protocol::jobs::{At, Completed, JOBS_MAX, Jobs, Outside, Turn};
use crate::protocol::polling::PollingSessions;
use crate::protocol::registry::AnyAdapter;
use crate::session::login::OpenedSession;
use crate::session::phase::Phase;
use crate::session::registry::Address;
use crate::session::request::BoxedRequest;

mod polling;
mod streams;
mod subscription;

/// Buffers of effects that are kept: an effect that calls the adapter again uses the next one.
const BUFFERS_MAX: usize = 8;
/// Effects for which a buffer is kept.
const BUFFER_EFFECTS_MAX: usize = 64;

/// What the adapters of one shard share.
pub(crate) struct Adapters {
    buffers: Vec<Vec<Effect>>,
    network: Arc<dyn Network>,
    pub(crate) jobs: Jobs,
    pub(crate) polled: PollingSessions,
}

impl Adapters {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            buffers: Vec::new(),
            network: shared,
            jobs: Jobs::default(),
            polled: PollingSessions::default(),
        }
    }
}

impl Network for Shared {
    fn relay(&self, to: Address, stanza: Bytes) {
        let _ = self.mailbox_of(to).deliver(Mail::Stanza { to, stanza });
    }

    fn wake_first_shard(&self) {
        self.mailboxes[0].wake();
    }

    fn complete(&self, shard: u16, to: At, done: Box<dyn Completed>) {
        self.mailboxes[usize::from(shard)].reply(Mailed::Done { to, done });
    }
}

/// Which effects are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The effects of a live connection, and effects that outlive it.
    WhileAlive,
    /// All: the adapter closes or ends.
    All,
}

impl Shard {
    /// Calls the adapter of a connection and carries out its effects. `None` if there is no adapter.
    pub(crate) fn converse<R>(
        &mut self,
        slot: u32,
        call: impl FnOnce(&mut AnyAdapter, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.converse_until(slot, Extent::WhileAlive, call)
    }

    fn converse_until<R>(
        &mut self,
        slot: u32,
        extent: Extent,
        call: impl FnOnce(&mut AnyAdapter, &mut Context<'_>) -> R,
    ) -> Option<R> {
        if self.adapter(slot).is_some_and(AnyAdapter::writes_marked_first) {
            self.flush(slot);
        }
        let mut effects = self.adapters.buffers.pop().unwrap_or_default();
        let due = |connection: &Connection| (connection.ping_tick, connection.deadline_tick);
        let before = self.connections.get(slot as usize).map(due);
        let called = self.split(slot, &mut effects).and_then(|(stored, mut cx)| match stored {
            Some(adapter) => Some(call(adapter, &mut cx)),
            None => {
                let made = AnyAdapter::stateless(cx.facts.protocol, cx.facts.framing);
                made.map(|mut adapter| call(&mut adapter, &mut cx))
            }
        });
        self.carry_out(slot, extent, effects);
        if self.connections.get(slot as usize).map(due) != before {
            self.arm(slot);
        }
        called
    }

    /// The adapter that a connection stores.
    pub(crate) fn adapter(&self, slot: u32) -> Option<&AnyAdapter> {
        self.connections.get(slot as usize)?.adapter.as_deref()
    }

    /// The adapter of a connection, and the rest of the shard as the adapter sees it.
    fn split<'a>(
        &'a mut self,
        slot: u32,
        effects: &'a mut Vec<Effect>,
    ) -> Option<(Option<&'a mut AnyAdapter>, Context<'a>)> {
        let Shard { shared, fanout, receivers, index, now, .. } = self;
        let connection = self.connections.get_mut(slot as usize)?;
        let turns_away = match shared.drain.is_active() {
            true => Some(CloseReason::Drain),
            false => (connection.origin == Origin::OverRate).then_some(CloseReason::Overloaded),
        };
        let offered = connection.offered_to(fanout.offered());
        let facts = Facts {
            shard: *index,
            slot,
            generation: connection.generation,
            protocol: connection.protocol,
            framing: connection.framing,
            phase: connection.phase,
            close_reason: connection.close_reason,
            turns_away,
        };
        let cx = Context {
            services: &shared.services,
            delivery: &self.delivery,
            now: *now,
            facts,
            session: connection.attachment.session.as_ref(),
            timeout_tick: &mut connection.ping_tick,
            deadline_tick: &mut connection.deadline_tick,
            ping: &mut connection.ping,
            progress: Progress {
                catch_up: &mut connection.attachment.catch_up,
                subscriptions: &connection.attachment.topics,
                topics: &self.sessions.topics,
                fanout,
                marks: connection.marks,
                offered,
                watermark: connection.attachment.watermark,
            },
            peers: Peers {
                network: &self.adapters.network,
                mail: &receivers.mail,
                has_stalled: fanout.has_stalled(),
            },
            jobs: &mut self.adapters.jobs,
            effects,
            frames: &mut connection.frames,
            frames_in: &mut self.tally.frames_in,
            jitter: &mut self.jitter,
        };
        Some((connection.adapter.as_deref_mut(), cx))
    }

    fn carry_out(&mut self, slot: u32, extent: Extent, mut effects: Vec<Effect>) {
        for effect in effects.drain(..) {
            if extent == Extent::All || effect.outlives_connection() || self.is_alive(slot) {
                self.carry_out_one(slot, effect);
            }
        }
        if effects.capacity() <= BUFFER_EFFECTS_MAX && self.adapters.buffers.len() < BUFFERS_MAX {
            self.adapters.buffers.push(effects);
        }
    }

    fn carry_out_one(&mut self, slot: u32, effect: Effect) {
        match effect {
            Effect::Send(bytes) => self.send(slot, bytes),
            Effect::Close(reason) => self.begin_close(slot, reason),
            Effect::Abort(reason) => self.abort(slot, reason),
            Effect::Verify { token, app, request } => {
                self.identify(slot, token.as_deref(), app.as_deref(), request);
            }
            Effect::Attach(attach) => {
                let Attach { identity, topics, resume } = *attach;
                self.start_log_in(slot, identity, topics, resume);
            }
            Effect::LogOut => {
                self.sessions.successions.remove(&slot);
                self.end_session_of(slot);
                self.await_login(slot);
            }
            Effect::AwaitLogin => self.await_login(slot),
            Effect::ReportRefusal(why) => {
                self.report_refused_log_in(slot, REFUSED_BY_PROTOCOL, &why);
            }
            Effect::Authorize(request) => self.run_op(slot, request),
            Effect::Subscribe { topics, since, request } => {
                let result = self.subscribe_all(slot, topics, since);
                if let Some(request) = request {
                    self.reply_to_adapter(slot, request, Reply::Subscribed(result));
                }
            }
            Effect::Unsubscribe(topics) => self.unsubscribe_all(slot, &topics),
            Effect::Acknowledge(ids) => self.acknowledge(slot, ids),
            Effect::SetPresence(presence) => {
                if self.session(slot).is_some_and(|session| session.set_presence(presence)) {
                    self.read_held_back(slot);
                }
            }
            Effect::RenewToken { token, request } => {
                if self.session(slot).is_some() {
                    self.renew(slot, &token, request);
                }
            }
            Effect::StartTls(session) => self.start_tls(slot, *session),
            Effect::Resume { at, id } => {
                let Some(generation) = self.connection(slot).map(|connection| connection.generation) else {
                    return;
                };
                let successor = Address { shard: self.index, slot, generation };
                let (reason, successor, previd) = (CloseReason::Replaced, Some(successor), Some(id));
                let close = Close { address: at, reason, successor, previd };
                self.shared.mailbox_of(at).request_close(close);
            }
            Effect::CloseSession { at, reason } => {
                self.shared.mailbox_of(at).close(at, reason);
            }
            Effect::SubscribeTopic { topic, durable, retained } => {
                self.subscribe_topic(slot, topic, durable, retained);
            }
            Effect::AddFilter(filter) => {
                if let Some(app) = self.app_of(slot) {
                    self.sessions.wildcards.add(app, &filter, slot);
                }
            }
            // Names its app: the session may have ended meanwhile.
            Effect::RemoveFilter(app, filter) => self.sessions.wildcards.remove(app, &filter, slot),
            Effect::Recheck(rules) => self.recheck_if_changed(slot, rules.as_ref()),
            Effect::MakeRoom => self.make_room(slot),
            Effect::Advance => self.advance(slot),
            Effect::Reread(after) => self.reread_backlog(slot, after),
            Effect::Continue(request) => self.reply_to_adapter(slot, request, Reply::Continue),
            Effect::Relay { to, stanza } => {
                if self.at(to.slot, to.generation).is_some() {
                    self.deliver_stanza(to.slot, &stanza);
                    self.arm(to.slot);
                }
            }
            Effect::KeepEarly(text) => self.keep_early(slot, text),
            Effect::BeginGzip => self.begin_gzip(slot),
            Effect::DetectVanishedPeer => self.detect_vanished_peer(slot),
            Effect::SendKeepAlive => self.send_keep_alive(slot),
            Effect::RefuseInHttp(status, refusal) => self.refuse_stream(slot, status, &refusal),
            Effect::WakeAt(at_ms) => self.io.precise.arm(slot, at_ms),
            Effect::Engine(output) => self.carry_out_engine(slot, output),
            Effect::EngineSettled => self.let_go(slot),
            Effect::Queue(packet) => {
                self.flush(slot);
                self.with_socket_io(slot, |socket_io, cx| socket_io.push_packet(cx, packet));
            }
            Effect::PollReady => self.adapters.polled.ready.push(slot),
            Effect::EndLegs(legs) => self.end_legs(*legs),
        }
    }

    /// Bytes of a connection whose framing is a bare stream.
    pub(crate) fn handle_stream(&mut self, slot: u32, bytes: &[u8]) {
        if self.polling_request(slot).is_some() {
            return self.feed_polling_request(slot, bytes);
        }
        let consumed = if self.io.is_paused(slot) { 0 } else { self.feed_adapter(slot, bytes) };
        if consumed < bytes.len() {
            self.io.pause(slot, [Bytes::copy_from_slice(&bytes[consumed..])].into());
        }
    }

    /// Passes bytes to an adapter until it wants no more. Returns how many are processed.
    fn feed_adapter(&mut self, slot: u32, bytes: &[u8]) -> usize {
        let mut processed = 0;
        while processed < bytes.len() && self.is_alive(slot) {
            if self.adapter(slot).is_some_and(AnyAdapter::pauses_reading) {
                return processed;
            }
            let rest = &bytes[processed..];
            let Some(consumed) = self.converse(slot, |adapter, cx| adapter.handle_bytes(cx, rest)) else {
                break;
            };
            processed += consumed.min(rest.len());
        }
        bytes.len()
    }

    /// Continues with a connection whose adapter wanted no more bytes, if it does now.
    fn resume_reading(&mut self, slot: u32) {
        if self.adapter(slot).is_some_and(AnyAdapter::pauses_reading) {
            return;
        }
        let Some(mut kept) = self.io.resume(slot) else { return };
        while let Some(mut bytes) = kept.pop_front() {
            let processed = self.feed_adapter(slot, &bytes);
            if processed < bytes.len() {
                bytes.advance(processed);
                kept.push_front(bytes);
                return self.io.pause(slot, kept);
            }
        }
        self.io.read_later(slot);
    }

    /// A whole message of a WebSocket.
    pub(crate) fn handle_websocket_message(&mut self, slot: u32, input: Input<'_>) {
        if self.polling_request(slot).is_some() {
            return self.feed_probe(slot, input);
        }
        match input {
            Input::Binary(bytes) if self.adapter(slot).is_some_and(AnyAdapter::streams_in_messages) => {
                self.handle_stream(slot, bytes);
            }
            input => drop(self.converse(slot, |adapter, cx| adapter.handle_message(cx, input))),
        }
    }

    /// What follows on the socket is TLS.
    fn start_tls(&mut self, slot: u32, session: TlsSession) {
        let Some(connection) = self.connection(slot) else { return };
        // The answer to the request is a few bytes: a client that does not take them takes nothing.
        if connection.socket.has_unsent() {
            return self.begin_close(slot, CloseReason::SlowConsumer);
        }
        if let Err(error) = self.begin_tls(slot, session) {
            tracing::warn!(%error, "STARTTLS failed");
            return self.abort(slot, CloseReason::Internal);
        }
        self.converse(slot, |adapter, cx| adapter.handle_tls(cx));
    }

    /// The session is attached. Returns early bytes, which are handled behind the first page.
    pub(crate) fn begin_adapter(&mut self, slot: u32, begun: &OpenedSession) -> Vec<u8> {
        self.converse(slot, |adapter, cx| adapter.handle_login(cx, begun)).unwrap_or_default()
    }

    pub(crate) fn reply_to_adapter(&mut self, slot: u32, request: BoxedRequest, reply: Reply) {
        self.converse(slot, |adapter, cx| adapter.handle_reply(cx, request, reply));
    }

    /// The log-in is refused although the token is valid.
    pub(crate) fn refuse_login(&mut self, slot: u32, refusal: &Refusal) {
        if self.converse(slot, |adapter, cx| adapter.handle_refusal(cx, refusal)).is_none() {
            self.begin_close(slot, refusal.reason);
        }
        self.arm(slot);
    }

    pub(crate) fn send_topic_notice(&mut self, slot: u32, notice: &TopicNotice<'_>) {
        self.converse(slot, |adapter, cx| adapter.handle_topic_notice(cx, notice));
    }

    /// Reports items to a session. A connection that does not keep up reads its counts when it can.
    pub(crate) fn report_items(&mut self, to: Address, notice: &ItemsNotice) {
        let soft = self.shared.config.send_queue_soft_bytes;
        let keeps_up = |connection: &mut Connection| connection.unsent_bytes() <= soft;
        match self.at(to.slot, to.generation).map(keeps_up) {
            Some(true) => drop(self.converse(to.slot, |adapter, cx| adapter.handle_items(cx, notice))),
            Some(false) => {
                self.shared.metrics.item_reports_undelivered.inc();
            }
            None => {}
        }
    }

    /// A stanza of another session.
    pub(crate) fn deliver_stanza(&mut self, slot: u32, stanza: &Bytes) {
        self.converse(slot, |adapter, cx| adapter.handle_stanza(cx, stanza));
    }

    /// Filters that the client subscribed to.
    pub(crate) fn client_filters(&self, slot: u32) -> Vec<&TopicFilter> {
        self.adapter(slot).map(AnyAdapter::client_filters).unwrap_or_default()
    }

    /// Starts the jobs whose turn it is.
    pub(crate) fn start_jobs(&mut self) {
        while self.adapters.jobs.running < JOBS_MAX {
            let Some((slot, generation)) = self.adapters.jobs.waiting.pop_front() else { break };
            if self.at(slot, generation).is_some() {
                self.converse(slot, |adapter, cx| adapter.start_job(cx, Turn::Job));
            }
        }
        while let Some((app, (slot, generation))) = self.adapters.jobs.scans.pop() {
            let is_there = self.at(slot, generation).is_some();
            let started = is_there
                && self.converse(slot, |adapter, cx| adapter.start_job(cx, Turn::Scan)) == Some(true);
            if !started {
                self.adapters.jobs.scans.done(app);
            }
        }
    }

    /// The result of a job.
    pub(crate) fn handle_done(&mut self, at: At, done: Box<dyn Completed>) {
        let (slot, generation) = at;
        let is_connected = self.at(slot, generation).is_some();
        let (services, delivery) = (&self.shared.services, &self.delivery);
        let jobs = &mut self.adapters.jobs;
        if let Some(done) = done.settle(&mut Outside { services, delivery, jobs, at, is_connected }) {
            self.guard(Some(slot), |shard| {
                shard.converse(slot, |adapter, cx| adapter.handle_done(cx, done));
                shard.resume_reading(slot);
                shard.arm(slot);
            });
        }
    }

    /// The adapter's time has come (`Connection::ping_tick`).
    pub(crate) fn handle_timeout(&mut self, slot: u32) {
        if self.converse(slot, |adapter, cx| adapter.handle_timeout(cx)).is_none()
            && let Some(connection) = self.connection(slot)
        {
            connection.ping_tick = u32::MAX;
        }
        self.arm(slot);
    }

    /// The server ends the connection, or refuses the client. The connection is `Phase::Closing` already.
    pub(crate) fn send_close(&mut self, slot: u32, reason: CloseReason, after_ms: u64) {
        self.converse_until(slot, Extent::All, |adapter, cx| adapter.close(cx, reason, after_ms));
    }

    /// Ends the adapter of a connection that has ended.
    pub(crate) fn end_adapter(&mut self, slot: u32) {
        let Some(connection) = self.connection(slot) else { return };
        let Some(adapter) = connection.adapter.take() else { return };
        if let AnyAdapter::PollingRequest(request) = &*adapter {
            return self.end_polling_request(slot, request);
        }
        let mut effects = self.adapters.buffers.pop().unwrap_or_default();
        let stays = self.split(slot, &mut effects).and_then(|(_, mut cx)| adapter.end(&mut cx));
        if let Some(connection) = self.connection(slot) {
            connection.adapter = stays.map(Box::new);
        }
        self.carry_out(slot, Extent::All, effects);
    }

    fn app_of(&self, slot: u32) -> Option<AppId> {
        self.session(slot).map(|session| session.app)
    }

    /// A log-in is expected on an open connection; the adapter knows until when.
    fn await_login(&mut self, slot: u32) {
        let Some(connection) = self.connection(slot) else { return };
        connection.phase = Phase::AwaitToken;
        connection.deadline_tick = u32::MAX;
        connection.opening = None;
        connection.attachment.permit = None;
        // The next session has received nothing from the store yet, and has another token.
        connection.attachment.watermark = NotificationId::from_bytes([0; 16]);
        connection.attachment.expires_at = Timestamp(u64::MAX);
    }
}
