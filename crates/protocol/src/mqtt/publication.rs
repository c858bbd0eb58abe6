//! Converts between a client's publication and a notification's `data`, without loss: other protocols see one
//! JSON object, `{"mqtt": {…}}`, MQTT clients get the published payload and properties. A provider may send
//! such an object too, to control what MQTT clients receive.
//!
//! | field | holds |
//! |---|---|
//! | `json`, `text` or `base64` | the payload: verbatim if it is JSON or text, otherwise in base64 |
//! | `qos`, `retain` | as published, if not 0 and false |
//! | `expires` | the publisher set a message expiry |
//! | `format`, `content_type`, `response_topic`, `correlation`, `user` | the properties |
//! | `from` | the publisher's origin, for No Local: 16 hex digits without other meaning |
//! | `topic`, `share`, `of`, `turn` | only in a copy for a member of a shared subscription ([`ShareCopy`]) |

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use noroshi_types::json::lone_surrogate;
use noroshi_types::{JsonText, Message, NotificationId, Topic};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::topic::{TopicFilter, filter_matches, is_topic_name};
use super::{Properties, Property, PropertyList, Qos, Value};
use crate::native;

/// A message from a client to a topic.
#[derive(Debug, Clone, PartialEq)]
pub struct Publication<'a> {
    pub topic: Topic,
    pub payload: &'a [u8],
    pub qos: Qos,
    /// Retain the message for later subscribers; without a payload, delete the retained message (§3.3.1.3).
    pub retain: bool,
    /// The message expiry interval.
    pub expiry_s: Option<u32>,
    pub(super) properties: Properties<'a>,
}

impl Publication<'_> {
    /// The notification's `data`. `origin` is the publisher's, from its log-in.
    pub fn data(&self, origin: u64) -> JsonText {
        let properties = self.properties;
        let text = |property| properties.text(property).map(Cow::Borrowed);
        let mut envelope = Envelope {
            qos: self.qos as u8,
            retain: self.retain,
            expires: self.expiry_s.is_some(),
            format: properties.number(Property::PayloadFormatIndicator) == Some(1),
            content_type: text(Property::ContentType),
            response_topic: text(Property::ResponseTopic),
            correlation: properties
                .binary(Property::CorrelationData)
                .map(|data| STANDARD.encode(data).into()),
            user: properties.user().map(|(name, value)| (name.into(), value.into())).collect(),
            from: Some(format!("{origin:016x}").into()),
            ..Envelope::default()
        };
        match std::str::from_utf8(self.payload) {
            // Only a payload that is JSON from the first to the last byte is embedded, so that it round-trips
            // exactly. JSON with an unpaired surrogate would make the notification invalid for other clients;
            // it is embedded as text.
            Ok(text) => match serde_json::from_str::<&RawValue>(text) {
                Ok(json) if json.get().len() == text.len() && lone_surrogate(self.payload).is_none() => {
                    envelope.json = Some(json);
                }
                _ => envelope.text = Some(text.into()),
            },
            Err(_) => envelope.base64 = Some(STANDARD.encode(self.payload).into()),
        }
        JsonText::from(Data { mqtt: envelope })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data<'a> {
    #[serde(borrow)]
    mqtt: Envelope<'a>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Envelope<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    json: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    base64: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_default")]
    qos: u8,
    #[serde(skip_serializing_if = "is_default")]
    retain: bool,
    #[serde(skip_serializing_if = "is_default")]
    expires: bool,
    #[serde(skip_serializing_if = "is_default")]
    format: bool,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    content_type: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    response_topic: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    correlation: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Vec::is_empty")]
    user: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    from: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    topic: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    share: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    of: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_default")]
    turn: u32,
}

/// A topic's message as sent to one member of a shared subscription: a message to that device which contains
/// topic and subscription. It stays in the device's inbox until acknowledged, and MQTT clients receive it under
/// its topic through that subscription only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareCopy {
    /// The filter as subscribed ([`super::share_filter`]).
    pub share: Box<str>,
    /// The id of the topic's message.
    pub of: NotificationId,
    /// The number of previous assignments to members.
    pub turn: u32,
    /// The maximum QoS.
    pub qos: Qos,
}

