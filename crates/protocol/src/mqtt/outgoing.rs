//! A message on its way to MQTT connections, encoded once for all of them.
//!
//! A PUBLISH has what is its connection's own in front (§3.3): QoS and flags, the packet's length, the
//! packet id, the aliases and identifiers of that connection's subscriptions, and what is left of the
//! message's life. So a packet is two pieces: a head of some dozen bytes, written for each, and a rest that
//! all of one version share, [`Outgoing::shared`]. A connection with nothing of its own (QoS 0, no alias, no
//! identifier) takes the whole packet from here, [`Outgoing::whole`]: a broadcast is one `Bytes`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use noroshi_types::{Message, NotificationId, Timestamp, When};

use super::packet::flags;
use super::property::push_property;
use super::publication::Content;
use super::topic::INBOX_TOPIC;
use super::writer::{push_flagged, push_text, push_var_int};
use super::{PacketType, Property, Qos, Value, Version};
use crate::native;

/// Shared by all connections; made once for a message.
#[derive(Debug)]
pub struct Outgoing {
    pub(super) id: NotificationId,
    pub(super) wants_ack: bool,
    /// Which topic's log holds it, as a number; 0: none does. Two topics of one number confirm in one order.
    pub(super) log: u32,
    pub(super) topic: Arc<str>,
    /// The shared subscription that it is for, where it is for one.
    pub(super) share: Option<Box<str>>,
    /// The most it is sent with.
    pub(super) qos: Qos,
    /// The publisher's retain flag (§3.3.1.3).
    pub(super) retain: bool,
    /// The publisher, for No Local.
    pub(super) from: Option<u64>,
    /// `None`: without a message expiry interval, since its publisher set none.
    expires_at: Option<Timestamp>,
    /// The properties of MQTT 5 without what is a connection's own, then the payload.
    body: Bytes,
    properties_bytes: usize,
    /// By version. What is left of its life is in it, and counted in seconds.
    whole: [OnceLock<Whole>; 2],
}

#[derive(Debug)]
struct Whole {
    expiry_s: Option<u32>,
    packet: Bytes,
}

/// What is left of a message's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Over,
    Endless,
    Seconds(u32),
}

impl Life {
    pub(super) fn expiry_s(self) -> Option<u32> {
        match self {
            Life::Seconds(seconds) => Some(seconds),
            Life::Over | Life::Endless => None,
        }
    }
}

impl Outgoing {
    pub fn new(message: &Message) -> Self {
        let topic = message.topic.as_ref().map(|place| &place.topic).filter(|topic| !topic.is_everyone());
        let topic = topic.map_or(INBOX_TOPIC, |topic| topic.as_str());
        let log = message.topic.as_ref().filter(|_| message.when == When::Stored);
        let log = log.map_or(0, |place| log_number(place.topic.as_str()));
        let data = message.data.as_ref().filter(|_| message.notification.is_none());
        let content = data.and_then(|data| Content::from_data(data.as_str()));
        let content = content.unwrap_or_else(|| native_content(message));
        // Only the service sends to a device; to a topic a device may publish, with these fields too.
        let (topic, share) = match content.share.filter(|_| message.topic.is_none()) {
            Some((topic, share)) => (topic.into(), Some(share)),
            None => (topic.into(), None),
        };
        let properties_bytes = content.properties.len();
        let mut body = content.properties;
        body.extend_from_slice(&content.payload);
        Self {
            id: message.id,
            wants_ack: message.wants_ack(),
            log,
            topic,
            share,
            qos: content.qos,
            retain: content.retain,
            from: content.from,
            expires_at: content.expires.then_some(message.expires_at),
            body: body.into(),
            properties_bytes,
            whole: Default::default(),
        }
    }

    pub fn id(&self) -> NotificationId {
        self.id
    }

    /// The name it is published under.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// [MQTT-3.3.2-6]: what was received, less the whole seconds waited.
    pub(super) fn life(&self, now: Timestamp) -> Life {
        let Some(expires_at) = self.expires_at else { return Life::Endless };
        match expires_at.0.saturating_sub(now.0) {
            0 => Life::Over,
            left_ms => Life::Seconds(u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX)),
        }
    }

    pub(super) fn shared(&self, version: Version) -> Bytes {
        match version {
            Version::V3 => self.body.slice(self.properties_bytes..),
            Version::V5 => self.body.clone(),
        }
    }

    /// How long [`Outgoing::shared`] is, and how much of it is properties.
    pub(super) fn shared_bytes(&self, version: Version) -> (usize, usize) {
        match version {
            Version::V3 => (self.body.len() - self.properties_bytes, 0),
            Version::V5 => (self.body.len(), self.properties_bytes),
        }
    }

    /// The packet of a connection with nothing of its own, at QoS 0 and without the retain flag. `None` if
    /// the one made first says another second of its life: then a head is written.
    pub(super) fn whole(&self, version: Version, life: Life) -> Option<Bytes> {
        let whole = self.whole[usize::from(version == Version::V5)].get_or_init(|| {
            let mut packet = Vec::with_capacity(self.topic.len() + self.body.len() + 16);
            push_flagged(&mut packet, PacketType::Publish, flags(false, Qos::AtMostOnce, false), |out| {
                push_text(out, &self.topic);
                if version == Version::V5 {
                    let own = expiry_bytes(life);
                    push_var_int(out, (own + self.properties_bytes) as u32);
                    push_expiry(out, life);
                }
                out.extend_from_slice(&self.body[self.body.len() - self.shared_bytes(version).0..]);
            });
            Whole { expiry_s: life.expiry_s(), packet: packet.into() }
        });
        (version == Version::V3 || whole.expiry_s == life.expiry_s()).then(|| whole.packet.clone())
    }
}

fn log_number(topic: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    topic.hash(&mut hasher);
    (hasher.finish() as u32).max(1)
}

pub(super) fn expiry_bytes(life: Life) -> usize {
    if life.expiry_s().is_some() { 5 } else { 0 }
}

pub(super) fn push_expiry(out: &mut Vec<u8>, life: Life) {
    if let Some(seconds) = life.expiry_s() {
        push_property(out, Property::MessageExpiryInterval, Value::U32(seconds));
    }
}

/// What was not published over MQTT: the JSON object that the native protocol writes, told as such. It is
/// sent with QoS 1 at most, since what the service promises of it is "at least once".
fn native_content(message: &Message) -> Content {
    let mut properties = Vec::new();
    push_property(&mut properties, Property::PayloadFormatIndicator, Value::Byte(1));
    push_property(&mut properties, Property::ContentType, Value::Text("application/json"));
    Content {
        properties,
        payload: native::message_json(message),
        qos: if message.wants_ack() { Qos::AtLeastOnce } else { Qos::AtMostOnce },
        retain: false,
        expires: true,
        from: None,
        share: None,
    }
}
