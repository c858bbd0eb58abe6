//! The native conversation on a WebSocket: what each frame of a device does.
//!
//! A frame that cannot be understood is answered with an error frame and the connection goes on: the
//! allowance of frames a second bounds how often. A frame that has no place in the conversation ends
//! it.

use std::collections::HashMap;

use noroshi_protocol::native::{self, ClientFrame};
use noroshi_protocol::ws::{self, Input, Opcode, Upgrade};
use noroshi_types::{AppId, CloseReason, Position, Quota, Topic, limits};

use crate::lifecycle::phase::Phase;
use crate::session::permission::Op;
use crate::session::topic_index::Subscription;
use crate::shard::Shard;
use crate::shard::route::Credentials;
use crate::wire::{Framing, Protocol, deflate};

/// Frames of a client that does not wait for the log-in's answer, of [`limits::EARLY_BYTES`] together.
const EARLY_FRAMES_MAX: usize = 64;

impl Shard {
    pub(crate) fn open_websocket(&mut self, slot: u32, upgrade: &Upgrade, credentials: Credentials) {
        let mut answer = Vec::with_capacity(192);
        ws::push_upgrade_response(&mut answer, upgrade);
        self.set_protocol(slot, Protocol::Native, Framing::agreed(upgrade));
        let deadline = self.now.tick_after(self.shared.config.auth_timeout);
        let Some(connection) = self.connection(slot) else { return };
        connection.phase = Phase::AwaitToken;
        connection.deadline_tick = deadline;
        // A browser cannot read an HTTP status of a failed upgrade: a wrong token is told in frames.
        if let Some(token) = credentials.token {
            // The answer leaves with `ready` some milliseconds later: one write instead of two.
            self.cork(slot);
            self.send(slot, answer.into());
            self.authenticate(slot, &token);
        } else {
            self.send(slot, answer.into());
        }
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
        // Of those that leave nothing else is of interest.
        let leaves = !connection.is_alive();
        if leaves && (connection.leaving.is_none() || !matches!(input, Input::Text(_))) {
            return;
        }
        if self.take_frame(slot) {
            self.handle_message(slot, input);
        }
    }

    /// [`Shard::handle_input`] of what is off the allowance already.
    pub(crate) fn handle_message(&mut self, slot: u32, input: Input<'_>) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let (is_echo, logs_in) =
            (connection.protocol == Protocol::Echo, connection.phase == Phase::LoggingIn);
        let has_talk = connection.talk.is_some();
        if !connection.is_alive() {
            return self.handle_last_words(slot, &input);
        }
        match input {
            Input::Ping(payload) => self.send_frame(slot, Opcode::Pong, payload),
            Input::Text(_) | Input::Binary(_) if has_talk => self.feed_talk_message(slot, input),
            Input::Text(text) if is_echo => self.send_back(slot, Opcode::Text, text.as_bytes()),
            Input::Binary(bytes) if is_echo => self.send_back(slot, Opcode::Binary, bytes),
            Input::Text(text) if logs_in => self.keep_early(slot, text),
            Input::Text(text) => self.handle_text(slot, text),
            Input::Binary(_) => {
                self.tell_error(slot, "bad_message", "messages are JSON in text frames");
                self.begin_close(slot, CloseReason::BadMessage);
            }
            Input::Pong(_) | Input::Fragment | Input::Close { .. } | Input::Deflated(_) => {}
        }
    }

    /// A message of the conformance suite.
    fn send_back(&mut self, slot: u32, opcode: Opcode, payload: &[u8]) {
        let Some(framing) = self.connection(slot).map(|connection| connection.framing) else { return };
        self.send(slot, deflate::packed(framing, ws::frame(opcode, payload)));
    }

    /// A device that is told to go elsewhere has what it confirms until it went.
    fn handle_last_words(&mut self, slot: u32, input: &Input<'_>) {
        let Some(num) = self.connection(slot).and_then(|connection| connection.leaving) else { return };
        if let Input::Text(text) = input
            && let Ok(ClientFrame::Ack { ids }) = native::parse_client_frame(text)
        {
            self.delivery.ack(num, ids);
        }
    }

