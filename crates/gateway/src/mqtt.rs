//! MQTT on a connection: packets to the conversation, what it asks for to the session core, and messages
//! and answers back. What MQTT is stands in `protocol::mqtt`.
//!
//! A device is what the user name says (or the client identifier, without one), and the password is its
//! token. Over a WebSocket (`GET /mqtt`) packets may begin and end anywhere in binary messages (§6); what is
//! sent is a packet a message.

use std::ops::ControlFlow;

use bytes::Bytes;
use noroshi_auth::{Identity, Refused};
use noroshi_protocol::mqtt::{
    Action, Cause as Why, Conversation, Decoder, Delivery, Frame, LogIn, LoggedIn, PublishRefused, Qos,
    SubscribeOptions, SubscribeRequest, Subscription as Held, TopicFilter, UnsubscribeRequest, is_topic_name,
};
use noroshi_protocol::ws::{self, Opcode, Upgrade};
use noroshi_types::CloseReason;

use crate::connection::{Framing, Origin, Phase, Protocol, Subscription};
use crate::dispatch::Dispatch;
use crate::login::Begun;
use crate::pulse::ticks;
use crate::shard::Shard;
use crate::talk::{Cause, Context, Offered, Talk};

pub(crate) struct Mqtt {
    decoder: Decoder,
    conversation: Conversation,
    /// When the client was last heard.
    heard_tick: u32,
    /// Its subscriptions are those of an earlier connection: what their topics retain it has.
    resumed: bool,
}

impl Mqtt {
    fn new(now_tick: u32) -> Self {
        Self {
            decoder: Decoder::new(),
            conversation: Conversation::new(),
            heard_tick: now_tick,
            resumed: false,
        }
    }

    pub(crate) fn offer(
        &mut self,
        context: &Context<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        // What was said last is said: it stays where it is.
        if !self.conversation.is_open() {
            return Offered::Pass { confirmed: false };
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
        match delivery {
            Delivery::Send { shared, confirmed } => {
                frame_head(context.framing, head, begin, shared.len());
                Offered::Send { shared, confirmed }
            }
            // A topic's message that it does not want (No Local) it will never want; what is the device's own
            // waits until it is subscribed to.
            Delivery::NotForIt => {
                let topic = dispatch.message.topic.as_ref().filter(|place| !place.topic.is_everyone());
                Offered::Pass { confirmed: topic.is_some() && cause == Cause::Published }
            }
            Delivery::InFlight => Offered::Pass { confirmed: false },
            Delivery::TooBig | Delivery::Expired => Offered::Pass { confirmed: true },
            Delivery::Full => Offered::Full,
        }
    }

    pub(crate) fn caught_up(&mut self) {
        self.conversation.caught_up();
    }

    pub(crate) fn wants_retained(&self) -> bool {
        !self.resumed
    }
}

/// Puts what stands before a packet on the wire before its head.
fn frame_head(framing: Framing, head: &mut Vec<u8>, begin: usize, shared_bytes: usize) {
    if framing == Framing::WebSocket {
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
        self.open_mqtt(slot, Framing::WebSocket);
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
            Action::Publish { answer, .. } => {
                if let Some(answer) = answer {
                    self.answer_mqtt(slot, |conversation, out| {
                        conversation.published(answer, Err(PublishRefused::NotAllowed), out)
                    });
                }
            }
            Action::Subscribe(request) => self.subscribe_mqtt(slot, request),
            Action::Unsubscribe(request) => self.unsubscribe_mqtt(slot, request),
            Action::Settled { id, room } => {
                if let Some(id) = id
                    && let Some(session) = self.connection(slot).and_then(|it| it.session.clone())
                {
                    self.delivery.ack(session.num, vec![id]);
                }
                if room {
                    self.make_room(slot);
                }
            }
            Action::Presence(presence) => {
                if let Some(session) = self.connection(slot).and_then(|it| it.session.as_ref()) {
                    session.set_presence(presence);
                }
            }
            Action::RenewToken { token, answer } => {
                let renewed = self.renew(slot, token).map_err(|_| PublishRefused::NotAllowed);
                if let Some(answer) = answer {
                    self.answer_mqtt(slot, |conversation, out| conversation.published(answer, renewed, out));
                }
            }
            Action::Close { reason, violation } => {
                if let Some(violation) = violation {
                    tracing::debug!(%violation, "a packet breaks the protocol");
                }
                self.begin_close(slot, reason);
            }
        }
    }

