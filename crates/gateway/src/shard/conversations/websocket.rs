//! WebSockets: upgrades, control frames, and messages for the adapter.

use noroshi_protocol::ws::{self, Input, Opcode, Upgrade};
use noroshi_types::{CloseReason, limits};

use crate::protocol::credentials::Credentials;
use crate::protocol::native;
use crate::protocol::registry::Conversation;
use crate::session::phase::Phase;
use crate::shard::Shard;
use crate::wire::{Framing, Protocol};

/// Frames of a client that does not wait for the outcome of its log-in, of [`limits::EARLY_BYTES`] together.
const EARLY_FRAMES_MAX: usize = 64;

impl Shard {
    /// Starts a protocol on a connection.
    pub(crate) fn open_protocol(&mut self, slot: u32, protocol: Protocol, framing: Framing) {
        self.set_protocol(slot, protocol, framing);
        let (shared, now) = (self.shared.clone(), self.now);
        let Some(connection) = self.connection(slot) else { return };
        let (config, is_tls) = (&*shared.config, connection.socket.is_tls());
        let opening = crate::protocol::adapter::Opening { config, framing, is_tls, now };
        connection.conversation = Conversation::open(protocol, &opening).map(Box::new);
        connection.phase = Phase::AwaitToken;
        connection.deadline_tick = now.tick_after(config.auth_timeout);
        self.converse(slot, |conversation, cx| conversation.handle_open(cx));
    }

    /// A request for the WebSocket of a protocol.
    pub(crate) fn upgrade_to(&mut self, slot: u32, protocol: Protocol, upgrade: &Upgrade) {
        let mut answer = Vec::with_capacity(192);
        ws::push_upgrade_response(&mut answer, upgrade);
        self.open_protocol(slot, protocol, Framing::agreed(upgrade));
        self.send(slot, answer.into());
        self.arm(slot);
    }

    /// A request for the native WebSocket.
    pub(crate) fn open_websocket(&mut self, slot: u32, upgrade: &Upgrade, credentials: Credentials) {
        let Some(token) = credentials.token else { return self.upgrade_to(slot, Protocol::Native, upgrade) };
        // The answer leaves with `ready` some milliseconds later: one write instead of two.
        let mut answer = Vec::with_capacity(192);
        ws::push_upgrade_response(&mut answer, upgrade);
        self.open_protocol(slot, Protocol::Native, Framing::agreed(upgrade));
        self.cork(slot);
        self.send(slot, answer.into());
        // A browser cannot read an HTTP status of a failed upgrade: frames report a wrong token.
        self.identify(slot, Some(&token), None, native::Request::LogIn.into());
        // It may be due before the head would have been.
        self.arm(slot);
    }

    pub(crate) fn open_echo(&mut self, slot: u32, upgrade: &Upgrade) {
        let mut answer = Vec::new();
        ws::push_upgrade_response(&mut answer, upgrade);
        self.set_protocol(slot, Protocol::Echo, Framing::agreed(upgrade));
        let Some(connection) = self.connection(slot) else { return };
        connection.phase = Phase::Open;
        connection.deadline_tick = u32::MAX;
        connection.opening = None;
        self.send(slot, answer.into());
    }

    /// A whole message, a part of one, or a control frame.
    pub(crate) fn handle_input(&mut self, slot: u32, input: Input<'_>) {
        let slot = self.moved_to(slot);
        if let Input::Close { code, .. } = input {
            return self.handle_close_frame(slot, code);
        }
        let Some(connection) = self.connections.get(slot as usize) else { return };
        // A closing connection handles only late confirmations.
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
            Input::Ping(payload) => self.send_frame(slot, Opcode::Pong, payload),
            Input::Text(_) | Input::Binary(_) => self.handle_websocket_message(slot, input),
            Input::Pong(_) | Input::Fragment | Input::Close { .. } | Input::Deflated(_) => {}
        }
    }

    /// A device that was asked to reconnect elsewhere still confirms messages until it disconnects.
    fn handle_late_message(&mut self, slot: u32, input: &Input<'_>) {
        let Some(num) = self.connection(slot).and_then(|connection| connection.attachment.leaving) else {
            return;
        };
        let ids = self.converse(slot, |conversation, _| conversation.late_confirmations(input));
        if let Some(ids) = ids.filter(|ids| !ids.is_empty()) {
            self.delivery.acks.push(num, ids);
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
}
