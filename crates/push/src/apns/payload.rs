//! Renders a message for APNs: the JSON and the headers that do not depend on the device. Pure.
//!
//! | Noroshi | APNs |
//! |---|---|
//! | shown notification | `apns-push-type: alert`, `aps.alert` of title and body, `mutable-content` with an image |
//! | data only | `apns-push-type: background`, `aps.content-available`, always priority 5 |
//! | urgency very-low, low, normal, high | `apns-priority` 1, 5, 10, 10 |
//! | ttl | `apns-expiration`: the second at which it ends; 0 (now or never) once it has ended |
//! | collapse key | `apns-collapse-id`: unchanged, or hashed unless it is visible ASCII |
//!
//! The rules are from Apple's "Sending notification requests to APNs" and "Generating a remote notification".

use std::borrow::Cow;

use bytes::Bytes;
use noroshi_types::{PushService, Timestamp, Urgency};
use serde_json::{Map, Value, json};

use crate::collapse;
use crate::content;
use crate::fields::{Fields, InvalidContent, merge_patch, own_fields, own_headers};

const PAYLOAD_BYTES_MAX: usize = 4_096;
const PAYLOAD_BYTES_MAX_VOIP: usize = 5_120;

/// The keys of `aps` that the user notices.
const SHOWN: [&str; 3] = ["alert", "badge", "sound"];

/// The headers that a provider may set.
const PUSH_TYPE: &str = "apns-push-type";
const TOPIC: &str = "apns-topic";
const PRIORITY: &str = "apns-priority";
const EXPIRATION: &str = "apns-expiration";
const COLLAPSE_ID: &str = "apns-collapse-id";

noroshi_types::names! {
    /// The purpose of a push: the header `apns-push-type`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum PushType {
        Alert => "alert",
        Background => "background",
        Voip => "voip",
        Complication => "complication",
        FileProvider => "fileprovider",
        Location => "location",
        LiveActivity => "liveactivity",
        PushToTalk => "pushtotalk",
        Widgets => "widgets",
        Controls => "controls",
        Mdm => "mdm",
    }
}

impl PushType {
    /// The suffix of `apns-topic` after the bundle id.
    pub(super) fn topic_suffix(self) -> &'static str {
        match self {
            PushType::Alert | PushType::Background | PushType::Mdm => "",
            PushType::Voip => ".voip",
            PushType::Complication => ".complication",
            PushType::FileProvider => ".pushkit.fileprovider",
            PushType::Location => ".location-query",
            PushType::LiveActivity => ".push-type.liveactivity",
            PushType::PushToTalk => ".voip-ptt",
            PushType::Widgets => ".push-type.widgets",
            PushType::Controls => ".push-type.controls",
        }
    }

    fn payload_bytes_max(self) -> usize {
        match self {
            PushType::Voip => PAYLOAD_BYTES_MAX_VOIP,
            _ => PAYLOAD_BYTES_MAX,
        }
    }
}

/// A message for APNs without the device, the credential's topic and the authorization.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Payload {
    pub(super) body: Bytes,
    pub(super) push_type: PushType,
    /// The provider's own topic, complete.
    pub(super) topic: Option<Bytes>,
    pub(super) priority: &'static str,
    pub(super) expiration: Expiration,
    pub(super) collapse_id: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expiration {
    Own(Bytes),
    At { time: Timestamp, seconds: Bytes },
}

impl Expiration {
    pub(super) fn value(&self, now: Timestamp) -> Bytes {
        match self {
            Expiration::Own(value) => value.clone(),
            Expiration::At { time, seconds } if *time > now => seconds.clone(),
            // One attempt, not stored.
            Expiration::At { .. } => Bytes::from_static(b"0"),
        }
    }
}

impl content::Payload for Payload {
    const SERVICE: PushService = PushService::Apns;

    fn new(fields: &Fields) -> Result<Self, InvalidContent> {
        let mut own = own_fields(PushService::Apns, fields.apns.as_ref(), &["headers", "payload"])?;
        let headers = Headers::read(&mut own)?;
        let own_payload = match own.remove("payload") {
            None => Map::new(),
            Some(Value::Object(payload)) => payload,
            Some(_) => return Err(invalid("payload", "must be an object")),
        };
        let mut payload = derived(fields, headers.push_type);
        merge_patch(&mut payload, own_payload);
        if payload.get("aps").is_some_and(|aps| !aps.is_object()) {
            return Err(invalid("payload.aps", "must be an object"));
        }
        let push_type = headers.push_type.unwrap_or_else(|| push_type_of(&payload));
        if push_type == PushType::Background {
            let aps = payload.entry("aps").or_insert_with(|| json!({}));
            if let Value::Object(aps) = aps {
                aps.entry("content-available").or_insert(json!(1));
            }
        }
        check_aps(push_type, payload.get("aps").unwrap_or(&Value::Null))?;
        let body = Bytes::from(Value::Object(payload).to_string());
        let bytes_max = push_type.payload_bytes_max();
        if body.len() > bytes_max {
            return Err(InvalidContent::TooLarge {
                service: PushService::Apns,
                bytes: body.len(),
                bytes_max,
            });
        }
        Ok(Self {
            body,
            push_type,
            topic: headers.topic_for(push_type)?,
            priority: headers.priority_for(push_type, fields.urgency)?,
            expiration: headers.expiration.map_or_else(|| expiration(fields.expires_at), Expiration::Own),
            collapse_id: headers
                .collapse_id
                .or_else(|| fields.collapse_key.as_deref().map(|key| collapse::apns_id(key).into())),
        })
    }
}

/// The headers that the provider set, each validated separately.
#[derive(Default)]
struct Headers {
    push_type: Option<PushType>,
    topic: Option<String>,
    priority: Option<&'static str>,
    expiration: Option<Bytes>,
    collapse_id: Option<Bytes>,
}

