//! Engine.IO sessions that poll: GETs and POSTs of other connections carry their packets, until the session upgrades to
//! a WebSocket.
//!
//! The GETs and POSTs arrive on connections of their own ([`request`]). A WebSocket on a separate connection probes the
//! session, and takes it over when the client requests this: its socket becomes the session's. `Sid::shard` names the
//! session's shard. The state is in [`crate::protocol::polling`].

use std::sync::atomic::Ordering;
use std::time::Duration;

use noroshi_auth::ClientNetwork;
use noroshi_protocol::engine_io::answer::{self, Header};
use noroshi_protocol::engine_io::payload::Payload;
use noroshi_protocol::engine_io::session::Output;
use noroshi_protocol::engine_io::{self, Outgoing, RequestError, Session, Sid};
use noroshi_protocol::ws::{self, Input, Opcode, Upgrade};
use noroshi_types::CloseReason;

use crate::io::socket::Socket;
use crate::protocol::context::Context;
use crate::protocol::jobs::At;
use crate::protocol::polling::{Kind, Legs, PollingRequest};
use crate::protocol::registry::AnyAdapter;
use crate::protocol::socket_io::{Opener, SocketIo, engine_packet, websocket_frame};
use crate::rate::{Bucket, Rate};
use crate::session::phase::Phase;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::wire::{Framing, Protocol};

mod request;

/// As in the consumer API (`api::origin`), without headers that these responses do not have.
const CORS: [Header<'_>; 2] = [
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate, X-Request-Id"),
];

