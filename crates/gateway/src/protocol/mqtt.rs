//! MQTT on a connection: packets to the conversation, what it asks for to the session core, and messages
//! and answers back. What MQTT is stands in `protocol::mqtt`.
//!
//! A device is what the user name says (or the client identifier, without one), and the password is its
//! token. Over a WebSocket (`GET /mqtt`) packets may begin and end anywhere in binary messages (§6); what is
//! sent is a packet a message.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use noroshi_auth::Refused;
use noroshi_protocol::mqtt::{
    Action, Answer, Cause as Why, Conversation, Decoder, Delivery, Frame, Owed, PublishRefused,
    ServerReference, Subscription, TopicFilter, filter_matches, is_topic_name,
};
use noroshi_protocol::ws::{self, Opcode, Upgrade};
use noroshi_store::Place;
use noroshi_types::{CloseReason, NotificationId, Topic};

use crate::io::timer::ticks;
use crate::lifecycle::phase::Phase;
use crate::protocol::conversation::{Cause, Context, Heard, Offered, Talk};
use crate::session::operation::Op;
use crate::session::registry::Session;
use crate::session::renewal::NotRenewed;
use crate::session::verification::RenewalRequest;
use crate::shard::Shard;
use crate::shard::shared::Shared;
use crate::wire::dispatch::Dispatch;
use crate::wire::{Framing, Protocol};

mod beginning;
mod kept;
mod last_words;
pub(crate) mod publishing;
pub(crate) mod scan;
pub(crate) mod session;
mod subscribing;
pub(crate) mod work;

use work::Queue;

pub(crate) struct Mqtt {
    decoder: Decoder,
    conversation: Conversation,
    /// When the client was last heard.
    heard_tick: u32,
    /// What was accepted up to here was sent, as far as filters with wildcards go; or more.
    since: Place,
    /// What the client waits for.
    queue: Option<Box<Queue>>,
    /// How long the session outlives its connection.
    expiry_s: u32,
    clean_start: bool,
    /// Its subscriptions are those of an earlier connection: what their topics retain it has.
    resumed: bool,
    /// It has shared subscriptions, or asked for some: the end of the connection ends or suspends them.
    has_shares: bool,
}

// With a conversation's 64 bytes and its decoder's 8.
const _: () = assert!(size_of::<Mqtt>() <= 104);

impl Mqtt {
    fn new(now_tick: u32) -> Self {
        Self {
            decoder: Decoder::new(),
            conversation: Conversation::new(),
            heard_tick: now_tick,
            since: Place(0),
            queue: None,
            expiry_s: 0,
            clean_start: true,
            resumed: false,
            has_shares: false,
        }
    }

    pub(crate) fn offer(
        &mut self,
        context: &Context<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        // What was said last is said: it stays where it is, and what is left of the session counts it as not sent.
        if !self.conversation.is_open() {
            return if dispatch.is_ordered() { Offered::Full } else { Offered::Pass { confirmed: false } };
        }
        let outgoing = dispatch.mqtt();
        let why = match cause {
            Cause::Published => Why::Published,
            Cause::Retained => Why::Retained,
        };
        let begin = head.len();
        let delivery = match is_topic_name(outgoing.topic()) {
            true => self.conversation.deliver(&context.config.mqtt, outgoing, why, context.now, head),
            // Not a name that MQTT could say.
            false => Delivery::NotForIt,
        };
        // What was sent because a topic retains it says nothing of the topic's log.
        let is_published = cause == Cause::Published;
        let mut passes =
            |wanted: bool| wanted && is_published && self.conversation.passes(&context.config.mqtt, outgoing);
        match delivery {
            Delivery::Send { shared, confirmed } => {
                frame_head(context.framing, head, begin, shared.len());
                Offered::Send { shared, confirmed: passes(confirmed) }
            }
            // A topic's message that it does not want (No Local) it will never want; what is the device's own
            // waits until it is subscribed to.
            Delivery::NotForIt => {
                let topic = dispatch.message.topic.as_ref().filter(|place| !place.topic.is_everyone());
                Offered::Pass { confirmed: passes(topic.is_some()) }
            }
            Delivery::InFlight => Offered::Pass { confirmed: false },
            Delivery::TooBig | Delivery::Expired => Offered::Pass { confirmed: passes(true) },
            Delivery::Full => Offered::Full,
        }
    }

    /// `due`: those that retained messages were not read for yet.
    fn subscriptions(&self, due: &[Box<str>]) -> Vec<Subscription> {
        let held = self.conversation.subscriptions().cloned();
        let is_due = |held: &Subscription| due.iter().any(|due| **due == *held.filter.as_str());
        held.map(|held| Subscription { retained_due: is_due(&held), ..held }).collect()
    }