impl ShareCopy {
    /// Returns `None` if the message is not a copy.
    pub fn of(message: &Message) -> Option<Self> {
        // A publisher controls the content of messages to topics, so their fields are not trusted.
        let envelope = Envelope::of_message(message).filter(|_| message.topic.is_none())?;
        let share = TopicFilter::parse(envelope.share.as_deref()?).ok()?;
        share.share()?;
        Some(Self {
            share: share.as_str().into(),
            of: NotificationId::parse(envelope.of.as_deref()?).ok()?,
            turn: envelope.turn,
            qos: Qos::from_bits(envelope.qos)?,
        })
    }

    /// The `data` of a copy of a topic's message, or of another member's copy. Returns `None` if the message
    /// is neither.
    pub fn data(message: &Message, share: &str, turn: u32) -> Option<JsonText> {
        let Some(place) = &message.topic else {
            let envelope = Envelope::of_message(message).filter(|envelope| envelope.share.is_some())?;
            return Some(JsonText::from(Data { mqtt: Envelope { turn, ..envelope } }));
        };
        let topic = place.topic.as_str();
        let native = RawValue::from_string(String::from_utf8(native::message_json(message)).ok()?).ok()?;
        // Other messages are delivered as through a normal subscription of the member.
        let envelope = Envelope::of_message(message).unwrap_or_else(|| Envelope {
            json: Some(&native),
            qos: if message.wants_ack() { Qos::AtLeastOnce } else { Qos::AtMostOnce } as u8,
            expires: true,
            format: true,
            content_type: Some("application/json".into()),
            ..Envelope::default()
        });
        let (topic, share, of) =
            (Some(topic.into()), Some(share.into()), Some(message.id.to_string().into()));
        Some(JsonText::from(Data { mqtt: Envelope { topic, share, of, turn, ..envelope } }))
    }
}

impl From<Data<'_>> for JsonText {
    fn from(data: Data<'_>) -> Self {
        JsonText::from_valid(
            serde_json::to_string(&data).expect("strings and numbers always serialize to JSON"),
        )
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What MQTT clients receive of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) properties: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) expires: bool,
    pub(super) from: Option<u64>,
    /// Topic name and shared subscription.
    pub(super) share: Option<(Box<str>, Box<str>)>,
}

impl Content {
    /// Returns `None` if `data` is not such an object or cannot be expressed in MQTT.
    pub(super) fn from_data(data: &str) -> Option<Self> {
        let mqtt = Envelope::of_data(data)?;
        let share = mqtt.copy();
        if share.is_none() && (mqtt.topic.is_some() || mqtt.share.is_some()) {
            return None;
        }
        let payload = match (&mqtt.json, &mqtt.text, &mqtt.base64) {
            (Some(json), None, None) => json.get().as_bytes().to_vec(),
            (None, Some(text), None) => text.as_bytes().to_vec(),
            (None, None, Some(base64)) => STANDARD.decode(base64.as_bytes()).ok()?,
            _ => return None,
        };
        Some(Self {
            properties: mqtt.properties()?,
            payload,
            qos: Qos::from_bits(mqtt.qos)?,
            retain: mqtt.retain,
            expires: mqtt.expires,
            from: mqtt.from.as_ref().and_then(|from| u64::from_str_radix(from, 16).ok()),
            share,
        })
    }
}

