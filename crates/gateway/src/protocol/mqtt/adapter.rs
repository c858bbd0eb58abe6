//! The adapter of MQTT: packets to the conversation, and its actions to effects.

use std::collections::HashSet;

use noroshi_auth::Refused;
use noroshi_protocol::mqtt::{
    Action, Answer, Cause as Why, Delivery, Frame, OfferedWill, PublishRefused, ServerReference,
    SubscribeRefused, SubscribeRequest, TopicFilter, UnacknowledgedMessage, UnsubscribeRequest,
    filter_matches, is_topic_name,
};
use noroshi_protocol::ws::{self, Input, Opcode};
use noroshi_store::Place;
use noroshi_types::rule::Action as Ruled;
use noroshi_types::{CloseReason, NotificationId, Topic};

use super::job::Done;
use super::task::Published;
use super::{Mqtt, send};
use crate::config::Config;
use crate::protocol::adapter::{Adapter, Cause, Matched, Offered};
use crate::protocol::context::{Context, Encoding};
use crate::protocol::effect::{Effect, Reply};
use crate::protocol::jobs::Turn;
use crate::session::login::OpenedSession;
use crate::session::phase::Phase;
use crate::session::renewal::NotRenewed;
use crate::session::request::{ClientRequest, name_bytes};
use crate::wire::Framing;
use crate::wire::dispatch::Dispatch;

/// Requests that wait for an outcome.
pub(crate) enum Request {
    /// `device`: the device id that the client states in addition to its token.
    LogIn {
        device: Option<Box<str>>,
        will: Option<OfferedWill>,
    },
    Publish {
        published: Box<Published>,
        answer: Option<Answer>,
    },
    Subscribe(SubscribeRequest),
    Unsubscribe(UnsubscribeRequest),
    RenewToken {
        answer: Option<Answer>,
    },
    /// Starts to serve filters with wildcards, behind the effects before this one.
    ServeWildcards {
        is_first: bool,
        retained: Vec<Box<str>>,
    },
    /// Runs the next job, behind the effects before this one.
    RunJob,
}

impl ClientRequest for Request {
    fn action(&self) -> Ruled {
        match self {
            Request::Publish { .. } => Ruled::Publish,
            _ => Ruled::Subscribe,
        }
    }

    fn names(&self) -> Vec<Box<str>> {
        match self {
            Request::Publish { published, .. } => vec![published.topic.as_str().into()],
            Request::Subscribe(request) => {
                request.subscriptions(0).map(|one| one.filter.plain().into()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Request::Publish { published, .. } => {
                name_bytes(published.topic.as_str()) + published.data.as_str().len()
            }
            Request::Subscribe(request) => {
                request.subscriptions(0).map(|one| name_bytes(one.filter.as_str())).sum()
            }
            Request::Unsubscribe(request) => {
                request.filters().map(|filter| name_bytes(filter.as_str())).sum()
            }
            _ => 0,
        }
    }

    /// Other protocols cannot name such topics.
    fn may_need_rule(&self) -> bool {
        matches!(self, Request::Subscribe(_))
    }
}

impl Adapter for Mqtt {
    type Request = Request;
    type Done = Done;

    /// An end without DISCONNECT publishes the will.
    const ANNOUNCES_END: bool = true;
    /// Packets may begin and end anywhere in binary messages (§6).
    const STREAMS_IN_MESSAGES: bool = true;

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
        match (request, reply) {
            (Request::LogIn { device, will }, Reply::Verified(answer)) => {
                self.let_in(cx, answer, device.as_deref(), will);
            }
            (Request::Publish { published, answer }, Reply::Decided(decided)) => {
                let allowed = cx.publishes(&published.topic, &decided);
                self.publish_decided(cx, *published, answer, allowed);
            }
            (Request::Subscribe(mut request), Reply::Decided(decided)) => {
                let denied = decided.denied();
                request.refuse(|filter| {
                    denied.contains_key(filter.plain()).then_some(SubscribeRefused::NotAllowed)
                });
                drop(denied);
                self.subscribe(cx, request, decided.rules);
            }
            (Request::Unsubscribe(request), Reply::Decided(_)) => self.unsubscribe(cx, request),
            (Request::RenewToken { answer: Some(answer) }, Reply::Renewed(renewed)) => {
                let renewed = renewed.map_err(not_renewed);
                self.answer(cx, |conversation, out| conversation.published(answer, renewed, out));
            }
            (Request::ServeWildcards { is_first, retained }, Reply::Continue) => {
                self.serve_wildcards(cx, is_first, retained);
            }
            (Request::RunJob, Reply::Continue) => drop(self.run_job(cx)),
            _ => {}
        }
    }

    fn handle_done(&mut self, cx: &mut Context<'_>, done: Done) {
        self.finish_job(cx, done);
    }

    fn start_job(&mut self, cx: &mut Context<'_>, turn: Turn) -> bool {
        match turn {
            Turn::Job if cx.facts.phase == Phase::Open && self.end_names_of_next(cx) => {
                cx.continue_with(Request::RunJob);
                true
            }
            Turn::Job => self.run_job(cx),
            Turn::Scan => self.run_scan(cx),
        }
    }

    fn pauses_reading(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.pauses_reading())
    }