    pub(crate) fn caught_up(&mut self) -> Vec<NotificationId> {
        self.conversation.caught_up()
    }

    pub(crate) fn looked_for(&mut self, found: &HashSet<Owed>) {
        self.conversation.looked_for(|owed| found.contains(&owed));
    }

    pub(crate) fn heard(&self, topic: &Topic, at: Place) -> Heard {
        let (mut heard, name) = (Heard::default(), topic.as_str());
        for held in self.conversation.subscriptions() {
            match held.filter.has_wildcards() {
                true => heard.by_wildcard |= held.since < at.0 && filter_matches(held.filter.as_str(), name),
                false => heard.before_name |= held.since >= at.0 && held.filter.as_str() == name,
            }
        }
        heard
    }

    pub(crate) fn heard_by_wildcard(&self) -> Option<Place> {
        let mut held = self.conversation.subscriptions();
        held.any(|held| held.filter.has_wildcards()).then_some(self.since)
    }

    pub(crate) fn wants_retained(&self) -> bool {
        !self.resumed
    }
}

impl Shared {
    pub(crate) fn observe_mqtt(&self) {
        let (sessions, bytes) = self.lefts.held();
        self.metrics.mqtt_suspended.set(i64::try_from(sessions).unwrap_or(i64::MAX));
        self.metrics.observe_parked(Protocol::Mqtt, bytes);
    }
}

/// Puts what stands before a packet on the wire before its head.
fn frame_head(framing: Framing, head: &mut Vec<u8>, begin: usize, shared_bytes: usize) {
    if framing.is_websocket() {
        let packet_bytes = head.len() - begin + shared_bytes;
        let mut frame = Vec::with_capacity(10);
        ws::push_frame_head(&mut frame, Opcode::Binary, packet_bytes);
        head.splice(begin..begin, frame);
    }
}

impl Shard {
    /// CONNECT is awaited.
    pub(crate) fn open_mqtt(&mut self, slot: u32, framing: Framing) {
        self.set_protocol(slot, Protocol::Mqtt, framing);
        let (deadline, tick) = (self.now.tick_after(self.shared.config.auth_timeout), self.now.tick);
        let Some(connection) = self.connection(slot) else { return };
        connection.phase = Phase::AwaitToken;
        connection.deadline_tick = deadline;
        connection.talk = Some(Box::new(Talk::Mqtt(Mqtt::new(tick))));
    }

    /// A request for `/mqtt`.
    pub(crate) fn upgrade_to_mqtt(&mut self, slot: u32, upgrade: &Upgrade) {
        let mut answer = Vec::with_capacity(192);
        ws::push_upgrade_response(&mut answer, upgrade);
        self.open_mqtt(slot, Framing::agreed(upgrade));
        self.send(slot, answer.into());
        self.arm(slot);
    }

    fn mqtt(&mut self, slot: u32) -> Option<&mut Mqtt> {
        match self.connection(slot)?.talk.as_deref_mut()? {
            Talk::Mqtt(mqtt) => Some(mqtt),
            _ => None,
        }
    }

