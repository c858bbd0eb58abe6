//! The GETs and POSTs of a session that polls, and the connections they arrive on. A client keeps those connections and
//! uses them again. While one serves a request it has a [`PollingRequest`]; between requests it has nothing. A request
//! that arrives at another shard than its session's moves there with its socket, and stays.
//!
//! Bounds: bytes behind a request are kept up to the size of a head until the request is answered. A body is read
//! packet by packet, and only an incomplete packet is held.

use std::ops::ControlFlow;
use std::time::Duration;

use noroshi_protocol::engine_io::payload::Decoder;
use noroshi_protocol::engine_io::{self, Packet, PacketError, Request, RequestError, Session, Sid, answer};
use noroshi_types::CloseReason;

use super::headers;
use crate::lifecycle::clients::Seat;
use crate::protocol::jobs::At;
use crate::protocol::polling::{Kind, PollingRequest};
use crate::protocol::registry::AnyAdapter;
use crate::session::phase::Phase;
use crate::shard::Shard;
use crate::shard::mailbox::{Arrival, ArrivalKind, Moved};
use crate::shard::route::EngineRequest;
use crate::wire::{Framing, Protocol};

/// How long a connection may be idle between two requests: longer than a client that polls is silent.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

const PREFLIGHT: &str = "HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\n\
    Access-Control-Allow-Methods: GET, POST\r\n\
    Access-Control-Allow-Headers: Authorization, Content-Type, Noroshi-App, X-Request-Id\r\n\
    Access-Control-Max-Age: 7200\r\n";

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
        if connection.socket.has_unsent() {
            // The client has not received the last answer yet, so it cannot ask again.
            return self.begin_close(slot, CloseReason::BadMessage);
        }
        let keeps = request.keeps;
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
                self.open_polling(slot, request.opener, keeps);
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
                    (_, Ok(upgrade)) => self.open_socket_io(slot, &upgrade, request.opener),
                }
                self.feed_rest(slot, rest);
            }
        }
    }

    /// Moves the socket to the shard that has the session.
    fn move_to(&mut self, slot: u32, shard: u16, bytes: &[u8]) {
        let network = self.lifecycle.seats.client(slot);
        let seat = Seat::take_anyway(&self.shared.clients, network);
        let peer = self.io.peers.get(&slot).copied();
        let Some(connection) = self.take_connection(slot) else { return };
        let origin = connection.origin;
        if let Some((mut stream, tls)) = connection.socket.into_parts() {
            // Fails only if it was not registered.
            let _ = self.io.deregister(&mut stream);
            let moved = Moved { tls, origin, bytes: bytes.to_vec(), peer };
            let arrival = Arrival { stream: stream.into(), kind: ArrivalKind::Moved(Box::new(moved)), seat };
            if self.shared.mailboxes[usize::from(shard)].arrive(arrival).is_err() {
                self.shared.metrics.count_closed(Protocol::Http, CloseReason::Overloaded);
            }
        }
        self.mailbox().left();
    }

    /// Keeps bytes behind a request until that is answered. False, and the connection closes, if they are too many.
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
    pub(super) fn answer_request(&mut self, slot: u32, answer: Vec<u8>, keeps: bool) {
        let deadline = self.now.tick_after(KEEP_ALIVE);
        if let Some(connection) = self.connection(slot) {
            connection.adapter = None;
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
            Some(opening) if !opening.head.is_empty() => self.adapters.polled.pipelined.push(slot),
            _ => connection.opening = None,
        }
        self.arm(slot);
    }

    pub(super) fn refuse_request(&mut self, slot: u32, error: RequestError, keeps: bool) {
        let mut answer = Vec::new();
        answer::push_error(&mut answer, error, &headers(keeps));
        self.answer_request(slot, answer, keeps);
    }

    /// Whether it served a request and has received nothing of the next one.
    pub(crate) fn is_idle_between_polls(&self, slot: u32) -> bool {
        self.connections.get(slot as usize).is_some_and(|connection| {
            let began = connection.opening.as_ref().is_some_and(|opening| !opening.head.is_empty());
            connection.framing == Framing::Polling && connection.phase == Phase::Head && !began
        })
    }

    /// From here on the connection serves a session.
    pub(super) fn begin_polling_request(
        &mut self,
        slot: u32,
        request: PollingRequest,
        deadline_tick: u32,
    ) -> Option<At> {
        // A client of a session that showed a credential has shown it.
        let session = self.session_of(&request.sid);
        if session.is_some_and(|session| {
            self.is_alive(session) && !self.lifecycle.unauthenticated.contains(session)
        }) {
            self.end_unauthenticated(slot);
        }
        let connection = self.connection(slot)?;
        connection.adapter = Some(Box::new(AnyAdapter::PollingRequest(request)));
        connection.phase = Phase::Open;
        connection.deadline_tick = deadline_tick;
        Some((slot, connection.generation))
    }

    pub(in crate::shard::adapters) fn polling_request(&mut self, slot: u32) -> Option<&mut PollingRequest> {
        match self.connection(slot)?.adapter.as_deref_mut()? {
            AnyAdapter::PollingRequest(request) => Some(request),
            _ => None,
        }
    }

    fn begin_post(&mut self, slot: u32, sid: Sid, body_bytes: usize, keeps: bool) {
        let session = self.session_of(&sid);
        let asked = session.and_then(|session| self.ask_engine(session, Session::handle_post));
        if let Err(error) = asked.unwrap_or(Err(RequestError::UnknownSid)) {
            return self.refuse_request(slot, error, false); // the body is not read
        }
        let kind = Kind::Post { decoder: Decoder::new(), left_bytes: body_bytes, begun: false };
        let deadline = self.now.tick_after(self.shared.config.body_first_byte_timeout);
        self.begin_polling_request(slot, PollingRequest { sid, keeps, kind }, deadline);
        self.arm(slot);
        if body_bytes == 0 {
            self.feed_post(slot, &[]);
        }
    }

    /// The first bytes of a body extend the deadline to that of the whole body.
    fn note_begun(&mut self, slot: u32, bytes: &[u8]) {
        let config = &self.shared.config;
        let rest = config.body_timeout.saturating_sub(config.body_first_byte_timeout);
        let deadline = self.now.tick_after(rest);
        let Some(PollingRequest { kind: Kind::Post { begun, .. }, .. }) = self.polling_request(slot) else {
            return;
        };
        if !bytes.is_empty()
            && !std::mem::replace(begun, true)
            && let Some(connection) = self.connection(slot)
        {
            connection.deadline_tick = connection.deadline_tick.max(deadline);
        }
    }

    /// Whether the rest of a body is overdue.
    pub(crate) fn is_late_post(&self, slot: u32) -> bool {
        self.connections.get(slot as usize).is_some_and(|connection| {
            let adapter = connection.adapter.as_deref();
            connection.deadline_tick <= self.now.tick
                && matches!(
                    adapter,
                    Some(AnyAdapter::PollingRequest(PollingRequest { kind: Kind::Post { .. }, .. }))
                )
        })
    }

    pub(crate) fn time_out_post(&mut self, slot: u32) {
        self.shared.metrics.body_timeouts.inc();
        let detail = "the body did not arrive in time";
        self.answer_problem(slot, 408, "request_timeout", detail, &[], CloseReason::BadMessage);
    }

    /// Bytes of a connection that serves a session.
    pub(in crate::shard::adapters) fn feed_polling_request(&mut self, slot: u32, bytes: &[u8]) {
        match self.polling_request(slot).map(|request| &request.kind) {
            Some(Kind::Poll) => {
                self.keep_pipelined(slot, bytes);
            }
            Some(Kind::Post { .. }) => self.feed_post(slot, bytes),
            Some(Kind::Probe | Kind::Moved(_)) | None => {}
        }
    }

    fn feed_post(&mut self, slot: u32, bytes: &[u8]) {
        let payload_bytes_max = self.shared.config.socket_io.engine.payload_bytes_max;
        self.note_begun(slot, bytes);
        let Some(PollingRequest { sid, keeps, kind: Kind::Post { decoder, left_bytes, .. } }) =
            self.polling_request(slot)
        else {
            return;
        };
        let (sid, keeps, mut decoder) = (*sid, *keeps, std::mem::take(decoder));
        let (body, rest) = bytes.split_at(bytes.len().min(*left_bytes));
        *left_bytes -= body.len();
        let left_bytes = *left_bytes;
        let Some(session) = self.session_of(&sid) else {
            return self.refuse_request(slot, RequestError::UnknownSid, false); // the session ended meanwhile
        };
        let mut on = |packet: Packet<'_>| self.handle_posted(session, packet);
        let result = match decoder.feed(body, payload_bytes_max, &mut on) {
            Ok(ControlFlow::Continue(())) if left_bytes == 0 => decoder.finish(&mut on),
            fed => fed,
        };
        if left_bytes > 0 && matches!(result, Ok(ControlFlow::Continue(()))) {
            if let Some(PollingRequest { kind: Kind::Post { decoder: place, .. }, .. }) =
                self.polling_request(slot)
            {
                *place = decoder;
            }
            return;
        }
        self.end_post(slot, session, result.map(drop), keeps && left_bytes == 0, rest);
    }

    /// A packet of a body.
    fn handle_posted(&mut self, session: u32, packet: Packet<'_>) -> ControlFlow<()> {
        if self.is_alive(session) && self.take_frame(session) {
            self.with_socket_io(session, |socket_io, cx| socket_io.handle_packet(cx, packet));
            self.arm(session);
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
            connection.adapter = None;
        }
        let heard = self.ask_engine(session, |engine, _, _, out| engine.end_post(result, out));
        self.adapters.polled.ready.push(session);
        if !self.is_alive(slot) || (keeps && !self.keep_pipelined(slot, rest)) {
            return;
        }
        // The body may have ended the session; its slot stays until the end of the turn.
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

    /// The node ends, and with it a connection that belongs to no device: the session that it serves is closed over it.
    pub(crate) fn drain_http(&mut self, slot: u32) {
        let sid = match self.polling_request(slot) {
            Some(PollingRequest { sid, kind: Kind::Poll, .. }) => Some(*sid),
            _ => None,
        };
        if let Some(session) = sid.and_then(|sid| self.session_of(&sid)) {
            self.begin_close(session, CloseReason::Drain);
            return self.begin_close(slot, CloseReason::Drain);
        }
        self.abort(slot, CloseReason::Drain);
    }

    /// A connection ends while it serves a session.
    pub(crate) fn end_polling_request(&mut self, slot: u32, request: &PollingRequest) {
        let Some(session) = self.session_of(&request.sid) else { return };
        let Some(legs) = self.legs(session) else { return };
        let is_here = |at: Option<At>| at.is_some_and(|(at, _)| at == slot);
        match request.kind {
            Kind::Poll if is_here(legs.poll) => {
                legs.poll = None;
                self.ask_engine(session, |engine, _, _, out| engine.handle_poll_disconnect(out));
            }
            Kind::Post { .. } => {
                self.ask_engine(session, |engine, _, _, out| engine.handle_post_disconnect(out));
            }
            Kind::Probe if is_here(legs.probe) => {
                legs.probe = None;
                self.ask_engine(session, |engine, _, _, _| engine.handle_probe_disconnect());
            }
            Kind::Poll | Kind::Probe | Kind::Moved(_) => {}
        }
    }
}
