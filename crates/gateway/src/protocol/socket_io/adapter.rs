//! The adapter of Socket.IO: Engine.IO packets to the conversation, and its actions to effects.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use noroshi_protocol::engine_io::session::Output;
use noroshi_protocol::engine_io::{Config as EngineConfig, Outgoing, Packet, Session};
use noroshi_protocol::socket_io::{Action, Reply as Callback, Variant, encode};
use noroshi_protocol::ws::Input;
use noroshi_types::{CloseReason, ItemsNotice, Recovered};

use super::{App, Request, SPREAD_FROM_MS, SocketIo, engine_packet, websocket_frame};
use crate::config::Config;
use crate::protocol::adapter::{Adapter, Cause, Offered};
use crate::protocol::context::{Context, Encoding};
use crate::protocol::effect::{Effect, Refusal, Reply, TopicNotice};
use crate::session::login::OpenedSession;
use crate::session::phase::Phase;
use crate::wire::Framing;
use crate::wire::dispatch::Dispatch;

/// Code of an error about a topic that rules deny.
const FORBIDDEN: &str = "topic_forbidden";

impl Adapter for SocketIo {
    type Request = Request;
    type Done = Infallible;

    fn handle_message(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match engine_packet(input) {
            Some(Ok(packet)) => self.handle_packet(cx, packet),
            Some(Err(error)) => {
                tracing::debug!(%error, "a message breaks the protocol");
                cx.close(error.reason());
            }
            None => {}
        }
    }

    fn handle_login(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) -> Vec<u8> {
        self.begin_session(cx, begun);
        Vec::new()
    }

    fn handle_refusal(&mut self, cx: &mut Context<'_>, refusal: &Refusal) {
        self.refuse_login(cx, refusal);
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        match (request, reply) {
            (Request::LogIn(login), Reply::Verified(answer)) => self.let_in(cx, *login, answer),
            (request, Reply::Decided(decided)) => request.perform(cx, &decided),
            (Request::Subscribed { reply, denied }, Reply::Subscribed(mut result)) => {
                for (topic, reason) in &denied {
                    let (code, reason) = (FORBIDDEN, *reason);
                    self.handle_topic_notice(cx, &TopicNotice { code, topic, reason });
                    result = result.and(Err((FORBIDDEN, format!("{topic}: {}", reason.text()))));
                }
                self.call_back(cx, reply, result);
            }
            (Request::RenewToken { reply }, Reply::Renewed(renewed)) => {
                self.call_back(cx, reply, renewed.map_err(|why| (why.code(), why.to_string())));
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let (mut outputs, mut actions) = (Vec::new(), Vec::new());
        self.engine.handle_time(cx.now.ms, &cx.config().socket_io.engine, &mut outputs);
        self.app.handle_time(cx.now.ms, &mut actions);
        self.act(cx, outputs, actions);
    }

    fn handle_recovered(&mut self, cx: &mut Context<'_>, recovered: &Recovered) {
        self.send(cx, encode::recovered(recovered));
    }

    fn handle_items(&mut self, cx: &mut Context<'_>, notice: &ItemsNotice) {
        self.send(cx, encode::items(notice));
    }

    fn handle_topic_notice(&mut self, cx: &mut Context<'_>, notice: &TopicNotice<'_>) {
        let TopicNotice { code, topic, reason } = *notice;
        self.send(cx, encode::topic_error(code, topic, reason.code(), reason.text()));
    }

    fn offer(
        &mut self,
        encoding: &Encoding<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        let conversation = match &mut self.app {
            App::Device(conversation) if conversation.is_open() => conversation,
            _ => return Offered::Pass { acknowledged: false },
        };
        let variant = conversation.variant();
        // A retained message has no offset: a client that resumed behind it would miss the messages before it.
        let (notification, ack_id) = match (cause, variant) {
            (Cause::Retained, Variant::Offsets) => (dispatch.socket_io(Variant::Acks), None),
            _ => {
                let notification = dispatch.socket_io(variant);
                (notification, conversation.deliver(notification))
            }
        };
        let shared = match (encoding.framing, ack_id) {
            (Framing::Polling, ack_id) => match notification.packet(ack_id) {
                Outgoing::Text(bytes) | Outgoing::Binary(bytes) => bytes,
            },
            (_, None) => notification.frame().clone(),
            (_, Some(ack_id)) => {
                notification.push_head(ack_id, head);
                notification.tail()
            }
        };
        Offered::Send { shared, acknowledged: false }
    }

    fn message_bytes_max(&self, config: &Config) -> usize {
        config.socket_io.engine.payload_bytes_max
    }

    fn queued_bytes(&self) -> usize {
        self.engine.queued_bytes()
    }

    /// The shard bounds the queue (`Shard::limit_unsent`).
    fn queue(&mut self, packet: Bytes) {
        self.engine.push_unbounded(Outgoing::Text(packet), &mut Vec::new());
    }

    fn misses_close_frames(&self) -> bool {
        self.misses_close_frames
    }

    /// Sends `close` and DISCONNECT, or CONNECT_ERROR to a client that is not let in. A poll receives them too.
    fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, reconnect_after_ms: u64) {
        let (mut actions, mut outputs) = (Vec::new(), Vec::new());
        if let App::Device(conversation) = &mut self.app {
            conversation.last_words(reason, reconnect_after_ms, &mut actions);
        }
        let config = &cx.services.config.socket_io.engine;
        for action in actions {
            let Action::Send(packet) = action else { continue };
            match cx.facts.framing {
                // At once: the engine takes nothing more once it is closed.
                Framing::Polling => self.engine.push(packet, config, &mut outputs),
                _ => self.send(cx, packet),
            }
        }
        self.engine.close(reason, cx.now.ms, config, &mut outputs);
        if cx.facts.framing == Framing::Polling {
            cx.push(Effect::PollReady);
        }
        push_outputs(cx, outputs);
    }

    /// Returns itself if polls have more to receive: the slot stays until then, or until its deadline.
    fn end(mut self, cx: &mut Context<'_>) -> Option<Self> {
        let lingers = cx.facts.phase == Phase::Closing
            && cx.facts.framing == Framing::Polling
            && !self.engine.is_gone();
        if lingers {
            return Some(self);
        }
        if let Some(legs) = self.legs.take() {
            cx.push(Effect::EndLegs(legs));
        }
        None
    }
}

impl SocketIo {
    /// A packet of the client, by whatever transport.
    pub(crate) fn handle_packet(&mut self, cx: &mut Context<'_>, packet: Packet<'_>) {
        let (mut outputs, mut actions) = (Vec::new(), Vec::new());
        let config = &cx.services.config.socket_io;
        if let Some(data) = self.engine.handle_packet(packet, cx.now.ms, &config.engine, &mut outputs) {
            self.app.receive(data, cx.now.ms, config, &mut actions);
        }
        self.act(cx, outputs, actions);
    }