    fn log_in_mqtt(&mut self, slot: u32, log_in: &LogIn<'_>) {
        let over_rate = self.connection(slot).is_some_and(|it| it.origin == Origin::OverRate);
        if self.shared.drain.is_active() || over_rate {
            self.shared.metrics.admission_refused.inc();
            let draining = self.shared.drain.is_active();
            let reason = if draining { CloseReason::Drain } else { CloseReason::Overloaded };
            return self.begin_close(slot, reason);
        }
        match self.identify_mqtt(log_in) {
            Ok(identity) => self.start_log_in(slot, identity, Vec::new(), None),
            Err(reason) => self.begin_close(slot, reason),
        }
    }

    fn identify_mqtt(&self, log_in: &LogIn<'_>) -> Result<Identity, CloseReason> {
        let Some(token) = log_in.token else { return Err(CloseReason::Unauthorized) };
        match self.shared.auth.device(token, log_in.app, self.now.wall) {
            Ok(identity) if log_in.device.is_none_or(|device| device == identity.device.as_str()) => {
                Ok(identity)
            }
            Ok(_) => Err(CloseReason::Unauthorized),
            Err(Refused::Expired) => Err(CloseReason::Expired),
            Err(error) => {
                tracing::debug!(%error, "a token was refused");
                Err(CloseReason::Unauthorized)
            }
        }
    }

    /// CONNACK, and from here on the keep alive counts.
    pub(crate) fn begin_mqtt(&mut self, slot: u32, begun: &Begun) -> Vec<u8> {
        let shared = self.shared.clone();
        let session = &begun.session;
        let held = |topic: &noroshi_types::Topic| {
            let filter = TopicFilter::parse(topic.as_str()).ok()?;
            Some(Held { filter, options: SubscribeOptions::new(Qos::AtLeastOnce), id: 0 })
        };
        let logged_in = LoggedIn {
            device: session.device.as_str(),
            // Half of a hash: it tells nobody which device.
            origin: (session.device_key >> 64) as u64,
            session_present: false,
            subscriptions: begun.topics.iter().filter_map(held).collect(),
            saved: None,
        };
        let mut out = Vec::new();
        let Some(mqtt) = self.mqtt(slot) else { return Vec::new() };
        let early = mqtt.conversation.logged_in(&shared.config.mqtt, logged_in, &mut out);
        self.send_mqtt(slot, out);
        self.await_mqtt(slot);
        early
    }

    /// When nothing will have been heard for too long.
    fn await_mqtt(&mut self, slot: u32) {
        let Some(mqtt) = self.mqtt(slot) else { return };
        let silence = mqtt.conversation.silence_max_ms().map(std::time::Duration::from_millis);
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

    fn subscribe_mqtt(&mut self, slot: u32, request: SubscribeRequest) {
        let shared = self.shared.clone();
        let Some(app) = self.connection(slot).and_then(|it| it.session.as_ref()).map(|session| session.app)
        else {
            return;
        };
        let mut made = Vec::new();
        self.answer_mqtt(slot, |conversation, out| {
            made = conversation.subscribed(&shared.config.mqtt, request, out)?;
            Ok(())
        });
        for subscribed in made {
            if let Some(topic) = subscribed.filter.topic() {
                let key = shared.registry.topic_key(app, &topic);
                self.subscribe(slot, topic, key, Subscription::own, None);
            }
        }
        self.advance(slot);
    }

    fn unsubscribe_mqtt(&mut self, slot: u32, request: UnsubscribeRequest) {
        let Some(app) = self.connection(slot).and_then(|it| it.session.as_ref()).map(|session| session.app)
        else {
            return;
        };
        let topics = request.filters().filter_map(TopicFilter::topic);
        let keys: Vec<_> = topics.map(|topic| self.shared.registry.topic_key(app, &topic)).collect();
        self.unsubscribe(slot, &keys);
        self.answer_mqtt(slot, |conversation, out| conversation.unsubscribed(request, out));
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
            Framing::WebSocket => ws::frame(Opcode::Binary, &out),
            Framing::Stream | Framing::Events | Framing::Polling => out.into(),
        };
        self.send(slot, bytes);
    }

    /// DISCONNECT, or the CONNACK of who is not let in.
    pub(crate) fn end_mqtt_word(&mut self, slot: u32, reason: CloseReason) {
        let Some(mqtt) = self.mqtt(slot) else { return };
        let mut out = Vec::new();
        mqtt.conversation.close(reason, None, &mut out);
        self.send_mqtt(slot, out);
    }

    /// What the session leaves behind.
    pub(crate) fn part_mqtt(&mut self, _slot: u32, mqtt: Mqtt) {
        drop(mqtt.conversation.part());
    }
}