impl<'a> Envelope<'a> {
    fn of_data(data: &'a str) -> Option<Self> {
        // Most data is something else: checking the first key is cheaper than parsing all of it.
        let key = data.trim_start().strip_prefix('{')?.trim_start();
        Some(key.starts_with("\"mqtt\"").then(|| serde_json::from_str::<Data<'_>>(data).ok())??.mqtt)
    }

    fn of_message(message: &'a Message) -> Option<Self> {
        let data = message.data.as_ref().filter(|_| message.notification.is_none())?;
        Self::of_data(data.as_str())
    }

    /// Topic name and shared subscription of a copy. `None` if they are invalid.
    fn copy(&self) -> Option<(Box<str>, Box<str>)> {
        let (topic, share) = (self.topic.as_deref()?, TopicFilter::parse(self.share.as_deref()?).ok()?);
        let (_, filter) = share.share()?;
        let is_heard =
            is_topic_name(topic) && Topic::parse_any(topic).is_ok() && filter_matches(filter, topic);
        is_heard.then(|| (topic.into(), share.as_str().into()))
    }

    /// The properties that are equal for all receivers. `None` if one cannot be encoded.
    fn properties(&self) -> Option<Vec<u8>> {
        let mut list = PropertyList::new();
        if self.format {
            list.push(Property::PayloadFormatIndicator, Value::Byte(1));
        }
        if let Some(text) = &self.content_type {
            list.push(Property::ContentType, Value::Text(writable(text)?));
        }
        if let Some(topic) = &self.response_topic {
            list.push(
                Property::ResponseTopic,
                Value::Text(writable(topic).filter(|topic| is_topic_name(topic))?),
            );
        }
        if let Some(data) = &self.correlation {
            let data = STANDARD.decode(data.as_bytes()).ok()?;
            list.push(Property::CorrelationData, Value::Binary(short(&data)?));
        }
        for (name, value) in &self.user {
            list.push(Property::UserProperty, Value::Pair(writable(name)?, writable(value)?));
        }
        Some(list.into_bytes())
    }
}

/// §1.5.4
fn writable(text: &str) -> Option<&str> {
    short(text.as_bytes()).filter(|bytes| !bytes.contains(&0)).map(|_| text)
}

fn short(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.len() <= usize::from(u16::MAX)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use noroshi_types::{AppId, Epoch, Position, Timestamp, TopicPosition, Urgency, When};

    use super::super::{Outgoing, Version};
    use super::*;

    fn publication<'a>(payload: &'a [u8], properties: Properties<'a>) -> Publication<'a> {
        let topic = Topic::parse("a/b").unwrap();
        Publication { topic, payload, qos: Qos::ExactlyOnce, retain: true, expiry_s: Some(9), properties }
    }

    #[track_caller]
    fn check(payload: &[u8], expected: &str) {
        let mut list = PropertyList::new();
        list.push(Property::PayloadFormatIndicator, Value::Byte(1));
        list.push(Property::UserProperty, Value::Pair("k", "1"));
        list.push(Property::UserProperty, Value::Pair("k", "\""));
        let data = publication(payload, list.properties()).data(0xAB);
        assert_eq!(
            data.as_str(),
            format!(
                r#"{{"mqtt":{{{expected},"qos":2,"retain":true,"expires":true,"format":true,"user":[["k","1"],["k","\""]],"from":"00000000000000ab"}}}}"#
            )
        );
        let content = Content::from_data(data.as_str()).unwrap();
        assert_eq!(content.payload, payload);
        assert_eq!(content.properties, list.into_bytes());
        assert_eq!((content.qos, content.retain, content.expires), (Qos::ExactlyOnce, true, true));
        assert_eq!(content.from, Some(0xAB));
    }

    #[test]
    fn payloads_round_trip_exactly() {
        check(br#"{"t": 20.50}"#, r#""json":{"t": 20.50}"#);
        check(b" 1", r#""text":" 1""#);
        check(b"", r#""text":"""#);
        check("hello \"狼煙\"".as_bytes(), r#""text":"hello \"狼煙\"""#);
        check(b"\xff\x00", r#""base64":"/wA=""#);
        check(br#"{"a":"\ud83d\ude00"}"#, r#""json":{"a":"\ud83d\ude00"}"#);
        // An unpaired surrogate would make the whole notification invalid Unicode.
        check(br#"{"a":"\ud83d"}"#, r#""text":"{\"a\":\"\\ud83d\"}""#);
    }

    fn message(topic: Option<&str>, notification: Option<&str>, data: Option<JsonText>) -> Message {
        let position = Position { epoch: Epoch(1), offset: 3 };
        Message {
            id: NotificationId::from_bytes([3; 16]),
            app: AppId(1),
            when: When::Stored,
            urgency: Urgency::Normal,
            topic: topic.map(|topic| TopicPosition { topic: Topic::parse(topic).unwrap(), position }),
            notification: notification.map(JsonText::from_valid),
            data,
            sent_at: Timestamp(0),
            expires_at: Timestamp(9),
            push_waits: false,
            waits_for_use: false,
            category: None,
        }
    }

    #[test]
    fn shared_copy_matches_a_normal_delivery() {
        let share = "$share/g/a/#";
        let published = publication(b"x", PropertyList::new().properties()).data(0xAB);
        for (notification, data) in [(None, Some(published)), (Some(r#"{"title":"t"}"#), None)] {
            let original = message(Some("a/b"), notification, data);
            let first = ShareCopy::data(&original, share, 0).unwrap();
            let copy = message(None, None, Some(first));
            let of = ShareCopy::of(&copy).unwrap();
            assert_eq!((&*of.share, of.of, of.turn), (share, original.id, 0));
            let (sent, direct) = (Outgoing::new(&copy), Outgoing::new(&original));
            assert_eq!((&*sent.topic, sent.share.as_deref()), ("a/b", Some(share)));
            assert_eq!((sent.qos, sent.retain, sent.from), (direct.qos, direct.retain, direct.from));
            assert_eq!(sent.shared(Version::V5), direct.shared(Version::V5), "byte by byte");
            assert_eq!(of.qos, direct.qos);
            let next = message(None, None, ShareCopy::data(&copy, share, 1));
            let again = ShareCopy::of(&next).unwrap();
            assert_eq!((again.of, again.turn), (original.id, 1));
            assert_eq!(Outgoing::new(&next).shared(Version::V5), direct.shared(Version::V5));
        }
        assert_eq!(ShareCopy::of(&message(Some("a/b"), None, None)), None);
        // A device that may publish to a topic forges the fields of a copy.
        let forged = r#"{"mqtt":{"text":"x","topic":"a/secret","share":"$share/g/a/#","of":"017f22e2-79b0-7cc3-98c4-dc0c0c07398f","turn":4294967295}}"#;
        let forged = |topic| message(topic, None, Some(JsonText::from_valid(forged)));
        let published = forged(Some("a/b"));
        let sent = Outgoing::new(&published);
        assert_eq!((&*sent.topic, sent.share, ShareCopy::of(&published)), ("a/b", None, None));
        let copy = message(None, None, ShareCopy::data(&published, "$share/h/a/b", 0));
        let of = ShareCopy::of(&copy).unwrap();
        assert_eq!(
            (&*of.share, of.of, of.turn),
            ("$share/h/a/b", published.id, 0),
            "its own words say nothing"
        );
        assert_eq!(Outgoing::new(&copy).topic(), "a/b");
        assert_eq!(ShareCopy::data(&message(None, None, None), share, 0), None, "no topic's");
    }

    #[test]
    fn other_data_is_not_an_mqtt_envelope() {
        for other in [
            "{}",
            "[]",
            r#"{"a":1}"#,
            r#"{"mqtt":1}"#,
            r#"{"mqtt":{}}"#,
            r#"{"mqtt":{"text":"a","json":1}}"#,
            r#"{"mqtt":{"text":"a"},"more":1}"#,
            r#"{"mqtt":{"text":"a","new":1}}"#,
            r#"{"mqtt":{"text":"a","qos":3}}"#,
            r#"{"mqtt":{"base64":"!"}}"#,
            r#"{"mqtt":{"text":"a","content_type":"\u0000"}}"#,
            r##"{"mqtt":{"text":"a","response_topic":"#"}}"##,
            r#"{"mqtt":{"text":"a","topic":"a"}}"#,
            r#"{"mqtt":{"text":"a","share":"$share/g/a"}}"#,
            r#"{"mqtt":{"text":"a","topic":"a","share":"a"}}"#,
            r#"{"mqtt":{"text":"a","topic":"b","share":"$share/g/a"}}"#,
            r#"{"mqtt":{"text":"a","topic":"$noroshi/inbox","share":"$share/g/+"}}"#,
        ] {
            assert_eq!(Content::from_data(other), None, "{other}");
        }
        let own = Content::from_data(r#" { "mqtt": {"text": "a"} }"#).unwrap();
        assert_eq!((own.payload.as_slice(), own.qos, own.from), (&b"a"[..], Qos::AtMostOnce, None));
    }
}
