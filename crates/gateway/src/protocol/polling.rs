//! HTTP long polling: requests that stand for the stream of an Engine.IO session, and the session's move to a
//! WebSocket.
//!
//! A session that polls is a slot without a socket ([`crate::protocol::socket_io`]). Its GETs and POSTs come on other
//! connections ([`request`]), one of which may become its WebSocket ([`upgrade`]); `Sid::shard` names its shard.
//!
//! Invariants: at most one GET of a session waits; whatever ends an exchange tells the session, and the other
//! way round.

mod request;
mod upgrade;

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use noroshi_auth::ClientNetwork;
use noroshi_protocol::engine_io::answer::{self, Header};
use noroshi_protocol::engine_io::payload::{Decoder, Payload};
use noroshi_protocol::engine_io::session::Output;
use noroshi_protocol::engine_io::{self, Outgoing, RequestError, Session, Sid};
use noroshi_protocol::ws;
use noroshi_types::CloseReason;

use crate::io::socket::Socket;
use crate::lifecycle::phase::Phase;
use crate::protocol::conversation::Talk;
use crate::protocol::socket_io::websocket_frame;
use crate::rate::{Bucket, Rate};
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::route::Opener;
use crate::wire::{Framing, Protocol};

/// Sessions of a shard that poll, or did.
#[derive(Default)]
pub(crate) struct Polled {
    sessions: HashMap<Sid, u32>,
    /// Sessions that may have something for the poll that waits: answered at the turn's end, with all of it.
    ready: Vec<u32>,
    /// Connections that have received their next request already.
    pipelined: Vec<u32>,
    /// Bounds new sessions, since they need no new connection.
    openings: Option<Bucket>,
}

impl Polled {
    pub(crate) fn push(&mut self, slot: u32) {
        self.ready.push(slot);
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.pipelined.is_empty()
    }
}

/// A connection and its generation.
type At = (u32, u64);

/// What a session that began with polling is reached by.
pub(crate) struct Legs {
    sid: Sid,
    /// Who opened the session: its requests come on connections of their own.
    opener: Option<ClientNetwork>,
    /// The GET that waits.
    poll: Option<At>,
    /// The WebSocket that may take over.
    probe: Option<At>,
}

impl Legs {
    pub(crate) fn new(sid: Sid, opener: Option<ClientNetwork>) -> Self {
        Self { sid, opener, poll: None, probe: None }
    }
}

/// What a connection does for a session that is not its own.
pub(crate) struct Exchange {
    sid: Sid,
    keeps: bool,
    kind: Kind,
}

enum Kind {
    Poll,
    Post {
        decoder: Decoder,
        left_bytes: usize,
        /// Some of it is there.
        begun: bool,
    },
    Probe,
    /// Its socket is this slot's now; the rest of what was read with the last packet is too.
    Moved(u32),
}

/// As the consumer API has them (`api::origin`).
const CORS: [Header<'_>; 2] = [
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate, X-Request-Id"),
];

