//! A device's conversation on one connection: CONNECT with its token, events both ways, acknowledgements,
//! and how it ends. Inputs are Engine.IO messages ([`Conversation::receive`]), the time, and what the session
//! core decided; what is to be done comes out as [`Action`]s. It has no clock, no store and no socket.
//!
//! Order: `new` → `receive` → [`Action::LogIn`] → `logged_in` (or `refuse`) → `receive`, `deliver`, … →
//! [`Action::Close`] → `last_words`. Drained, replaced, expired, refused for good: all are `last_words` with
//! the reason.
//!
//! Invariants: there is one namespace, `/`; nothing is sent in it before CONNECT was answered; after a
//! [`Action::Close`] or `last_words` nothing is heard. While nothing is incomplete or unacknowledged a
//! conversation is 32 bytes and holds nothing; at most `window::UNACKED_MAX` ids and one incomplete packet
//! are held, and without a session nothing.

use noroshi_types::CloseReason;

use super::action::{Action, Reply};
use super::assembler::{Assembler, Whole};
use super::auth;
use super::client_event;
use super::close::{Manner, manner};
use super::encode;
use super::notification::{Notification, Variant};
use super::packet::{Kind, Limits, MAIN, Packet};
use super::window::Window;
use crate::engine_io::{Data, Session};
use crate::native::ClientFrame;

/// What all conversations keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub limits: Limits,
    /// How long a connection may be without a session.
    pub connect_timeout_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        // 45 s, as in the JavaScript server: a client may connect to its transport long before it has a token.
        Self { limits: Limits::default(), connect_timeout_ms: 45_000 }
    }
}

#[derive(Debug)]
enum State {
    /// CONNECT has to come.
    Fresh {
        connect_by_ms: u64,
    },
    LoggingIn,
    /// With what is emitted and not acknowledged, if there is any.
    Open(Option<Box<Window>>),
    Over,
}

#[derive(Debug)]
pub struct Conversation {
    assembler: Assembler,
    state: State,
    next_ack_id: u32,
    variant: Variant,
    /// The end was asked for: nothing is heard any more.
    closing: bool,
}

const _: () = assert!(size_of::<Conversation>() <= 32);
// What a connection pays for the protocol, inline.
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

    /// Which encoding of a message is for it. It does not change while it is open.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_)) && !self.closing
    }

    /// When [`Conversation::handle_time`] wants to be called, while CONNECT is awaited.
    pub fn deadline_ms(&self) -> Option<u64> {
        match self.state {
            State::Fresh { connect_by_ms } if !self.closing => Some(connect_by_ms),
            _ => None,
        }
    }

    /// Heap bytes held.
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

    /// One Engine.IO message of the client.
    pub fn receive(&mut self, data: Data<'_>, now_ms: u64, config: &Config, out: &mut Actions) {
        self.handle_time(now_ms, out);
        if self.closing {
            return;
        }
        match self.assembler.feed(data, &config.limits) {
            Ok(Some(whole)) => self.handle_packet(&whole, now_ms, config, out),
            Ok(None) if matches!(self.state, State::Open(_)) => {}
            // Only events have attachments, and those wait for a session.
            Ok(None) => self.end(CloseReason::BadMessage, out),
            Err(error) => self.end(error.reason(), out),
        }
    }

    fn handle_packet(&mut self, whole: &Whole<'_>, now_ms: u64, config: &Config, out: &mut Actions) {
        let packet = whole.packet();
        if packet.namespace != MAIN && packet.kind == Kind::Connect {
            // Neither an error nor a step: the JavaScript server's words.
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
                // One that is not waited for: late, or repeated.
                out.extend(id.map(|id| Action::Acknowledge { ids: vec![id] }));
                self.free_window();
            }
            (Kind::Disconnect, State::Open(_)) => {
                let connect_by_ms = now_ms.saturating_add(config.connect_timeout_ms);
                self.state = State::Fresh { connect_by_ms };
                out.push(Action::LogOut);
            }
            (Kind::Disconnect, State::LoggingIn) => self.end(CloseReason::PeerClosed, out),
            // "Connection to a namespace": anything else before CONNECT, or a second one, and what only the
            // server says.
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
            // No event is read as one of these.
            ClientFrame::Connect { .. } | ClientFrame::Ping => return,
        };
        out.push(action);
        if answered {
            out.extend(reply.answer(Ok(())).map(Action::Send));
        }
    }

    /// The session is there. `sid` is public; `pid` is this connection's secret to come back with, or the one
    /// the client came with, which tells it that it was recovered.
    pub fn logged_in(&mut self, sid: &str, pid: &str, out: &mut Actions) {
        if matches!(self.state, State::LoggingIn) && !self.closing {
            self.state = State::Open(None);
            out.push(Action::Send(encode::connected(MAIN, sid, Some(pid))));
        }
    }

    /// The log-in cannot be as it was asked for; the client may try another one.
    pub fn refuse(&mut self, code: &str, text: &str, now_ms: u64, config: &Config, out: &mut Actions) {
        if matches!(self.state, State::LoggingIn) && !self.closing {
            self.state = State::Fresh { connect_by_ms: now_ms.saturating_add(config.connect_timeout_ms) };
            out.push(Action::Send(encode::connect_error(MAIN, text, Some(code))));
        }
    }

    /// A message is being sent to this client: the ack id it goes out with, if it asks for one.
    pub fn deliver(&mut self, notification: &Notification) -> Option<u32> {
        let State::Open(window) = &mut self.state else { return None };
        if !notification.asks() {
            return None;
        }
        let ack_id = self.next_ack_id;
        self.next_ack_id = ack_id.wrapping_add(1);
        window.get_or_insert_with(|| Box::new(Window::new(ack_id))).note(notification.id);
        Some(ack_id)
    }

    /// What is said before the connection is closed, whoever decided that. `after_ms` is when to come back.
    pub fn last_words(&mut self, reason: CloseReason, after_ms: u64, out: &mut Actions) {
        let state = std::mem::replace(&mut self.state, State::Over);
        self.closing = true;
        self.assembler = Assembler::new();
        match (state, manner(reason)) {
            (State::Open(_), manner @ (Manner::Transport | Manner::Disconnect)) => {
                out.push(Action::Send(encode::close(reason, after_ms)));
                if manner == Manner::Disconnect {
                    out.push(Action::Send(encode::disconnect(MAIN)));
                }
            }
            // A library stops trying after this; where trying again helps it is not sent.
            (State::LoggingIn, Manner::Disconnect) => {
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
