//! HTTP long polling: requests that stand for the stream of an Engine.IO session, and the session's move to a
//! WebSocket.
//!
//! A session that polls is a slot without a socket ([`crate::socket_io`]). Its GETs and POSTs come on other
//! connections, which the client keeps and uses again: while one of them serves a request it has an
//! [`Exchange`], between requests it has nothing. `Sid::shard` names the shard of the session: a request
//! that came to another one moves there, socket and all, and stays.
//!
//! Invariants: at most one GET of a session waits; a body is read packet by packet, and what is incomplete
//! is all that is held of it; whatever ends an exchange tells the session, and the other way round.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use noroshi_protocol::engine_io::answer::{self, Header};
use noroshi_protocol::engine_io::payload::{Decoder, Payload};
use noroshi_protocol::engine_io::session::Output;
use noroshi_protocol::engine_io::{self, Outgoing, Packet, PacketError, Request, RequestError, Session, Sid};
use noroshi_protocol::ws::{self, Input, Upgrade};
use noroshi_types::CloseReason;

use crate::admission::{Bucket, Rate};
use crate::connection::{Connection, Framing, Origin, Phase, Protocol};
use crate::mailbox::{Arrival, ArrivalKind, Moved};
use crate::route::{Credentials, EngineRequest, Mount};
use crate::shard::Shard;
use crate::socket_io::{engine_packet, websocket_frame};
use crate::talk::Talk;
use crate::transport::Transport;

/// How long a connection may rest between two requests: longer than a client is silent that polls.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// A WebSocket has to take its session over within this time, as in the JavaScript server.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);
/// A body has to be complete within this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

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
    /// The GET that waits.
    poll: Option<At>,
    /// The WebSocket that may take over.
    probe: Option<At>,
}