fn headers(keeps: bool) -> impl std::ops::Deref<Target = [Header<'static>]> {
    let mut headers = smallvec::SmallVec::<[Header<'static>; 3]>::from_slice(&CORS);
    headers.extend((!keeps).then_some(("Connection", "close")));
    headers
}

impl Shard {
    fn open_polling(&mut self, slot: u32, opener: Opener, keeps: bool) {
        let (shared, mount, network) = (self.shared.clone(), opener.mount, self.client(slot));
        let admitted = shared.descriptors() < shared.config.connections_max && self.take_opening();
        let made = admitted.then(|| self.new_socket_io(opener, true)).flatten();
        let Some((mut socket_io, sid)) = made else {
            shared.metrics.admission_refused.inc();
            return self.refuse(slot);
        };
        socket_io.legs = Some(Box::new(Legs::new(sid, network)));
        let frames = Bucket::full(shared.frame_rate(), self.now.ms32());
        let generation = shared.next_generation(self.now.wall);
        let mut connection = Connection::new(Socket::NONE, generation, frames);
        (connection.protocol, connection.framing) = (Self::protocol_of(mount), Framing::Polling);
        connection.begin_socket_io(socket_io);
        shared.metrics.connections(connection.protocol, connection.framing).inc();
        self.mailbox().connections.fetch_add(1, Ordering::Relaxed);
        // Slots are indices of a slab: far fewer than 2^32.
        let session = u32::try_from(self.connections.insert(connection)).unwrap_or(u32::MAX);
        self.polled.sessions.insert(sid, session);
        self.begin_stranger(session);
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
        let rate = Rate { per_second, burst: (per_second / 10).max(32) };
        self.polled.openings.get_or_insert_with(|| Bucket::full(rate, now_ms)).take(rate, now_ms)
    }

    /// Lets the session's engine take one input, and does what follows.
    fn ask_engine<R>(
        &mut self,
        session: u32,
        input: impl FnOnce(&mut Session, u64, &engine_io::Config, &mut Vec<Output>) -> R,
    ) -> Option<R> {
        let (shared, now_ms) = (self.shared.clone(), self.now.ms);
        let mut outputs = Vec::new();
        let engine = &mut self.socket_io(session)?.engine;
        let result = input(engine, now_ms, &shared.config.socket_io.engine, &mut outputs);
        self.carry_out(session, outputs);
        self.await_socket_io(session);
        Some(result)
    }

    fn session_of(&self, sid: &Sid) -> Option<u32> {
        self.polled.sessions.get(sid).copied()
    }

    fn legs(&mut self, session: u32) -> Option<&mut Legs> {
        self.socket_io(session)?.legs.as_deref_mut()
    }

    /// Who opened a session that began with polling.
    pub(crate) fn opener(&mut self, session: u32) -> Option<ClientNetwork> {
        self.legs(session)?.opener
    }

    fn begin_poll(&mut self, slot: u32, sid: Sid, keeps: bool) {
        let Some(session) = self.session_of(&sid) else {
            return self.refuse_request(slot, RequestError::UnknownSid, keeps);
        };
        let (shared, now_ms) = (self.shared.clone(), self.now.ms);
        let mut outputs = Vec::new();
        let Some(socket_io) = self.socket_io(session) else { return };
        let result = socket_io.engine.handle_poll(now_ms, &shared.config.socket_io.engine, &mut outputs);
        if result.is_ok() {
            let at = self.begin_exchange(slot, Exchange { sid, keeps, kind: Kind::Poll }, u32::MAX);
            if let Some(legs) = self.legs(session) {
                legs.poll = at;
            }
        }
        self.carry_out(session, outputs);
        self.await_socket_io(session);
        if let Err(error) = result {
            self.refuse_request(slot, error, keeps);
        }
    }

    /// Does what an engine asks for.
    pub(crate) fn carry_out(&mut self, session: u32, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Answer(payload) => self.answer_poll(session, &payload),
                Output::Frame(packet) => self.send(session, websocket_frame(&packet)),
                Output::Probe(packet) => {
                    let probe = self.legs(session).and_then(|legs| legs.probe);
                    if let Some((probe, generation)) = probe
                        && self.at(probe, generation).is_some()
                    {
                        self.send(probe, websocket_frame(&packet));
                    }
                }
                Output::Upgraded => self.take_over(session),
                Output::EndProbe => self.end_probe(session),
                Output::Ended(reason) => self.end_session(session, reason),
            }
        }
        self.let_go(session);
    }

    fn end_session(&mut self, session: u32, reason: CloseReason) {
        let connection = self.connections.get(session as usize).filter(|connection| connection.is_alive());
        let Some(framing) = connection.map(|connection| connection.framing) else { return };
        // The client said good-bye in a packet; its WebSocket still has to be closed (RFC 6455 §7.1.1).
        if framing.is_websocket() && reason.websocket_code().is_none() {
            let mut frame = Vec::new();
            ws::push_close(&mut frame, 1_000, "");
            self.send(session, frame.into());
        }
        self.begin_close(session, reason);
    }

    /// A session without a socket is over when the last poll has its last word, or none can be said.
    fn let_go(&mut self, session: u32) {
        let Some(connection) = self.connections.get(session as usize) else { return };
        let is_said = match connection.talk.as_deref() {
            Some(Talk::SocketIo(socket_io)) => socket_io.engine.is_gone(),
            _ => true,
        };
        let polls = connection.framing == Framing::Polling && connection.protocol != Protocol::Http;
        if polls && connection.phase == Phase::Closing && is_said {
            self.doom(session, CloseReason::PeerClosed);
        }
    }

    fn answer_poll(&mut self, session: u32, payload: &Payload) {
        let Some((slot, generation)) = self.legs(session).and_then(|legs| legs.poll.take()) else { return };
        if self.at(slot, generation).is_some()
            && let Some(keeps) = self.exchange(slot).map(|exchange| exchange.keeps)
        {
            let mut answer = Vec::with_capacity(256 + payload.body_bytes());
            answer::push_payload(&mut answer, payload, &headers(keeps));
            self.answer_request(slot, answer, keeps);
        }
        // There may be more, which waited for this.
        self.advance(session);
    }

    /// Answers polls with what came for their sessions in this turn, and reads on where a request waits.
    pub(crate) fn answer_polls(&mut self) {
        for session in std::mem::take(&mut self.polled.ready) {
            self.guard(Some(session), |shard| {
                shard.ask_engine(session, |engine, _, _, out| engine.flush(out));
            });
        }
        for slot in std::mem::take(&mut self.polled.pipelined) {
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

    /// A session leaves everything. One that has last words for polls stays until they are said, or its slot's
    /// deadline.
    pub(crate) fn part_socket_io(&mut self, session: u32, socket_io: crate::protocol::socket_io::SocketIo) {
        let Some(connection) = self.connection(session) else { return };
        if connection.phase == Phase::Closing
            && connection.framing == Framing::Polling
            && !socket_io.engine.is_gone()
        {
            connection.talk = Some(Box::new(Talk::SocketIo(socket_io)));
            return;
        }
        let Some(legs) = socket_io.legs else { return };
        self.polled.sessions.remove(&legs.sid);
        if let Some((slot, generation)) = legs.poll
            && self.at(slot, generation).is_some()
        {
            let mut answer = Vec::new();
            answer::push_payload(&mut answer, &Payload::of(Outgoing::CLOSE), &headers(false));
            self.answer_request(slot, answer, false);
        }
        if let Some((slot, generation)) = legs.probe
            && self.at(slot, generation).is_some()
        {
            self.begin_close(slot, CloseReason::BadMessage);
        }
    }
}