fn headers(keeps: bool) -> impl std::ops::Deref<Target = [Header<'static>]> {
    let mut headers = smallvec::SmallVec::<[Header<'static>; 3]>::from_slice(&CORS);
    headers.extend((!keeps).then_some(("Connection", "close")));
    headers
}

/// Time for a WebSocket to take its session over; the same as in the JavaScript server.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

impl Shard {
    /// A new session. `None` if the system has no randomness.
    fn new_socket_io(&mut self, opener: Opener, polls: bool) -> Option<(SocketIo, Sid)> {
        SocketIo::new(opener, polls, self.index, self.now.ms, &self.shared.services, &mut self.jitter)
    }

    /// A session that begins on a WebSocket.
    fn open_socket_io(&mut self, slot: u32, upgrade: &Upgrade, opener: Opener) {
        let (shared, mount) = (self.shared.clone(), opener.mount);
        let Some((socket_io, sid)) = self.new_socket_io(opener, false) else {
            return self.refuse(slot);
        };
        let (mut answer, mut open) = (Vec::with_capacity(320), Vec::with_capacity(128));
        ws::push_upgrade_response(&mut answer, upgrade);
        engine_io::push_open(&mut open, &sid, false, &shared.config.socket_io.engine);
        ws::push_frame(&mut answer, Opcode::Text, &open);
        self.set_protocol(slot, SocketIo::protocol_of(mount), Framing::agreed(upgrade));
        let Some(connection) = self.connection(slot) else { return };
        begin_socket_io(connection, socket_io);
        connection.opening = None;
        self.send(slot, answer.into());
        self.await_socket_io(slot);
    }

    fn socket_io(&mut self, slot: u32) -> Option<&mut SocketIo> {
        match self.connection(slot)?.adapter.as_deref_mut()? {
            AnyAdapter::SocketIo(socket_io) => Some(socket_io),
            _ => None,
        }
    }

    pub(super) fn with_socket_io<R>(
        &mut self,
        slot: u32,
        call: impl FnOnce(&mut SocketIo, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.converse(slot, |adapter, cx| match adapter {
            AnyAdapter::SocketIo(socket_io) => Some(call(socket_io, cx)),
            _ => None,
        })?
    }

    /// Asks for a call when the session or its adapter needs one.
    fn await_socket_io(&mut self, slot: u32) {
        self.with_socket_io(slot, SocketIo::set_timeout);
        self.arm(slot);
    }

    fn open_polling(&mut self, slot: u32, opener: Opener, keeps: bool) {
        let (shared, mount, network) = (self.shared.clone(), opener.mount, self.client(slot));
        let admitted = shared.descriptors() < shared.config.connections_max && self.take_opening();
        let made = admitted.then(|| self.new_socket_io(opener, true)).flatten();
        let Some((mut socket_io, sid)) = made else {
            shared.metrics.admission_refused.inc();
            return self.refuse(slot);
        };
        socket_io.legs = Some(Box::new(Legs::new(sid, network)));
        let frames = Bucket::full(shared.services.frame_rate(), self.now.ms32());
        let generation = shared.services.generations.next(self.now.wall);
        let mut connection = Connection::new(Socket::NONE, generation, frames);
        (connection.protocol, connection.framing) = (SocketIo::protocol_of(mount), Framing::Polling);
        begin_socket_io(&mut connection, socket_io);
        shared.metrics.connections(connection.protocol, connection.framing).inc();
        self.mailbox().connections.fetch_add(1, Ordering::Relaxed);
        // Slots are indices of a slab: far fewer than 2^32.
        let session = u32::try_from(self.connections.insert(connection)).unwrap_or(u32::MAX);
        self.adapters.polled.by_sid.insert(sid, session);
        self.admit_unauthenticated(session);
        self.await_socket_io(session);
        let (mut open, mut answer) = (Vec::with_capacity(128), Vec::with_capacity(512));
        engine_io::push_open(&mut open, &sid, true, &shared.config.socket_io.engine);
        answer::push_text(&mut answer, &open, &headers(keeps));
        self.answer_request(slot, answer, keeps);
    }

    /// The shard's share of the rate of connects.
    fn take_opening(&mut self) -> bool {
        let (config, now_ms) = (&self.shared.config, self.now.ms32());
        let shards = u32::try_from(self.shared.mailboxes.len()).unwrap_or(u32::MAX);
        let per_second = config.connects_per_second.div_ceil(shards.max(1));
        let rate = Rate::of_connects(per_second);
        self.adapters.polled.openings.get_or_insert_with(|| Bucket::full(rate, now_ms)).take(rate, now_ms)
    }

    /// Passes one input to the session's engine and carries out the effects.
    fn ask_engine<R>(
        &mut self,
        session: u32,
        input: impl FnOnce(&mut Session, u64, &engine_io::Config, &mut Vec<Output>) -> R,
    ) -> Option<R> {
        let result = self.with_socket_io(session, |socket_io, cx| socket_io.handle_engine(cx, input));
        self.arm(session);
        result
    }

    fn session_of(&self, sid: &Sid) -> Option<u32> {
        self.adapters.polled.by_sid.get(sid).copied()
    }

    fn legs(&mut self, session: u32) -> Option<&mut Legs> {
        self.socket_io(session)?.legs.as_deref_mut()
    }

    /// The client that opened a session which began with polling.
    pub(crate) fn opener(&mut self, session: u32) -> Option<ClientNetwork> {
        self.legs(session)?.opener
    }

    fn begin_poll(&mut self, slot: u32, sid: Sid, keeps: bool) {
        let Some(session) = self.session_of(&sid) else {
            return self.refuse_request(slot, RequestError::UnknownSid, keeps);
        };
        // The connection waits already when the effects of the engine are carried out.
        let waits = PollingRequest { sid, keeps, kind: Kind::Poll };
        let at = self.begin_polling_request(slot, waits, u32::MAX);
        let result = self.with_socket_io(session, |socket_io, cx| {
            let result = socket_io.handle_engine(cx, Session::handle_poll);
            if let Some(legs) = socket_io.legs.as_deref_mut().filter(|_| result.is_ok()) {
                legs.poll = at;
            }
            result
        });
        self.arm(session);
        if let Err(error) = result.unwrap_or(Err(RequestError::UnknownSid)) {
            self.refuse_request(slot, error, keeps);
        }
    }

    pub(super) fn carry_out_engine(&mut self, session: u32, output: Output) {
        match output {
            Output::Answer(payload) => self.answer_poll(session, &payload),
            Output::Frame(packet) => self.send(session, websocket_frame(&packet)),
            Output::Probe(packet) => {
                let probe = self.legs(session).and_then(|legs| legs.probe);
                if let Some(probe) = self.present(probe) {
                    self.send(probe, websocket_frame(&packet));
                }
            }
            Output::Upgraded => self.take_over(session),
            Output::EndProbe => {
                let probe = self.legs(session).and_then(|legs| legs.probe.take());
                self.end_probe(probe);
            }
            Output::Ended(reason) => self.end_session(session, reason),
        }
    }

    fn end_session(&mut self, session: u32, reason: CloseReason) {
        let connection = self.connections.get(session as usize).filter(|connection| connection.is_alive());
        let Some(framing) = connection.map(|connection| connection.framing) else { return };
        // The client closed the session in a packet; its WebSocket still needs a close frame (RFC 6455 §7.1.1).
        if framing.is_websocket() && reason.websocket_code().is_none() {
            let mut frame = Vec::new();
            ws::push_close(&mut frame, 1_000, "");
            self.send(session, frame.into());
        }
        self.begin_close(session, reason);
    }

    /// Ends a session without a socket once the last poll has its close packet, or no poll can receive one.
    pub(super) fn let_go(&mut self, session: u32) {
        let Some(connection) = self.connections.get(session as usize) else { return };
        let is_said = match connection.adapter.as_deref() {
            Some(AnyAdapter::SocketIo(socket_io)) => socket_io.engine.is_gone(),
            _ => true,
        };
        let polls = connection.framing == Framing::Polling && connection.protocol != Protocol::Http;
        if polls && connection.phase == Phase::Closing && is_said {
            self.abort(session, CloseReason::PeerClosed);
        }
    }

    fn answer_poll(&mut self, session: u32, payload: &Payload) {
        let Some(poll) = self.legs(session).and_then(|legs| legs.poll.take()) else { return };
        if let Some(slot) = self.present(Some(poll))
            && let Some(keeps) = self.polling_request(slot).map(|request| request.keeps)
        {
            let mut answer = Vec::with_capacity(256 + payload.body_bytes());
            answer::push_payload(&mut answer, payload, &headers(keeps));
            self.answer_request(slot, answer, keeps);
        }
        // Further messages may have waited for this.
        self.advance(session);
    }

    /// Answers polls with what their sessions received in this turn, and continues with requests that wait.
    pub(crate) fn answer_polls(&mut self) {
        for session in std::mem::take(&mut self.adapters.polled.ready) {
            self.guard(Some(session), |shard| {
                shard.ask_engine(session, |engine, _, _, out| engine.flush(out));
            });
        }
        for slot in std::mem::take(&mut self.adapters.polled.pipelined) {
            self.guard(Some(slot), |shard| {
                let Some(connection) = shard.connection(slot) else { return };
                let is_next = connection.phase == Phase::Head && connection.framing == Framing::Polling;
                if let Some(opening) = connection.opening.as_mut().filter(|_| is_next) {
                    let mut bytes = std::mem::take(&mut opening.head);
                    shard.handle_bytes(slot, &mut bytes);
                }
            });
        }
    }

    /// A session has ended: its poll receives CLOSE, and its probe is closed.
    pub(super) fn end_legs(&mut self, legs: Legs) {
        self.adapters.polled.by_sid.remove(&legs.sid);
        if let Some(slot) = self.present(legs.poll) {
            let mut answer = Vec::new();
            answer::push_payload(&mut answer, &Payload::of(Outgoing::CLOSE), &headers(false));
            self.answer_request(slot, answer, false);
        }
        self.end_probe(legs.probe);
    }

    fn end_probe(&mut self, probe: Option<At>) {
        if let Some(slot) = self.present(probe) {
            self.begin_close(slot, CloseReason::BadMessage);
        }
    }

    /// The slot of a connection that still exists.
    fn present(&mut self, at: Option<At>) -> Option<u32> {
        at.filter(|(slot, generation)| self.at(*slot, *generation).is_some()).map(|(slot, _)| slot)
    }

    // -- the upgrade to a WebSocket ----------------------------------------------------------------

    fn open_probe(&mut self, slot: u32, sid: Sid, upgrade: &Upgrade) {
        let Some(session) = self.session_of(&sid) else {
            return self.refuse_request(slot, RequestError::UnknownSid, false);
        };
        let accepted = self.ask_engine(session, Session::accept_probe) == Some(true);
        let mut answer = Vec::with_capacity(192);
        ws::push_upgrade_response(&mut answer, upgrade);
        self.set_protocol(slot, Protocol::Http, Framing::agreed(upgrade));
        let deadline = self.now.tick_after(UPGRADE_TIMEOUT);
        let request = PollingRequest { sid, keeps: false, kind: Kind::Probe };
        let at = self.begin_polling_request(slot, request, deadline);
        if let Some(connection) = self.connection(slot) {
            connection.phase = Phase::AwaitToken;
            connection.opening = None;
        }
        if accepted && let Some(legs) = self.legs(session) {
            legs.probe = at;
        }
        self.send(slot, answer.into());
        match accepted {
            true => self.arm(slot),
            false => self.begin_close(slot, CloseReason::BadMessage),
        }
    }

    /// A message of a WebSocket that probes.
    pub(crate) fn feed_probe(&mut self, slot: u32, input: Input<'_>) {
        let Some(sid) = self.polling_request(slot).map(|request| request.sid) else { return };
        let (session, packet) = (self.session_of(&sid), engine_packet(input));
        match (session, packet) {
            (Some(session), Some(Ok(packet))) => {
                self.ask_engine(session, |engine, now_ms, config, out| {
                    engine.handle_probe_packet(packet, now_ms, config, out);
                });
            }
            (_, None) => {}
            (None, _) | (_, Some(Err(_))) => self.begin_close(slot, CloseReason::BadMessage),
        }
    }

    /// The WebSocket that probed becomes the session's.
    fn take_over(&mut self, session: u32) {
        let Some((slot, generation)) = self.legs(session).and_then(|legs| legs.probe.take()) else { return };
        let Some(probe) = self.at(slot, generation) else {
            return self.abort(session, CloseReason::PeerReset);
        };
        let mut socket = std::mem::replace(&mut probe.socket, Socket::NONE);
        let framing = probe.framing;
        if let Some(AnyAdapter::PollingRequest(request)) = probe.adapter.as_deref_mut() {
            request.kind = Kind::Moved(session);
        }
        self.lifecycle.seats.move_to(slot, session, &self.shared.clients);
        let registered = socket.stream().map(|stream| self.io.reregister(stream, session));
        let Some(connection) = self.connection(session) else { return };
        let protocol = connection.protocol;
        connection.socket = socket;
        self.set_protocol(session, protocol, framing);
        if let Some(Err(error)) = registered {
            tracing::warn!(%error, "cannot register a socket");
            return self.abort(session, CloseReason::Internal);
        }
        // Bytes behind the last packet are read already; later ones are not.
        self.io.read_later(session);
        self.advance(session);
    }

    /// The slot that has this one's socket. If it is another, this one ends.
    pub(crate) fn settle_move(&mut self, slot: u32) -> u32 {
        let to = self.moved_to(slot);
        if to != slot {
            self.abort(slot, CloseReason::PeerClosed);
        }
        to
    }

    /// The slot for which input of this one is.
    pub(crate) fn moved_to(&self, slot: u32) -> u32 {
        match self.connections.get(slot as usize).and_then(|connection| connection.adapter.as_deref()) {
            Some(AnyAdapter::PollingRequest(PollingRequest { kind: Kind::Moved(session), .. })) => *session,
            _ => slot,
        }
    }
}

/// From here on the connection has a session of Engine.IO and waits for CONNECT.
fn begin_socket_io(connection: &mut Connection, socket_io: SocketIo) {
    connection.phase = Phase::AwaitToken;
    connection.deadline_tick = u32::MAX;
    connection.adapter = Some(Box::new(AnyAdapter::SocketIo(socket_io)));
}