    /// Bytes of packets, wherever they begin and end.
    pub(crate) fn feed_mqtt(&mut self, slot: u32, bytes: &[u8]) {
        let (tick, packet_bytes_max) = (self.now.tick, self.shared.config.mqtt.packet_bytes_max);
        let Some(mqtt) = self.mqtt(slot) else { return };
        mqtt.heard_tick = tick;
        let mut decoder = std::mem::take(&mut mqtt.decoder);
        let result = decoder.feed(bytes, packet_bytes_max as usize, &mut |frame| {
            self.handle_mqtt(slot, frame);
            if self.is_alive(slot) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let Some(mqtt) = self.mqtt(slot) else { return };
        match result {
            Ok(()) => mqtt.decoder = decoder,
            Err(violation) => {
                let mut out = Vec::new();
                let action = mqtt.conversation.violate(violation, &mut out);
                self.send_mqtt(slot, out);
                self.handle_mqtt_action(slot, action);
            }
        }
    }

    fn handle_mqtt(&mut self, slot: u32, frame: Frame<'_>) {
        if !self.take_frame(slot) {
            return;
        }
        let shared = self.shared.clone();
        let Some(mqtt) = self.mqtt(slot) else { return };
        let mut out = Vec::new();
        let action = mqtt.conversation.receive(&shared.config.mqtt, frame, &mut out);
        self.send_mqtt(slot, out);
        self.handle_mqtt_action(slot, action);
    }

    fn handle_mqtt_action(&mut self, slot: u32, action: Action<'_>) {
        match action {
            Action::None => {}
            Action::LogIn(log_in) => self.log_in_mqtt(slot, &log_in),
            Action::Publish { publication, answer } => self.publish_mqtt(slot, &publication, answer),
            Action::Subscribe(request) => self.run_op(slot, Op::MqttSubscribe(request)),
            Action::Unsubscribe(request) => self.run_op(slot, Op::MqttUnsubscribe(request)),
            Action::Settled { ids, room } => {
                self.confirm(slot, ids);
                if room {
                    self.make_room(slot);
                }
            }
            Action::Presence(presence) => {
                let session = self.connection(slot).and_then(|it| it.session.as_ref());
                if session.is_some_and(|session| session.set_presence(presence)) {
                    self.read_held_back(slot);
                }
            }
            Action::RenewToken { token, answer } => {
                self.renew(slot, token, RenewalRequest::Mqtt { answer });
            }
            Action::Refused(why) => {
                self.tell_refused(slot, &why);
                self.begin_close(slot, CloseReason::Unauthorized);
            }
            Action::Close { reason, violation } => {
                if let Some(violation) = violation {
                    tracing::debug!(%violation, "a packet breaks the protocol");
                }
                self.begin_close(slot, reason);
            }
        }
    }

    pub(crate) fn renewed_mqtt(
        &mut self,
        slot: u32,
        answer: Option<Answer>,
        renewed: Result<(), NotRenewed>,
    ) {
        if let Some(answer) = answer {
            let renewed = renewed.map_err(not_renewed);
            self.answer_mqtt(slot, |conversation, out| conversation.published(answer, renewed, out));
        }
    }

    /// When nothing will have been heard for too long.
    fn await_mqtt(&mut self, slot: u32) {
        let Some(mqtt) = self.mqtt(slot) else { return };
        let silence = mqtt.conversation.silence_max_ms().map(Duration::from_millis);
        let due = silence.map_or(u32::MAX, |silence| mqtt.heard_tick.saturating_add(ticks(silence)));
        if let Some(connection) = self.connection(slot) {
            connection.ping_tick = due.saturating_add(1);
        }
    }

    /// [MQTT-3.1.2-22]
    pub(crate) fn handle_mqtt_due(&mut self, slot: u32) {
        self.await_mqtt(slot);
        let tick = self.now.tick;
        if self.connection(slot).is_some_and(|connection| connection.ping_tick <= tick) {
            self.begin_close(slot, CloseReason::PingTimeout);
        }
    }

    /// Lets the conversation answer; where it cannot, the connection ends.
    fn answer_mqtt(
        &mut self,
        slot: u32,
        answer: impl FnOnce(&mut Conversation, &mut Vec<u8>) -> Result<(), CloseReason>,
    ) {
        let Some(mqtt) = self.mqtt(slot) else { return };
        let mut out = Vec::new();
        let result = answer(&mut mqtt.conversation, &mut out);
        self.send_mqtt(slot, out);
        if let Err(reason) = result {
            self.begin_close(slot, reason);
        }
    }

    fn send_mqtt(&mut self, slot: u32, out: Vec<u8>) {
        let Some(connection) = self.connection(slot).filter(|_| !out.is_empty()) else { return };
        let bytes: Bytes = match connection.framing {
            Framing::WebSocket | Framing::Deflated(_) => ws::frame(Opcode::Binary, &out),
            Framing::Stream | Framing::Events | Framing::GzipEvents | Framing::Polling => out.into(),
        };
        self.send(slot, bytes);
    }

    /// What an MQTT client subscribed to; of other connections nothing.
    pub(crate) fn mqtt_filters(&self, slot: u32) -> impl Iterator<Item = &TopicFilter> {
        let talk = self.connections.get(slot as usize).and_then(|connection| connection.talk.as_deref());
        let mqtt = match talk {
            Some(Talk::Mqtt(mqtt)) => Some(mqtt),
            _ => None,
        };
        let held = mqtt.into_iter().flat_map(|mqtt| mqtt.conversation.subscriptions());
        held.filter(|held| held.is_of_client).map(|held| &held.filter)
    }

    /// DISCONNECT, or the CONNACK of who is not let in.
    pub(crate) fn end_mqtt_word(&mut self, slot: u32, reason: CloseReason) {
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        // Addresses of TCP say nothing to who came over WebSocket.
        let is_stream = connection.framing == Framing::Stream;
        let Some(mqtt) = self.mqtt(slot) else { return };
        let redirect = shared.config.mqtt_redirect.as_ref().filter(|_| is_stream);
        let redirect = redirect.map(|to| ServerReference { servers: &to.servers, moved: to.moved });
        let mut out = Vec::new();
        mqtt.conversation.close(reason, redirect.as_ref(), &mut out);
        self.send_mqtt(slot, out);
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

/// Half of a hash: it tells nobody which device.
fn origin(session: &Session) -> u64 {
    (session.device_key >> 64) as u64
}
