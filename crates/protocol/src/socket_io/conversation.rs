//! A device's conversation on one connection: CONNECT with its token, events in both directions,
//! acknowledgements, and the close. Inputs are Engine.IO messages ([`Conversation::receive`]), the time, and
//! results of the session core; outputs are [`Action`]s. It uses no clock, store or socket.
//!
//! Order: `new` → `receive` → [`Action::LogIn`] → `logged_in` (or `refuse`) → `receive`, `deliver`, … →
//! [`Action::Close`] → `last_words`. A connection that is drained, replaced, expired or rejected ends with
//! `last_words` and the reason.
//!
//! Invariants: `/` is the only namespace; nothing is sent in it before CONNECT is answered; input is ignored
//! after [`Action::Close`] or `last_words`. A conversation without incomplete packet or unacknowledged
//! messages takes 32 bytes and no heap; it holds at most `window::UNACKED_MAX` ids and one incomplete packet,
//! and nothing without a session.

use noroshi_types::CloseReason;

use super::action::{Action, Reply};
use super::assembler::{Assembler, Whole};
use super::auth;
use super::client_event;
use super::close::{CloseMethod, close_method};
use super::encode;
use super::notification::{Notification, Variant};
use super::packet::{Kind, Limits, MAIN, Packet};
use super::window::Window;
use crate::engine_io::{Data, Session};
use crate::native::ClientFrame;

/// Parameters of all conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub limits: Limits,
    /// The maximum time that a connection may lack a session.
    pub connect_timeout_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        // 45 s, as in the JavaScript server: a client may connect its transport long before it has a token.
        Self { limits: Limits::default(), connect_timeout_ms: 45_000 }
    }
}

#[derive(Debug)]
enum State {
    /// CONNECT is due.
    Fresh { connect_by_ms: u64 },
    /// The log-in is being verified by the caller.
    LoggingIn,
    /// With the messages emitted and not acknowledged, if any.
    Open(Option<Box<Window>>),
    /// It ended.
    Over,
}

#[derive(Debug)]
pub struct Conversation {
    assembler: Assembler,
    state: State,
    next_ack_id: u32,
    variant: Variant,
    /// The conversation requested its end: further input is ignored.
    closing: bool,
}

const _: () = assert!(size_of::<Conversation>() <= 32);
// The inline memory of the protocol per connection.
const _: () = assert!(size_of::<Conversation>() + size_of::<Session>() <= 64);

type Actions = Vec<Action>;

impl Conversation {
    pub fn new(now_ms: u64, config: &Config) -> Self {
        Self {
            assembler: Assembler::new(),
            state: State::Fresh { connect_by_ms: now_ms.saturating_add(config.connect_timeout_ms) },
            next_ack_id: 0,
            variant: Variant::Acks,
            closing: false,
        }
    }