impl Headers {
    fn read(own: &mut Map<String, Value>) -> Result<Self, InvalidContent> {
        let mut headers = Self::default();
        let allowed = [PUSH_TYPE, TOPIC, PRIORITY, EXPIRATION, COLLAPSE_ID];
        for (name, value) in own_headers(PushService::Apns, own, &allowed)? {
            let wrong = |rule: &'static str| invalid(&format!("headers.{name}"), rule);
            match name {
                PUSH_TYPE => {
                    let found = PushType::named(&value);
                    headers.push_type = Some(found.ok_or_else(|| wrong("must be a push type of APNs"))?);
                }
                TOPIC => headers.topic = Some(value),
                PRIORITY => {
                    let found = ["1", "5", "10"].into_iter().find(|priority| *priority == value);
                    headers.priority = Some(found.ok_or_else(|| wrong("must be 1, 5 or 10"))?);
                }
                EXPIRATION if value.parse::<u32>().is_ok() => headers.expiration = Some(value.into()),
                EXPIRATION => return Err(wrong("must be a time in seconds since 1970, or 0")),
                _ if value.len() <= collapse::APNS_ID_BYTES_MAX => headers.collapse_id = Some(value.into()),
                _ => return Err(wrong("must be at most 64 bytes")),
            }
        }
        Ok(headers)
    }

    fn topic_for(&self, push_type: PushType) -> Result<Option<Bytes>, InvalidContent> {
        match &self.topic {
            Some(topic) if !topic.ends_with(push_type.topic_suffix()) => {
                let rule = format!("must end in \"{}\" for this push type", push_type.topic_suffix());
                Err(invalid("headers.apns-topic", rule))
            }
            topic => Ok(topic.clone().map(Bytes::from)),
        }
    }

    /// "background: always use priority 5. Using priority 10 is an error."
    fn priority_for(&self, push_type: PushType, urgency: Urgency) -> Result<&'static str, InvalidContent> {
        match (push_type, self.priority) {
            (PushType::Background, None | Some("5")) => Ok("5"),
            (PushType::Background, Some(_)) => {
                Err(invalid("headers.apns-priority", "must be 5 for a background push"))
            }
            (_, Some(priority)) => Ok(priority),
            (_, None) => Ok(match urgency {
                Urgency::VeryLow => "1",
                Urgency::Low => "5",
                Urgency::Normal | Urgency::High => "10",
            }),
        }
    }
}

fn invalid(field: &str, rule: impl Into<Cow<'static, str>>) -> InvalidContent {
    InvalidContent::invalid(PushService::Apns, format!("push.apns.{field}"), rule)
}

/// The payload before the provider's fields override it. Visible text is derived only for push types that show it; the
/// others (a call, an activity, a widget) have formats that only the provider knows.
fn derived(fields: &Fields, push_type: Option<PushType>) -> Map<String, Value> {
    let mut payload = Map::new();
    if push_type == Some(PushType::Mdm) {
        // An MDM payload holds only the device's magic string.
        return payload;
    }
    let mut aps = Map::new();
    let shown = fields.shown().unwrap_or_default();
    if matches!(push_type, None | Some(PushType::Alert)) {
        let mut alert = Map::new();
        insert(&mut alert, "title", shown.title);
        insert(&mut alert, "body", shown.body);
        if !alert.is_empty() {
            aps.insert("alert".to_owned(), Value::Object(alert));
            if shown.image.is_some() {
                // The app's notification service extension fetches the image.
                aps.insert("mutable-content".to_owned(), json!(1));
            }
        }
    }
    payload.insert("aps".to_owned(), Value::Object(aps));
    if let Some(id) = fields.notification_id {
        payload.insert("noroshi".to_owned(), json!({"id": id.to_string()}));
    }
    if let Some(data) = fields.data() {
        payload.insert("data".to_owned(), data);
    }
    insert(&mut payload, "url", shown.url);
    insert(&mut payload, "image", shown.image);
    payload
}

fn insert(map: &mut Map<String, Value>, key: &str, value: Option<String>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), Value::String(value));
    }
}

/// "alert: for notifications that trigger a user interaction, for example an alert, badge, or sound."
fn push_type_of(payload: &Map<String, Value>) -> PushType {
    let aps = payload.get("aps");
    match SHOWN.iter().any(|key| aps.is_some_and(|aps| aps.get(key).is_some())) {
        true => PushType::Alert,
        false => PushType::Background,
    }
}

/// Rules of Apple for `aps` whose violation APNs does not report: the device would just ignore the push.
fn check_aps(push_type: PushType, aps: &Value) -> Result<(), InvalidContent> {
    match push_type {
        // "The payload must contain content-available, and not alert, sound or badge."
        PushType::Background if SHOWN.iter().any(|key| aps.get(key).is_some()) => {
            Err(invalid("payload.aps", "must have no alert, badge or sound in a background push"))
        }
        PushType::Background if aps["content-available"] != 1 => {
            Err(invalid("payload.aps.content-available", "must be 1 in a background push"))
        }
        PushType::LiveActivity if !["start", "update", "end"].iter().any(|event| aps["event"] == *event) => {
            Err(invalid("payload.aps.event", "must be start, update or end for a Live Activity"))
        }
        PushType::LiveActivity if !aps["timestamp"].is_number() => {
            Err(invalid("payload.aps.timestamp", "must be the time in seconds for a Live Activity"))
        }
        _ => Ok(()),
    }
}

/// Rounded down, so that nothing is delivered after its expiry.
fn expiration(time: Timestamp) -> Expiration {
    Expiration::At { time, seconds: (time.0 / 1_000).to_string().into() }
}

#[cfg(test)]
mod tests;