    /// Passes one input of a polling session to its engine.
    pub(crate) fn handle_engine<R>(
        &mut self,
        cx: &mut Context<'_>,
        input: impl FnOnce(&mut Session, u64, &EngineConfig, &mut Vec<Output>) -> R,
    ) -> R {
        let mut outputs = Vec::new();
        let config = &cx.services.config.socket_io.engine;
        let result = input(&mut self.engine, cx.now.ms, config, &mut outputs);
        push_outputs(cx, outputs);
        self.set_timeout(cx);
        result
    }

    /// Queues a packet for the next poll.
    pub(crate) fn push_packet(&mut self, cx: &mut Context<'_>, packet: Outgoing) {
        let mut outputs = Vec::new();
        self.engine.push(packet, &cx.services.config.socket_io.engine, &mut outputs);
        cx.push(Effect::PollReady);
        push_outputs(cx, outputs);
    }

    pub(super) fn act(&mut self, cx: &mut Context<'_>, outputs: Vec<Output>, actions: Vec<Action>) {
        push_outputs(cx, outputs);
        self.push_actions(cx, actions);
        self.set_timeout(cx);
    }

    pub(super) fn push_actions(&mut self, cx: &mut Context<'_>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(packet) => self.send(cx, packet),
                Action::Close(reason) => cx.close(reason),
                Action::LogIn(login) => self.log_in(cx, *login),
                Action::LogOut => cx.push(Effect::LogOut),
                Action::Subscribe { topics, since, reply } => {
                    cx.authorize(Request::Subscribe { topics, since, reply });
                }
                Action::Unsubscribe { topics } => cx.authorize(Request::Unsubscribe { topics }),
                Action::Acknowledge { ids } => cx.push(Effect::Acknowledge(ids)),
                Action::Presence(presence) => cx.push(Effect::SetPresence(presence)),
                Action::RenewToken { token, reply } => {
                    cx.renew_token(token.as_str(), Request::RenewToken { reply });
                }
            }
        }
    }

    fn call_back(
        &mut self,
        cx: &mut Context<'_>,
        reply: Callback,
        result: Result<(), (&'static str, String)>,
    ) {
        let result = result.as_ref().copied().map_err(|(code, text)| (*code, text.as_str()));
        if let Some(packet) = reply.answer(result) {
            self.send(cx, packet);
        }
    }

    /// Sends a packet behind the messages that are marked for the connection.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, packet: Outgoing) {
        match cx.facts.framing {
            Framing::Polling => cx.push(Effect::Queue(packet)),
            _ => cx.send(websocket_frame(&packet)),
        }
    }

    /// Asks for a call when the session or its conversation needs one.
    pub(crate) fn set_timeout(&mut self, cx: &mut Context<'_>) {
        let is_precise = cx.config().socket_io.engine.ping_interval_ms < SPREAD_FROM_MS;
        let deadline_ms = [self.engine.deadline_ms(), self.app.deadline_ms()].into_iter().flatten().min();
        match deadline_ms {
            Some(deadline_ms) if is_precise => {
                cx.push(Effect::WakeAt(deadline_ms.max(cx.now.ms + 1)));
                cx.clear_timeout();
            }
            Some(deadline_ms) => {
                let after = Duration::from_millis(deadline_ms.saturating_sub(cx.now.ms));
                cx.set_timeout(cx.now.tick_after(after));
            }
            None => cx.clear_timeout(),
        }
    }
}

fn push_outputs(cx: &mut Context<'_>, outputs: Vec<Output>) {
    cx.effects.extend(outputs.into_iter().map(Effect::Engine));
    cx.push(Effect::EngineSettled);
}
