//! WebSockets: upgrades, control frames, and messages for the adapter. Event streams: the request, the start, and
//! refusals in HTTP.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use noroshi_protocol::sse;
use noroshi_protocol::ws::{self, Input, Opcode, Upgrade};
use noroshi_types::{CloseReason, limits};

use crate::protocol::effect::Refusal;
use crate::protocol::native;
use crate::protocol::registry::AnyAdapter;
use crate::protocol::sse::{Events, Stream};
use crate::session::phase::Phase;
use crate::session::verification::Credentials;
use crate::shard::Shard;
use crate::wire::gzip::Packed;
use crate::wire::{Framing, Protocol};

/// How long a peer may leave data unacknowledged before TCP gives it up: an event stream receives nothing from it.
const USER_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for all event streams under gzip.
static PACKED_KEEP_ALIVE: OnceLock<Packed> = OnceLock::new();
/// Frames of a client that does not wait for the outcome of its log-in, of [`limits::EARLY_BYTES`] together.
const EARLY_FRAMES_MAX: usize = 64;

impl Shard {
    /// Starts a protocol on a connection.
    pub(crate) fn open_protocol(&mut self, slot: u32, protocol: Protocol, framing: Framing) {
        self.set_protocol(slot, protocol, framing);
        let (shared, now) = (self.shared.clone(), self.now);
        let Some(connection) = self.connection(slot) else { return };
        let (config, is_tls) = (&*shared.config, connection.socket.is_tls());
        let adapter = AnyAdapter::open(protocol, framing, is_tls, config, now.tick);
        connection.adapter = adapter.map(Box::new);
        connection.phase = Phase::AwaitToken;
        connection.deadline_tick = now.tick_after(config.auth_timeout);
        self.converse(slot, |adapter, cx| adapter.handle_open(cx));
    }

    /// A request for the WebSocket of a protocol. The credentials of a native one log in at once.
    pub(crate) fn open_websocket(
        &mut self,
        slot: u32,
        protocol: Protocol,
        upgrade: &Upgrade,
        credentials: Credentials,
    ) {
        let mut answer = Vec::with_capacity(192);
        ws::push_upgrade_response(&mut answer, upgrade);
        if protocol == Protocol::Echo {
            self.set_protocol(slot, protocol, Framing::agreed(upgrade));
            let Some(connection) = self.connection(slot) else { return };
            connection.phase = Phase::Open;
            connection.deadline_tick = u32::MAX;
            connection.opening = None;
            return self.send(slot, answer.into());
        }
        if let (Some(app), Some(connection)) = (credentials.app, self.connection(slot)) {
            connection.opening().app = Some(app.into());
        }
        self.open_protocol(slot, protocol, Framing::agreed(upgrade));
        let token = credentials.token.filter(|_| protocol == Protocol::Native);
        if token.is_some() {
            // The answer leaves with `ready` some milliseconds later: one write instead of two.
            self.cork(slot);
        }
        self.send(slot, answer.into());
        if let Some(token) = token {
            // A browser cannot read an HTTP status of a failed upgrade: frames report a wrong token.
            self.identify(slot, Some(&token), None, Box::new(native::Request::LogIn(())));
        }
        // It may be due before the head would have been.
        self.arm(slot);
    }

    /// A whole message, a part of one, or a control frame.
    pub(crate) fn handle_input(&mut self, slot: u32, input: Input<'_>) {
        let slot = self.moved_to(slot);
        if let Input::Close { code, .. } = input {
            return self.handle_close_frame(slot, code);
        }
        let Some(connection) = self.connections.get(slot as usize) else { return };
        // A closing connection handles only late acknowledgements.
        let leaves = !connection.is_alive();
        if leaves && (connection.attachment.leaving.is_none() || !matches!(input, Input::Text(_))) {
            return;
        }
        if self.take_frame(slot) {
            self.handle_message(slot, input);
        }
    }

