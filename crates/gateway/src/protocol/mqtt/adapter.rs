//! The adapter of MQTT: packets to the conversation, and its actions to effects.

use std::collections::HashSet;

use noroshi_protocol::mqtt::{Action, Frame, ServerReference, TopicFilter, UnconfirmedMessage};
use noroshi_protocol::ws::Input;
use noroshi_store::Place;
use noroshi_types::{CloseReason, NotificationId, Topic};

use super::job::Done;
use super::{Mqtt, Request, send};
use crate::config::Config;
use crate::protocol::adapter::{Adapter, Cause, Matched, Offered, Opening};
use crate::protocol::context::{Context, Encoding};
use crate::protocol::effect::{Effect, Reply};
use crate::protocol::requests::Turn;
use crate::session::login::OpenedSession;
use crate::wire::dispatch::Dispatch;
use crate::wire::{Framing, Protocol};

impl Adapter for Mqtt {
    type Request = Request;
    type Done = Done;

    const PROTOCOL: Option<Protocol> = Some(Protocol::Mqtt);
    /// An end without DISCONNECT publishes the will.
    const ANNOUNCES_END: bool = true;
    /// Packets may begin and end anywhere in binary messages (§6).
    const STREAMS_IN_MESSAGES: bool = true;

    fn open(opening: &Opening<'_>) -> Option<Self> {
        Some(Mqtt::new(opening.now.tick))
    }

    /// One packet, or a part of one.
    fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> usize {
        self.heard_tick = cx.now.tick;
        let packet_bytes_max = cx.config().mqtt.packet_bytes_max as usize;
        let mut decoder = std::mem::take(&mut self.decoder);
        match decoder.feed_one(bytes, packet_bytes_max, |frame| self.handle_packet(cx, frame)) {
            Ok(consumed) => {
                self.decoder = decoder;
                consumed
            }
            Err(violation) => {
                let mut out = Vec::new();
                let action = self.conversation.violate(violation, &mut out);
                send(cx, out);
                self.act(cx, action);
                bytes.len()
            }
        }
    }

    /// [MQTT-6.0.0-1]
    fn handle_message(&mut self, cx: &mut Context<'_>, _: Input<'_>) {
        cx.close(CloseReason::BadMessage);
    }

    fn handle_login(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) -> Vec<u8> {
        self.begin_session(cx, begun)
    }

    fn handle_reply(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        self.handle_outcome(cx, request, reply);
    }

    fn handle_done(&mut self, cx: &mut Context<'_>, done: Done) {
        self.finish_job(cx, done);
    }

    fn start_job(&mut self, cx: &mut Context<'_>, turn: Turn) -> bool {
        self.take_turn(cx, turn)
    }

    /// [MQTT-3.1.2-22]
    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.set_timeout(cx);
        if *cx.timers.timeout_tick <= cx.now.tick {
            cx.close(CloseReason::PingTimeout);
        }
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

    fn handle_caught_up(&mut self) -> Vec<NotificationId> {
        self.conversation.caught_up()
    }

    fn handle_outstanding(&mut self, found: &HashSet<UnconfirmedMessage>) {
        self.conversation.retain_in_flight(|owed| found.contains(&owed));
    }

    fn matched(&self, topic: &Topic, at: Place) -> Matched {
        self.matched_by(topic, at)
    }

    fn wildcards_since(&self) -> Option<Place> {
        let mut held = self.conversation.subscriptions();
        held.any(|held| held.filter.has_wildcards()).then_some(self.since)
    }

    fn client_filters(&self) -> Vec<&TopicFilter> {
        let held = self.conversation.subscriptions();
        held.filter(|held| held.is_of_client).map(|held| &held.filter).collect()
    }

    fn stored_filters(&self, stored: Option<&[u8]>) -> Vec<TopicFilter> {
        self.filters_of_stored(stored)
    }

    fn wants_retained(&self) -> bool {
        !self.resumed
    }

    /// PUBREC and PUBCOMP, and PUBCOMP once more where packet ids were forgotten.
    fn frames_granted(&self) -> u32 {
        3
    }

    fn message_bytes_max(&self, config: &Config) -> usize {
        config.mqtt.packet_bytes_max as usize
    }

    /// DISCONNECT, or the CONNACK of a client that is not let in.
    fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, _: u64) {
        let config = &cx.services.config;
        // A client that connected over a WebSocket cannot use an address of TCP.
        let is_stream = cx.facts.framing == Framing::Stream;
        let redirect = config.mqtt_redirect.as_ref().filter(|_| is_stream);
        let redirect = redirect.map(|to| ServerReference { servers: &to.servers, moved: to.moved });
        let mut out = Vec::new();
        self.conversation.close(reason, redirect.as_ref(), &mut out);
        send(cx, out);
    }

    fn end(self, cx: &mut Context<'_>) -> Option<Self> {
        self.leave(cx);
        None
    }
}

impl Mqtt {
    fn handle_packet(&mut self, cx: &mut Context<'_>, frame: Frame<'_>) {
        if !cx.take_frame(None) {
            return;
        }
        let mut out = Vec::new();
        let action = self.conversation.receive(&cx.services.config.mqtt, frame, &mut out);
        send(cx, out);
        self.act(cx, action);
    }

    fn act(&mut self, cx: &mut Context<'_>, action: Action<'_>) {
        match action {
            Action::None => {}
            Action::LogIn(login) => self.log_in(cx, &login),
            Action::Publish { publication, answer } => self.publish(cx, &publication, answer),
            Action::Subscribe(request) => cx.push(Effect::Authorize(Request::Subscribe(request).into())),
            Action::Unsubscribe(request) => {
                cx.push(Effect::Authorize(Request::Unsubscribe(request).into()));
            }
            Action::Settled { ids, room } => {
                cx.push(Effect::Confirm(ids));
                if room {
                    cx.push(Effect::MakeRoom);
                }
            }
            Action::Presence(presence) => cx.push(Effect::SetPresence(presence)),
            Action::RenewToken { token, answer } => {
                let request = Request::RenewToken { answer }.into();
                cx.push(Effect::RenewToken { token: token.into(), request });
            }
            Action::Refused(why) => {
                cx.report_refusal(why);
                cx.close(CloseReason::Unauthorized);
            }
            Action::Close { reason, violation } => {
                if let Some(violation) = violation {
                    tracing::debug!(%violation, "a packet breaks the protocol");
                }
                cx.close(reason);
            }
        }
    }
}
