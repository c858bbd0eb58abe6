//! What a client publishes, as a notification's `data` and back, without loss: other protocols see one JSON
//! object, `{"mqtt": {…}}`, and MQTT clients see the payload and properties as they were published. A
//! provider may send such an object too, to choose what MQTT clients get.
//!
//! | field | holds |
//! |---|---|
//! | `json`, `text` or `base64` | the payload: as it is where it is JSON or text, else in base64 |
//! | `qos`, `retain` | as published, where not 0 and false |
//! | `expires` | the publisher set a message expiry |
//! | `format`, `content_type`, `response_topic`, `correlation`, `user` | the properties |
//! | `from` | who published, for No Local: 16 hex digits that say nothing else |

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use noroshi_types::json::lone_surrogate;
use noroshi_types::{JsonText, Topic};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::topic::is_topic_name;
use super::{Properties, Property, PropertyList, Qos, Value};

/// A message from a client to a topic.
#[derive(Debug, Clone, PartialEq)]
pub struct Publication<'a> {
    pub topic: Topic,
    pub payload: &'a [u8],
    pub qos: Qos,
    /// To be kept for later subscribers; without a payload, what is kept is to be forgotten (§3.3.1.3).
    pub retain: bool,
    /// The message expiry interval.
    pub expiry_s: Option<u32>,
    pub(super) properties: Properties<'a>,
}

impl Publication<'_> {
    /// The notification's `data`. `origin` is the publisher's, as in its log-in.
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
            // Only what is JSON from its first byte to its last comes back byte by byte. JSON with half of a surrogate
            // pair would make the notification unreadable for other clients: as a text it is whole.
            Ok(text) => match serde_json::from_str::<&RawValue>(text) {
                Ok(json) if json.get().len() == text.len() && lone_surrogate(self.payload).is_none() => {
                    envelope.json = Some(json);
                }
                _ => envelope.text = Some(text.into()),
            },
            Err(_) => envelope.base64 = Some(STANDARD.encode(self.payload).into()),
        }
        let data = serde_json::to_string(&Data { mqtt: envelope });
        JsonText::from_valid(data.expect("strings and numbers into memory cannot fail"))
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
    #[serde(skip_serializing_if = "is_zero")]
    qos: u8,
    #[serde(skip_serializing_if = "is_false")]
    retain: bool,
    #[serde(skip_serializing_if = "is_false")]
    expires: bool,
    #[serde(skip_serializing_if = "is_false")]
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
}

fn is_zero(number: &u8) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What MQTT clients get of a published message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) properties: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) expires: bool,
    pub(super) from: Option<u64>,
}

impl Content {
    /// `None` if `data` is no such object, or one that MQTT could not say.
    pub(super) fn from_data(data: &str) -> Option<Self> {
        // Most data is something else: a look at the first key costs less than parsing all.
        let key = data.trim_start().strip_prefix('{')?.trim_start();
        let mqtt: Envelope<'_> =
            key.starts_with("\"mqtt\"").then(|| serde_json::from_str::<Data<'_>>(data).ok())??.mqtt;
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
        })
    }
}

impl Envelope<'_> {
    /// Those that are the same for every receiver. `None` if one cannot be written.
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
    fn payloads_come_back_byte_by_byte() {
        check(br#"{"t": 20.50}"#, r#""json":{"t": 20.50}"#);
        check(b" 1", r#""text":" 1""#);
        check(b"", r#""text":"""#);
        check("hello \"狼煙\"".as_bytes(), r#""text":"hello \"狼煙\"""#);
        check(b"\xff\x00", r#""base64":"/wA=""#);
        check(br#"{"a":"\ud83d\ude00"}"#, r#""json":{"a":"\ud83d\ude00"}"#);
        // Half of a pair would make the whole notification no Unicode.
        check(br#"{"a":"\ud83d"}"#, r#""text":"{\"a\":\"\\ud83d\"}""#);
    }

    #[test]
    fn other_data_is_not_taken_for_it() {
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
        ] {
            assert_eq!(Content::from_data(other), None, "{other}");
        }
        let own = Content::from_data(r#" { "mqtt": {"text": "a"} }"#).unwrap();
        assert_eq!((own.payload.as_slice(), own.qos, own.from), (&b"a"[..], Qos::AtMostOnce, None));
    }
}