    fn handle_close_frame(&mut self, slot: u32, code: Option<u16>) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase == Phase::Closing {
            // The answer to ours.
            return self.doom(slot, CloseReason::PeerClosed);
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

    /// A frame that waits for the log-in's answer.
    fn keep_early(&mut self, slot: u32, text: &str) {
        let Some(connection) = self.connection(slot) else { return };
        let early = &mut connection.opening().early;
        let held_bytes: usize = early.iter().map(|held| held.len()).sum();
        if early.len() == EARLY_FRAMES_MAX || held_bytes + text.len() > limits::EARLY_BYTES {
            return self.begin_close(slot, CloseReason::RateLimited);
        }
        early.push(text.into());
    }

    pub(crate) fn handle_text(&mut self, slot: u32, text: &str) {
        let frame = match native::parse_client_frame(text) {
            Ok(frame) => frame,
            Err(error) => return self.tell_error(slot, error.code(), &error.to_string()),
        };
        let phase = self.connection(slot).map(|connection| connection.phase);
        match (phase, frame) {
            (Some(Phase::AwaitToken), ClientFrame::Connect { token }) => {
                self.authenticate(slot, token.as_str());
            }
            (Some(Phase::AwaitToken), _) => {
                self.tell_error(slot, "not_connected", "the first frame is \"connect\" with a token");
                self.begin_close(slot, CloseReason::BadMessage);
            }
            (_, frame) => self.handle_open_frame(slot, frame),
        }
    }

    /// A frame on an open connection.
    fn handle_open_frame(&mut self, slot: u32, frame: ClientFrame) {
        let Some(session) = self.connection(slot).and_then(|connection| connection.session.clone()) else {
            return;
        };
        match frame {
            ClientFrame::Ack { ids } => self.confirm(slot, ids),
            ClientFrame::Presence(presence) => {
                if session.set_presence(presence) {
                    self.read_held_back(slot);
                }
            }
            ClientFrame::Ping => {
                let mut pong = Vec::new();
                native::pong(&mut pong);
                self.send_frame(slot, Opcode::Text, &pong);
            }
            ClientFrame::Sub { topics, since } => {
                self.run_op(slot, Op::Subscribe { topics, since, reply: None });
            }
            ClientFrame::Unsub { topics } => self.run_op(slot, Op::Unsubscribe { topics }),
            ClientFrame::Token { token } => self.renew_token(slot, token.as_str()),
            ClientFrame::Connect { .. } => {
                self.tell_error(
                    slot,
                    "already_connected",
                    "this connection has its session; renew with \"token\"",
                );
            }
        }
    }

    /// Subscriptions of the connection, which topic rules allow. An error has a stable code and a text for people.
    pub(crate) fn subscribe_all(
        &mut self,
        slot: u32,
        topics: Vec<Topic>,
        since: Vec<(Topic, Position)>,
    ) -> Result<(), (&'static str, String)> {
        let registry = &self.shared.registry;
        let Some(connection) = self.connections.get(slot as usize) else { return Ok(()) };
        let Some(app) = connection.session.as_ref().map(|session| session.app) else { return Ok(()) };
        let keys: Vec<_> = topics.iter().map(|topic| registry.topic_key(app, topic)).collect();
        let new = keys.iter().filter(|key| !self.topics.hears(**key, slot)).count();
        let most = self.delivery.quotas().subscriptions_max(app, limits::TOPICS_PER_DEVICE_MAX);
        // One more than the limit: `$everyone` is not the device's choice.
        if new > 0 && connection.topics.len() + new > most + 1 {
            if let Some(over) = self.over_subscriptions(app, most) {
                return Err((CloseReason::QuotaExceeded.as_str(), over.to_string()));
            }
            let text = format!("a device hears at most {} topics", limits::TOPICS_PER_DEVICE_MAX);
            return Err(("too_many_topics", text));
        }
        let mut since: HashMap<Topic, Position> = since.into_iter().collect();
        for (topic, key) in topics.into_iter().zip(keys) {
            let position = since.remove(&topic);
            self.subscribe(slot, topic, key, Subscription::own, position);
        }
        self.advance(slot);
        Ok(())
    }

    /// Counts a subscription that only the app's quota refuses.
    pub(crate) fn over_subscriptions(&self, app: AppId, most: usize) -> Option<noroshi_delivery::OverQuota> {
        let is_quota = most < limits::TOPICS_PER_DEVICE_MAX;
        is_quota.then(|| self.delivery.quotas().refused(app, Quota::SubscriptionsPerDevice)).flatten()
    }

    pub(crate) fn unsubscribe_all(&mut self, slot: u32, app: AppId, topics: &[Topic]) {
        let key = |topic| self.shared.registry.topic_key(app, topic);
        let keys: Vec<_> = topics.iter().map(key).collect();
        self.unsubscribe(slot, &keys);
    }

    fn renew_token(&mut self, slot: u32, token: &str) {
        self.renew(slot, token, |shard, slot, renewed| {
            if let Err(why) = renewed {
                shard.tell_error(slot, why.code(), &why.to_string());
            }
        });
    }

    /// An error frame; the connection goes on.
    pub(crate) fn tell_error(&mut self, slot: u32, code: &str, message: &str) {
        let mut json = Vec::new();
        native::error(&mut json, code, message);
        self.send_json(slot, "error", &json);
    }
}
