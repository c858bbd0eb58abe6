//! The adapter of Socket.IO: Engine.IO packets to the conversation, and its actions to effects.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use noroshi_protocol::engine_io::session::Output;
use noroshi_protocol::engine_io::{Config as EngineConfig, Outgoing, Packet, Session};
use noroshi_protocol::socket_io::{Action, encode};
use noroshi_protocol::ws::Input;
use noroshi_types::{CloseReason, Topic};

use super::{Request, SPREAD_FROM_MS, SocketIo, engine_packet, websocket_frame};
use crate::config::Config;
use crate::protocol::adapter::{Adapter, Cause, Offered};
use crate::protocol::context::{Context, Encoding};
use crate::protocol::effect::{Effect, Refusal, Reply, TopicNotice};
use crate::session::login::OpenedSession;
use crate::wire::Framing;
use crate::wire::dispatch::Dispatch;

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
        self.answer(cx, request, reply);
    }

    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let (mut outputs, mut actions) = (Vec::new(), Vec::new());
        self.engine.handle_time(cx.now.ms, &cx.config().socket_io.engine, &mut outputs);
        self.app.handle_time(cx.now.ms, &mut actions);
        self.act(cx, outputs, actions);
    }

    fn handle_recovered(&mut self, cx: &mut Context<'_>, topic: &Topic, complete: bool) {
        self.send(cx, encode::recovered(topic, complete));
    }

    fn handle_topic_notice(&mut self, cx: &mut Context<'_>, notice: &TopicNotice<'_>) {
        let TopicNotice { code, topic, reason, text } = *notice;
        self.send(cx, encode::topic_error(code, topic, reason, text));
    }

    fn offer(
        &mut self,
        encoding: &Encoding<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        self.offer_message(encoding, dispatch, cause, head)
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

    fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, reconnect_after_ms: u64) {
        self.send_close(cx, reason, reconnect_after_ms);
    }

    fn end(self, cx: &mut Context<'_>) -> Option<Self> {
        self.leave(cx)
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
                    let request = Request::Subscribe { topics, since, reply };
                    cx.push(Effect::Authorize(request.into()));
                }
                Action::Unsubscribe { topics } => {
                    cx.push(Effect::Authorize(Request::Unsubscribe { topics }.into()));
                }
                Action::Acknowledge { ids } => cx.push(Effect::Confirm(ids)),
                Action::Presence(presence) => cx.push(Effect::SetPresence(presence)),
                Action::RenewToken { token, reply } => {
                    let request = Request::RenewToken { reply }.into();
                    cx.push(Effect::RenewToken { token: token.as_str().into(), request });
                }
            }
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

pub(super) fn push_outputs(cx: &mut Context<'_>, outputs: Vec<Output>) {
    cx.effects.extend(outputs.into_iter().map(Effect::Engine));
    cx.push(Effect::EngineSettled);
}