    /// [`Shard::handle_input`] of a frame that is off the allowance already.
    pub(crate) fn handle_message(&mut self, slot: u32, input: Input<'_>) {
        if !self.is_alive(slot) {
            return self.handle_late_message(slot, &input);
        }
        match input {
            Input::Ping(payload) => self.send(slot, ws::frame(Opcode::Pong, payload)),
            Input::Text(_) | Input::Binary(_) => self.handle_websocket_message(slot, input),
            Input::Pong(_) | Input::Fragment | Input::Close { .. } | Input::Deflated(_) => {}
        }
    }

    /// A device that was asked to reconnect elsewhere still acknowledges messages until it disconnects.
    fn handle_late_message(&mut self, slot: u32, input: &Input<'_>) {
        let leaving = self.connection(slot).and_then(|connection| connection.attachment.leaving.clone());
        let Some(session) = leaving else { return };
        let ids = self.converse(slot, |adapter, _| adapter.late_acknowledgements(input));
        if let Some(ids) = ids.filter(|ids| !ids.is_empty()) {
            self.delivery.acks.push(session.app, session.num, ids);
        }
    }

    fn handle_close_frame(&mut self, slot: u32, code: Option<u16>) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase == Phase::Closing {
            // The answer to ours.
            return self.abort(slot, CloseReason::PeerClosed);
        }
        // RFC 6455 §5.5.1: answered with the code received.
        let mut answer = Vec::new();
        match code {
            Some(code) => ws::push_close(&mut answer, code, ""),
            None => ws::push_frame(&mut answer, Opcode::Close, &[]),
        }
        self.send(slot, answer.into());
        self.begin_close(slot, CloseReason::PeerClosed);
    }

    /// A frame that waits for the outcome of the log-in.
    pub(super) fn keep_early(&mut self, slot: u32, text: Box<str>) {
        let Some(connection) = self.connection(slot) else { return };
        let early = &mut connection.opening().early;
        let held_bytes: usize = early.iter().map(|held| held.len()).sum();
        if early.len() == EARLY_FRAMES_MAX || held_bytes + text.len() > limits::EARLY_BYTES {
            return self.begin_close(slot, CloseReason::RateLimited);
        }
        early.push(text);
    }

    pub(crate) fn open_stream(&mut self, slot: u32, stream: Stream, credentials: Credentials) {
        self.set_protocol(slot, Protocol::Native, Framing::Events);
        if let Some(connection) = self.connection(slot) {
            connection.opening().asks_gzip = stream.asks_gzip;
        }
        let Credentials { token, app } = credentials;
        self.identify(slot, token.as_deref(), app.as_deref(), Events::request(stream));
    }

    /// An HTTP answer instead of a stream.
    pub(crate) fn refuse_stream(&mut self, slot: u32, status: u16, refusal: &Refusal) {
        let Refusal { code, text, reason, after_s } = refusal;
        let after_s = after_s.unwrap_or_else(|| u64::from(self.retry_after_s(slot).max(1))).to_string();
        let headers: &[_] = match status {
            401 => &[("WWW-Authenticate", "Bearer realm=\"noroshi\"")], // RFC 9110 §11.6.1
            429 => &[("Retry-After", &after_s)],
            _ => &[],
        };
        self.set_protocol(slot, Protocol::Http, Framing::Stream);
        self.answer_problem(slot, status, code, text, headers, *reason);
    }

    pub(super) fn begin_gzip(&mut self, slot: u32) {
        self.set_protocol(slot, Protocol::Native, Framing::GzipEvents);
        self.trailers.begin(slot);
    }

    pub(super) fn detect_vanished_peer(&mut self, slot: u32) {
        let stream = self.connection(slot).and_then(|connection| connection.socket.stream());
        if let Some(stream) = stream {
            let _ = socket2::SockRef::from(&*stream).set_tcp_user_timeout(Some(USER_TIMEOUT));
        }
    }

    pub(super) fn send_keep_alive(&mut self, slot: u32) {
        match self.connection(slot).is_some_and(|connection| connection.framing == Framing::GzipEvents) {
            true => self.send_packed(slot, PACKED_KEEP_ALIVE.get_or_init(|| Packed::of(sse::keep_alive()))),
            false => self.send(slot, Bytes::from_static(sse::keep_alive())),
        }
    }
}