impl Legs {
    pub(crate) fn new(sid: Sid) -> Self {
        Self { sid, poll: None, probe: None }
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

const PREFLIGHT: &str = "HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\n\
    Access-Control-Allow-Methods: GET, POST\r\n\
    Access-Control-Allow-Headers: Authorization, Content-Type, X-Request-Id\r\n\
    Access-Control-Max-Age: 7200\r\n";

fn headers(keeps: bool) -> impl std::ops::Deref<Target = [Header<'static>]> {
    let mut headers = smallvec::SmallVec::<[Header<'static>; 3]>::from_slice(&CORS);
    headers.extend((!keeps).then_some(("Connection", "close")));
    headers
}

impl Shard {
    /// A request on a path of Engine.IO: `bytes` begin with its head.
    pub(crate) fn handle_engine_request(
        &mut self,
        slot: u32,
        request: EngineRequest,
        bytes: &mut [u8],
        head_len: usize,
    ) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.tail.is_some() {
            // The last answer is not taken yet: nobody who heard it asks so early.
            return self.begin_close(slot, CloseReason::BadMessage);
        }
        let keeps = request.keeps && connection.origin != Origin::Tunnel;
        let elsewhere = match &request.wanted {
            Ok(Request::Poll(sid) | Request::Post { sid, .. } | Request::Probe(sid)) => {
                Some(sid.shard()).filter(|shard| *shard != self.index && !request.is_preflight)
            }
            _ => None,
        };
        if let Some(shard) = elsewhere.filter(|shard| usize::from(*shard) < self.shared.mailboxes.len()) {
            return self.move_to(slot, shard, bytes);
        }
        self.set_protocol(slot, Protocol::Http, Framing::Polling);
        let rest = &mut bytes[head_len..];
        let reads_on = matches!(
            request.wanted,
            Ok(Request::Post { .. } | Request::Probe(_) | Request::Open(engine_io::Transport::WebSocket))
        );
        if (!reads_on || request.is_preflight) && keeps && !self.keep_pipelined(slot, rest) {
            return;
        }
        if request.is_preflight {
            let mut answer = PREFLIGHT.as_bytes().to_vec();
            answer.extend_from_slice(if keeps { b"\r\n" } else { b"Connection: close\r\n\r\n" });
            return self.answer_request(slot, answer, keeps);
        }
        match request.wanted {
            Err(error) => self.refuse_request(slot, error, keeps),
            Ok(Request::Open(engine_io::Transport::Polling)) => {
                self.open_polling(slot, request.mount, request.credentials, keeps);
            }
            Ok(Request::Poll(sid)) => self.begin_poll(slot, sid, keeps),
            Ok(Request::Post { sid, body_bytes }) => {
                self.begin_post(slot, sid, body_bytes, keeps);
                self.feed_rest(slot, rest);
            }
            Ok(Request::Open(engine_io::Transport::WebSocket) | Request::Probe(_)) => {
                match (request.wanted, request.upgrade) {
                    (_, Err(error)) => return self.refuse_upgrade(slot, &error),
                    (Ok(Request::Probe(sid)), Ok(upgrade)) => self.open_probe(slot, sid, &upgrade),
                    (_, Ok(upgrade)) => {
                        self.open_socket_io(slot, &upgrade, request.mount, request.credentials);
                    }
                }
                self.feed_rest(slot, rest);
            }
        }
    }

    /// Gives the socket to the shard that has the session.
    fn move_to(&mut self, slot: u32, shard: u16, bytes: &[u8]) {
        let Some(connection) = self.release(slot) else { return };
        let origin = connection.origin;
        let Some((mut stream, tls)) = connection.transport.into_parts() else { return };
        self.deregister(&mut stream);
        let moved = Moved { tls, origin, bytes: bytes.to_vec() };
        let arrival = Arrival { stream: stream.into(), kind: ArrivalKind::Moved(Box::new(moved)) };
        if self.shared.mailboxes[usize::from(shard)].arrive(arrival).is_err() {
            self.shared.metrics.count_closed(Protocol::Http, CloseReason::Overloaded);
        }
    }

    /// Keeps what came behind a request until that is answered. False, and closed, if it is too much.
    fn keep_pipelined(&mut self, slot: u32, bytes: &[u8]) -> bool {
        let head_bytes = self.shared.config.head.head_bytes;
        let Some(connection) = self.connection(slot) else { return false };
        if bytes.is_empty() {
            return true;
        }
        let head = &mut connection.opening().head;
        let fits = head.len() + bytes.len() <= head_bytes;
        if fits {
            head.extend_from_slice(bytes);
        } else {
            self.begin_close(slot, CloseReason::TooBig);
        }
        fits
    }

    /// Answers a request. The connection waits for the next one, or ends.
    fn answer_request(&mut self, slot: u32, answer: Vec<u8>, keeps: bool) {
        let deadline = self.now.tick_after(KEEP_ALIVE);
        if let Some(connection) = self.connection(slot) {
            connection.talk = None;
        }
        self.send(slot, answer.into());
        if !keeps {
            return self.begin_close(slot, CloseReason::PeerClosed);
        }
        let Some(connection) = self.connection(slot).filter(|connection| connection.is_alive()) else {
            return;
        };
        connection.phase = Phase::Head;
        connection.deadline_tick = deadline;
        match &connection.opening {
            Some(opening) if !opening.head.is_empty() => self.polled.pipelined.push(slot),
            _ => connection.opening = None,
        }
        self.arm(slot);
    }

    fn refuse_request(&mut self, slot: u32, error: RequestError, keeps: bool) {
        let mut answer = Vec::new();
        answer::push_error(&mut answer, error, &headers(keeps));
        self.answer_request(slot, answer, keeps);
    }

    /// Whether it served a request and waits for the next one, of which nothing came.
    pub(crate) fn is_idle_between_polls(&self, slot: u32) -> bool {
        self.connections.get(slot as usize).is_some_and(|connection| {
            let began = connection.opening.as_ref().is_some_and(|opening| !opening.head.is_empty());
            connection.framing == Framing::Polling && connection.phase == Phase::Head && !began
        })
    }

    fn open_polling(&mut self, slot: u32, mount: Mount, credentials: Credentials, keeps: bool) {
        let shared = self.shared.clone();
        let admitted = shared.connections() < shared.config.connections_max && self.take_opening();
        let made = admitted.then(|| self.new_socket_io(mount, credentials, true)).flatten();
        let Some((socket_io, sid)) = made else {
            shared.metrics.admission_refused.inc();
            return self.refuse(slot);
        };
        let frames = Bucket::full(shared.frame_rate(), self.now.ms32());
        let generation = shared.next_generation(self.now.wall);
        let mut connection = Connection::new(Transport::NONE, generation, frames);
        (connection.protocol, connection.framing) = (Self::protocol_of(mount), Framing::Polling);
        connection.begin_socket_io(socket_io);
        shared.metrics.connections(connection.protocol, connection.framing).inc();
        self.mailbox().connections.fetch_add(1, Ordering::Relaxed);
        // Slots are indices of a slab: far fewer than 2^32.
        let session = u32::try_from(self.connections.insert(connection)).unwrap_or(u32::MAX);
        self.polled.sessions.insert(sid, session);
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

    /// The connection serves a session from here on.
    fn begin_exchange(&mut self, slot: u32, exchange: Exchange, deadline_tick: u32) -> Option<At> {
        let connection = self.connection(slot)?;
        connection.talk = Some(Box::new(Talk::Exchange(exchange)));
        connection.phase = Phase::Open;
        connection.deadline_tick = deadline_tick;
        Some((slot, connection.generation))
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

    fn begin_post(&mut self, slot: u32, sid: Sid, body_bytes: usize, keeps: bool) {
        let session = self.session_of(&sid);
        let asked = session.and_then(|session| self.ask_engine(session, Session::handle_post));
        if let Err(error) = asked.unwrap_or(Err(RequestError::UnknownSid)) {
            return self.refuse_request(slot, error, false); // its body is not read
        }
        let kind = Kind::Post { decoder: Decoder::new(), left_bytes: body_bytes };
        let deadline = self.now.tick_after(BODY_TIMEOUT);
        self.begin_exchange(slot, Exchange { sid, keeps, kind }, deadline);
        self.arm(slot);
        if body_bytes == 0 {
            self.feed_post(slot, &[]);
        }
    }

    /// Bytes of a connection that serves a session.
    pub(crate) fn feed_exchange(&mut self, slot: u32, bytes: &[u8]) {
        match self.exchange(slot).map(|exchange| &exchange.kind) {
            Some(Kind::Poll) => {
                self.keep_pipelined(slot, bytes);
            }
            Some(Kind::Post { .. }) => self.feed_post(slot, bytes),
            Some(Kind::Probe | Kind::Moved(_)) | None => {}
        }
    }

    fn exchange(&mut self, slot: u32) -> Option<&mut Exchange> {
        match self.connection(slot)?.talk.as_deref_mut()? {
            Talk::Exchange(exchange) => Some(exchange),
            _ => None,
        }
    }

    fn feed_post(&mut self, slot: u32, bytes: &[u8]) {
        let payload_bytes_max = self.shared.config.socket_io.engine.payload_bytes_max;
        let Some(Exchange { sid, keeps, kind: Kind::Post { decoder, left_bytes } }) = self.exchange(slot)
        else {
            return;
        };
        let (sid, keeps, mut decoder) = (*sid, *keeps, std::mem::take(decoder));
        let (body, rest) = bytes.split_at(bytes.len().min(*left_bytes));
        *left_bytes -= body.len();
        let left_bytes = *left_bytes;
        let Some(session) = self.session_of(&sid) else {
            return self.refuse_request(slot, RequestError::UnknownSid, false); // it ended meanwhile
        };
        let mut on = |packet: Packet<'_>| self.handle_posted(session, packet);
        let result = match decoder.feed(body, payload_bytes_max, &mut on) {
            Ok(ControlFlow::Continue(())) if left_bytes == 0 => decoder.finish(&mut on),
            fed => fed,
        };
        if left_bytes > 0 && matches!(result, Ok(ControlFlow::Continue(()))) {
            if let Some(Exchange { kind: Kind::Post { decoder: place, .. }, .. }) = self.exchange(slot) {
                *place = decoder;
            }
            return;
        }
        self.end_post(slot, session, result.map(drop), keeps && left_bytes == 0, rest);
    }

    /// A packet of a body.
    fn handle_posted(&mut self, session: u32, packet: Packet<'_>) -> ControlFlow<()> {
        if self.is_alive(session) && self.take_frame(session) {
            self.handle_engine_packet(session, packet);
        }
        match self.is_alive(session) {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }

    fn end_post(
        &mut self,
        slot: u32,
        session: u32,
        result: Result<(), PacketError>,
        keeps: bool,
        rest: &[u8],
    ) {
        if let Some(connection) = self.connection(slot) {
            connection.talk = None;
        }
        let heard = self.ask_engine(session, |engine, _, _, out| engine.end_post(result, out));
        self.polled.ready.push(session);
        if !self.is_alive(slot) || (keeps && !self.keep_pipelined(slot, rest)) {
            return;
        }
        // It may be over by what the body said; its slot is kept until the turn's end.
        let heard = heard.unwrap_or_else(|| {
            let ended = self.connections.get(session as usize).and_then(|session| session.close_reason);
            match ended {
                Some(CloseReason::BadMessage | CloseReason::TooBig) => Err(RequestError::BadRequest),
                _ => Ok(()),
            }
        });
        match heard {
            Ok(()) => {
                let mut answer = Vec::with_capacity(256);
                answer::push_ok(&mut answer, &headers(keeps));
                self.answer_request(slot, answer, keeps);
            }
            Err(error) => self.refuse_request(slot, error, false),
        }
    }

    fn open_probe(&mut self, slot: u32, sid: Sid, upgrade: &Upgrade) {
        let Some(session) = self.session_of(&sid) else {
            return self.refuse_request(slot, RequestError::UnknownSid, false);
        };
        let accepted = self.ask_engine(session, Session::accept_probe) == Some(true);
        let mut answer = Vec::with_capacity(192);
        ws::push_upgrade_response(&mut answer, upgrade);
        self.set_protocol(slot, Protocol::Http, Framing::WebSocket);
        let deadline = self.now.tick_after(UPGRADE_TIMEOUT);
        let exchange = Exchange { sid, keeps: false, kind: Kind::Probe };
        let at = self.begin_exchange(slot, exchange, deadline);
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
        let Some(sid) = self.exchange(slot).map(|exchange| exchange.sid) else { return };
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
        if framing == Framing::WebSocket && reason.websocket_code().is_none() {
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

    fn end_probe(&mut self, session: u32) {
        let probe = self.legs(session).and_then(|legs| legs.probe.take());
        if let Some((probe, generation)) = probe
            && self.at(probe, generation).is_some()
        {
            self.begin_close(probe, CloseReason::BadMessage);
        }
    }

    /// The WebSocket that probed is the session's.
    fn take_over(&mut self, session: u32) {
        let Some((slot, generation)) = self.legs(session).and_then(|legs| legs.probe.take()) else { return };
        let Some(probe) = self.at(slot, generation) else {
            return self.doom(session, CloseReason::PeerReset);
        };
        let mut transport = std::mem::replace(&mut probe.transport, Transport::NONE);
        let tail = probe.tail.take();
        if let Some(Talk::Exchange(exchange)) = probe.talk.as_deref_mut() {
            exchange.kind = Kind::Moved(session);
        }
        let registered = transport.stream().map(|stream| self.reregister(stream, session));
        let Some(connection) = self.connection(session) else { return };
        let protocol = connection.protocol;
        connection.transport = transport;
        connection.tail = tail;
        self.set_protocol(session, protocol, Framing::WebSocket);
        if let Some(Err(error)) = registered {
            tracing::warn!(%error, "a socket could not be registered");
            return self.doom(session, CloseReason::Internal);
        }
        // What came with the last packet is read already; what came since is not.
        self.again.push(session);
        self.advance(session);
    }

    /// The slot that has what belonged to this one; where it is another, this one is over.
    pub(crate) fn settle_move(&mut self, slot: u32) -> u32 {
        let to = self.moved_to(slot);
        if to != slot {
            self.doom(slot, CloseReason::PeerClosed);
        }
        to
    }

    /// The slot that what comes on this one is for.
    pub(crate) fn moved_to(&self, slot: u32) -> u32 {
        match self.connections.get(slot as usize).and_then(|connection| connection.talk.as_deref()) {
            Some(Talk::Exchange(Exchange { kind: Kind::Moved(session), .. })) => *session,
            _ => slot,
        }
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
    pub(crate) fn part_socket_io(&mut self, session: u32, socket_io: crate::socket_io::SocketIo) {
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

    /// A connection ends while it serves a session.
    pub(crate) fn part_exchange(&mut self, slot: u32, exchange: &Exchange) {
        let Some(session) = self.session_of(&exchange.sid) else { return };
        let Some(legs) = self.legs(session) else { return };
        let is_here = |at: Option<At>| at.is_some_and(|(at, _)| at == slot);
        match exchange.kind {
            Kind::Poll if is_here(legs.poll) => {
                legs.poll = None;
                self.ask_engine(session, |engine, _, _, out| engine.handle_poll_gone(out));
            }
            Kind::Post { .. } => {
                self.ask_engine(session, |engine, _, _, out| engine.handle_post_gone(out));
            }
            Kind::Probe if is_here(legs.probe) => {
                legs.probe = None;
                self.ask_engine(session, |engine, _, _, _| engine.handle_probe_gone());
            }
            Kind::Poll | Kind::Probe | Kind::Moved(_) => {}
        }
    }

    /// The node ends, and with it a connection that is no device's own: the session that it serves is told so
    /// on it.
    pub(crate) fn drain_http(&mut self, slot: u32) {
        let sid = match self.exchange(slot) {
            Some(Exchange { sid, kind: Kind::Poll, .. }) => Some(*sid),
            _ => None,
        };
        if let Some(session) = sid.and_then(|sid| self.session_of(&sid)) {
            self.begin_close(session, CloseReason::Drain);
            return self.begin_close(slot, CloseReason::Drain);
        }
        self.doom(slot, CloseReason::Drain);
    }
}
