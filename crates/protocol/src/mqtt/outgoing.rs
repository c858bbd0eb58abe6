//! A message to MQTT connections, encoded once for all of them.
//!
//! A PUBLISH starts with its connection-specific part (§3.3): QoS and flags, the packet length, the packet
//! id, the aliases and subscription identifiers of that connection, and the remaining lifetime. A packet
//! therefore consists of a head of a dozen bytes, written per connection, and a rest that all connections of
//! one version share, [`Outgoing::shared`]. A connection without specific parts (QoS 0, no alias, no
//! identifier) uses the whole packet, [`Outgoing::whole`]: a broadcast is one `Bytes`.

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

/// Shared by all connections; created once per message.
#[derive(Debug)]
pub struct Outgoing {
    pub(super) id: NotificationId,
    pub(super) wants_ack: bool,
    /// The topic's log that contains it, as a number; 0: none. Topics with equal numbers share one order of
    /// acknowledgement.
    pub(super) log: u32,
    pub(super) topic: Arc<str>,
    /// The shared subscription that it was assigned to, if any.
    pub(super) share: Option<Box<str>>,
    /// The maximum QoS.
    pub(super) qos: Qos,
    /// The publisher's retain flag (§3.3.1.3).
    pub(super) retain: bool,
    /// The publisher's origin, for No Local.
    pub(super) from: Option<u64>,
    /// `None`: no message expiry interval, since its publisher set none.
    expires_at: Option<Timestamp>,
    /// The MQTT 5 properties that are not connection-specific, then the payload.
    body: Bytes,
    properties_bytes: usize,
    /// By version. Contains the remaining lifetime in seconds.
    whole: [OnceLock<Whole>; 2],
}

#[derive(Debug)]
struct Whole {
    expiry_s: Option<u32>,
    packet: Bytes,
}

/// A message's remaining lifetime.
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
        // Only the service sends to a device; a device may publish to a topic, and may forge these fields.
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

    /// The topic name that it is published under.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// [MQTT-3.3.2-6]: the received interval minus the whole seconds waited.
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

    /// The size of [`Outgoing::shared`] and of the properties within.
    pub(super) fn shared_bytes(&self, version: Version) -> (usize, usize) {
        match version {
            Version::V3 => (self.body.len() - self.properties_bytes, 0),
            Version::V5 => (self.body.len(), self.properties_bytes),
        }
    }

    /// The packet for a connection without specific parts, at QoS 0 and without the retain flag. `None` if
    /// the cached one contains a different remaining lifetime: the caller then writes a head.
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

/// The content of a message that was not published over MQTT: the JSON object of the native protocol. It is
/// sent with QoS 1 at most, since the service guarantees "at least once".
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