    /// The message encoding for this connection. It does not change while it is open.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_)) && !self.closing
    }

    /// When to call [`Conversation::handle_time`], while CONNECT is due.
    pub fn deadline_ms(&self) -> Option<u64> {
        match self.state {
            State::Fresh { connect_by_ms } if !self.closing => Some(connect_by_ms),
            _ => None,
        }
    }

    /// Heap bytes held by the conversation.
    pub fn held_bytes(&self) -> usize {
        let window = match &self.state {
            State::Open(Some(window)) => window.held_bytes(),
            _ => 0,
        };
        window + self.assembler.held_bytes()
    }

    pub fn handle_time(&mut self, now_ms: u64, out: &mut Actions) {
        if self.deadline_ms().is_some_and(|deadline_ms| now_ms >= deadline_ms) {
            self.end(CloseReason::AuthTimeout, out);
        }
    }

    /// Handles one Engine.IO message of the client.
    pub fn receive(&mut self, data: Data<'_>, now_ms: u64, config: &Config, out: &mut Actions) {
        self.handle_time(now_ms, out);
        if self.closing {
            return;
        }
        match self.assembler.feed(data, &config.limits) {
            Ok(Some(whole)) => self.handle_packet(&whole, now_ms, config, out),
            Ok(None) if matches!(self.state, State::Open(_)) => {}
            // Only events have attachments, and events require a session.
            Ok(None) => self.end(CloseReason::BadMessage, out),
            Err(error) => self.end(error.reason(), out),
        }
    }

    fn handle_packet(&mut self, whole: &Whole<'_>, now_ms: u64, config: &Config, out: &mut Actions) {
        let packet = whole.packet();
        if packet.namespace != MAIN && packet.kind == Kind::Connect {
            // Neither a protocol error nor progress; the text is that of the JavaScript server.
            return out.push(Action::Send(encode::connect_error(
                packet.namespace,
                "Invalid namespace",
                None,
            )));
        }
        match (packet.kind, &mut self.state) {
            _ if packet.namespace != MAIN => self.end(CloseReason::BadMessage, out),
            (Kind::Connect, State::Fresh { .. }) => self.handle_connect(&packet, out),
            (Kind::Event | Kind::BinaryEvent, State::Open(_)) => self.handle_event(whole, out),
            (Kind::Ack | Kind::BinaryAck, State::Open(window)) => {
                let id = window.as_mut().zip(packet.id).and_then(|(window, ack_id)| window.take(ack_id));
                // An unknown ack id, late or repeated, is ignored.
                out.extend(id.map(|id| Action::Acknowledge { ids: vec![id] }));
                self.free_window();
            }
            (Kind::Disconnect, State::Open(_)) => {
                let connect_by_ms = now_ms.saturating_add(config.connect_timeout_ms);
                self.state = State::Fresh { connect_by_ms };
                out.push(Action::LogOut);
            }
            (Kind::Disconnect, State::LoggingIn) => self.end(CloseReason::PeerClosed, out),
            // "Connection to a namespace": other packets before CONNECT, a second CONNECT, and packets that
            // only servers send.
            _ => self.end(CloseReason::BadMessage, out),
        }
    }

    fn handle_connect(&mut self, packet: &Packet<'_>, out: &mut Actions) {
        match auth::read(packet.payload) {
            Ok((log_in, variant)) => {
                self.variant = variant;
                self.state = State::LoggingIn;
                out.push(Action::LogIn(Box::new(log_in)));
            }
            Err(text) => out.push(Action::Send(encode::connect_error(MAIN, &text, Some("bad_auth")))),
        }
    }

    fn handle_event(&mut self, whole: &Whole<'_>, out: &mut Actions) {
        let packet = whole.packet();
        let reply = Reply(packet.id);
        let Some(event) = packet.event() else { return };
        let frame = match client_event::read(&event) {
            Ok(frame) => frame,
            Err((code, text)) => return out.extend(reply.answer(Err((code, &text))).map(Action::Send)),
        };
        let (action, answered) = match frame {
            ClientFrame::Ack { ids } => {
                if let State::Open(Some(window)) = &mut self.state {
                    window.forget(&ids);
                }
                self.free_window();
                (Action::Acknowledge { ids }, true)
            }
            ClientFrame::Presence(presence) => (Action::Presence(presence), true),
            ClientFrame::Sub { topics, since } => (Action::Subscribe { topics, since, reply }, false),
            ClientFrame::Unsub { topics } => (Action::Unsubscribe { topics }, true),
            ClientFrame::Token { token } => (Action::RenewToken { token, reply }, false),
            // Events never parse as these frames.
            ClientFrame::Connect { .. } | ClientFrame::Ping => return,
        };
        out.push(action);
        if answered {
            out.extend(reply.answer(Ok(())).map(Action::Send));
        }
    }

    /// The log-in succeeded. `sid` is public; `pid` is the connection's secret for recovery, or the client's
    /// previous one, which tells the client that the connection was recovered.
    pub fn logged_in(&mut self, sid: &str, pid: &str, out: &mut Actions) {
        if matches!(self.state, State::LoggingIn) && !self.closing {
            self.state = State::Open(None);
            out.push(Action::Send(encode::connected(MAIN, sid, Some(pid))));
        }
    }

    /// The log-in failed; the client may try another one.
    pub fn refuse(&mut self, code: &str, text: &str, now_ms: u64, config: &Config, out: &mut Actions) {
        if matches!(self.state, State::LoggingIn) && !self.closing {
            self.state = State::Fresh { connect_by_ms: now_ms.saturating_add(config.connect_timeout_ms) };
            out.push(Action::Send(encode::connect_error(MAIN, text, Some(code))));
        }
    }

    /// Prepares the delivery of a message. Returns its ack id, if it asks for one.
    pub fn deliver(&mut self, notification: &Notification) -> Option<u32> {
        let State::Open(window) = &mut self.state else { return None };
        if !notification.asks() {
            return None;
        }
        let ack_id = self.next_ack_id;
        self.next_ack_id = ack_id.wrapping_add(1);
        window.get_or_insert_with(|| Box::new(Window::new(ack_id))).push(notification.id);
        Some(ack_id)
    }

    /// Emits the packets that precede the close, regardless of which side initiated it. `after_ms` is the
    /// reconnect delay.
    pub fn last_words(&mut self, reason: CloseReason, after_ms: u64, out: &mut Actions) {
        let state = std::mem::replace(&mut self.state, State::Over);
        self.closing = true;
        self.assembler = Assembler::new();
        match (state, close_method(reason)) {
            (State::Open(_), method @ (CloseMethod::Transport | CloseMethod::Disconnect)) => {
                out.push(Action::Send(encode::close(reason, after_ms)));
                if method == CloseMethod::Disconnect {
                    out.push(Action::Send(encode::disconnect(MAIN)));
                }
            }
            // A library stops reconnecting after this packet, so it is only sent where reconnecting is
            // useless.
            (State::LoggingIn, CloseMethod::Disconnect) => {
                let refusal = encode::connect_error(MAIN, reason.explain(), Some(reason.as_str()));
                out.push(Action::Send(refusal));
            }
            _ => {}
        }
    }

    fn end(&mut self, reason: CloseReason, out: &mut Actions) {
        self.closing = true;
        out.push(Action::Close(reason));
    }

    fn free_window(&mut self) {
        if let State::Open(window) = &mut self.state {
            *window = window.take().filter(|window| !window.is_empty());
        }
    }
}

#[cfg(test)]
mod tests;