    /// [MQTT-3.1.2-22]
    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        if self.pauses_reading() {
            // Its pings are not read.
            self.heard_tick = cx.now.tick;
        }
        self.set_timeout(cx);
        if *cx.timeout_tick <= cx.now.tick {
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
        // It closes: the message stays where it is, and the parked session counts it as not sent.
        if !self.conversation.is_open() {
            return if dispatch.is_ordered() { Offered::Full } else { Offered::Pass { acknowledged: false } };
        }
        let outgoing = dispatch.mqtt();
        let why = match cause {
            Cause::Published => Why::Published,
            Cause::Retained => Why::Retained,
        };
        let begin = head.len();
        let delivery = match is_topic_name(outgoing.topic()) {
            true => self.conversation.deliver(&encoding.config.mqtt, outgoing, why, encoding.now, head),
            // Not a valid topic name in MQTT.
            false => Delivery::NoMatch,
        };
        // A retained message has no known position in the topic's log.
        let is_published = cause == Cause::Published;
        let mut passes = |wanted: bool| {
            wanted && is_published && self.conversation.passes(&encoding.config.mqtt, outgoing)
        };
        match delivery {
            Delivery::Send { shared, acknowledged } => {
                frame_head(encoding.framing, head, begin, shared.len());
                Offered::Send { shared, acknowledged: passes(acknowledged) }
            }
            // A client never wants a topic's message that it rejects now (No Local). A message to the device itself
            // waits for a subscription.
            Delivery::NoMatch => {
                let topic = dispatch.message.topic.as_ref().filter(|place| !place.topic.is_everyone());
                Offered::Pass { acknowledged: passes(topic.is_some()) }
            }
            Delivery::InFlight => Offered::Pass { acknowledged: false },
            Delivery::TooBig | Delivery::Expired => Offered::Pass { acknowledged: passes(true) },
            Delivery::Full => Offered::Full,
        }
    }

    fn handle_caught_up(&mut self) -> Vec<NotificationId> {
        self.conversation.caught_up()
    }

    fn handle_outstanding(&mut self, found: &HashSet<UnacknowledgedMessage>) {
        self.conversation.retain_in_flight(|owed| found.contains(&owed));
    }

    fn matched(&self, topic: &Topic, at: Place) -> Matched {
        let (mut matched, name) = (Matched::default(), topic.as_str());
        for held in self.conversation.subscriptions() {
            match held.filter.has_wildcards() {
                true => {
                    matched.by_wildcard |= held.since < at.0 && filter_matches(held.filter.as_str(), name)
                }
                false => matched.before_name |= held.since >= at.0 && held.filter.as_str() == name,
            }
        }
        matched
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
            Action::Subscribe(request) => cx.authorize(Request::Subscribe(request)),
            Action::Unsubscribe(request) => cx.authorize(Request::Unsubscribe(request)),
            Action::Settled { ids, room } => {
                cx.push(Effect::Acknowledge(ids));
                if room {
                    cx.push(Effect::MakeRoom);
                }
            }
            Action::Presence(presence) => cx.push(Effect::SetPresence(presence)),
            Action::RenewToken { token, answer } => cx.renew_token(token, Request::RenewToken { answer }),
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

/// Inserts the WebSocket frame head of a packet.
fn frame_head(framing: Framing, head: &mut Vec<u8>, begin: usize, shared_bytes: usize) {
    if framing.is_websocket() {
        let packet_bytes = head.len() - begin + shared_bytes;
        let mut frame = Vec::with_capacity(10);
        ws::push_frame_head(&mut frame, Opcode::Binary, packet_bytes);
        head.splice(begin..begin, frame);
    }
}

fn not_renewed(why: NotRenewed) -> PublishRefused {
    match why {
        NotRenewed::Expired => PublishRefused::TokenExpired,
        NotRenewed::Refused(Refused::TooManyFailures { .. } | Refused::Busy) => PublishRefused::OverQuota,
        NotRenewed::Refused(_) | NotRenewed::OtherDevice | NotRenewed::Revoked | NotRenewed::OtherUser => {
            PublishRefused::BadToken
        }
    }
}
