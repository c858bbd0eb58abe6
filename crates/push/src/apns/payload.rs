//! Renders a message for APNs: the JSON and the headers that do not depend on the device. Pure.
//!
//! | Noroshi | APNs |
//! |---|---|
//! | shown notification | `apns-push-type: alert`, `aps.alert` of title and body, `mutable-content` with an image |
//! | data only | `apns-push-type: background`, `aps.content-available`, always priority 5 |
//! | urgency very-low, low, normal, high | `apns-priority` 1, 5, 10, 10; always 10 for a call, at least 5 for a Live Activity |
//! | the kind of the token (`push.token`) | `apns-push-type`, see `PushType::of_kind` |
//! | ttl | `apns-expiration`: the second at which it ends; 0 (now or never) once it has ended |
//! | collapse key | `apns-collapse-id`: unchanged, or hashed unless it is visible ASCII |
//! | level, relevance, thread, category | `aps.interruption-level`, `relevance-score`, `thread-id`, `category` |
//! | sound, badge | `aps.sound`, `aps.badge`: without texts they make an alert too |
//! | mutable, content_available | `aps.mutable-content`, `aps.content-available` |
//! | url, image, actions | next to `aps`, for the app |
//!
//! The rules are from Apple's "Sending notification requests to APNs" and "Generating a remote notification".

use std::borrow::Cow;

use bytes::Bytes;
use noroshi_types::{PushService, Timestamp, TokenKind, Urgency};
use serde_json::{Map, Value, json};

use crate::collapse;
use crate::content;
use crate::fields::{Fields, InvalidContent, merge_patch, own_fields, own_headers};
use crate::shown::{Action, Level, Shown, Sound};

mod activity;

pub use activity::{ActivityAlert, ActivityEvent, ActivityUpdate};

const PAYLOAD_BYTES_MAX: usize = 4_096;
const PAYLOAD_BYTES_MAX_VOIP: usize = 5_120;
/// Of a broadcast to a channel.
pub const BROADCAST_BYTES_MAX: usize = 5_120;

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

    /// The only push type that APNs accepts for tokens of a kind; `None`: several, see [`push_type_of`].
    fn of_kind(kind: TokenKind) -> Option<Self> {
        match kind {
            TokenKind::Alert => None,
            // Of other services.
            TokenKind::Fcm | TokenKind::WebPush | TokenKind::Webhook | TokenKind::Hms | TokenKind::Wns => {
                None
            }
            TokenKind::Voip => Some(Self::Voip),
            TokenKind::Complication => Some(Self::Complication),
            TokenKind::FileProvider => Some(Self::FileProvider),
            TokenKind::Widgets => Some(Self::Widgets),
            TokenKind::Controls => Some(Self::Controls),
            TokenKind::LiveActivityStart | TokenKind::LiveActivity => Some(Self::LiveActivity),
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

    fn render(fields: &Fields, shown: &Shown) -> Result<Self, InvalidContent> {
        let mut own = own_fields(PushService::Apns, fields, &["headers", "payload"])?;
        let mut headers = Headers::read(&mut own)?;
        headers.fit(fields.kind)?;
        let own_payload = match own.remove("payload") {
            None => Map::new(),
            Some(Value::Object(payload)) => payload,
            Some(_) => return Err(invalid("payload", "must be an object")),
        };
        let mut payload = derived(fields, shown, headers.push_type);
        merge_patch(&mut payload, own_payload);
        if payload.get("aps").is_some_and(|aps| !aps.is_object()) {
            return Err(invalid("payload.aps", "must be an object"));
        }
        let push_type = headers.push_type.unwrap_or_else(|| push_type_of(&payload));
        let told = match push_type {
            PushType::Background => Some("content-available"),
            // "A JSON payload with aps.content-changed": reload the timeline, or the control's value.
            PushType::Widgets | PushType::Controls => Some("content-changed"),
            _ => None,
        };
        if let Some(told) = told
            && let Value::Object(aps) = payload.entry("aps").or_insert_with(|| json!({}))
        {
            let value = if push_type == PushType::Background { json!(1) } else { json!(true) };
            aps.entry(told).or_insert(value);
        }
        let aps = payload.get("aps").unwrap_or(&Value::Null);
        check_aps(push_type, aps)?;
        check_event(fields.kind, aps)?;
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

    /// Sets the push type of the kind of the tokens. A provider may name it too, but no other.
    fn fit(&mut self, kind: Option<TokenKind>) -> Result<(), InvalidContent> {
        let Some(own) = kind.and_then(PushType::of_kind) else { return Ok(()) };
        match self.push_type {
            Some(named) if named != own => {
                let rule = format!("must be \"{}\" for a token of this kind", own.as_str());
                Err(invalid("headers.apns-push-type", rule))
            }
            _ => {
                self.push_type = Some(own);
                Ok(())
            }
        }
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

    /// "background: always use priority 5. Using priority 10 is an error." ActivityKit knows 5 and 10. A call that waits
    /// for the device to wake up is missed.
    fn priority_for(&self, push_type: PushType, urgency: Urgency) -> Result<&'static str, InvalidContent> {
        match (push_type, self.priority) {
            (PushType::Background, None | Some("5")) => Ok("5"),
            (PushType::Background, Some(_)) => {
                Err(invalid("headers.apns-priority", "must be 5 for a background push"))
            }
            (PushType::LiveActivity, Some("1")) => {
                Err(invalid("headers.apns-priority", "must be 5 or 10 for a Live Activity"))
            }
            (_, Some(priority)) => Ok(priority),
            (PushType::Voip, None) => Ok("10"),
            (PushType::LiveActivity, None) if urgency <= Urgency::Low => Ok("5"),
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
fn derived(fields: &Fields, shown: &Shown, push_type: Option<PushType>) -> Map<String, Value> {
    let mut payload = Map::new();
    if push_type == Some(PushType::Mdm) {
        // An MDM payload holds only the device's magic string.
        return payload;
    }
    let mut aps = Map::new();
    if matches!(push_type, None | Some(PushType::Alert)) {
        let mut alert = Map::new();
        insert(&mut alert, "title", shown.title.as_deref());
        insert(&mut alert, "body", shown.body.as_deref());
        aps = typed_aps(shown, !alert.is_empty());
        if !alert.is_empty() {
            aps.insert("alert".to_owned(), Value::Object(alert));
        }
    }
    payload.insert("aps".to_owned(), Value::Object(aps));
    if let Some(id) = fields.notification_id {
        payload.insert("noroshi".to_owned(), json!({"id": id.to_string()}));
    }
    if let Some(data) = fields.data() {
        payload.insert("data".to_owned(), data);
    }
    insert(&mut payload, "url", shown.url.as_deref());
    insert(&mut payload, "image", shown.image.as_deref());
    if !shown.actions.is_empty() {
        payload.insert("actions".to_owned(), shown.actions.iter().map(Action::json).collect());
    }
    payload
}

/// The typed fields in `aps`, without the alert. FCM passes them on to iOS.
pub(crate) fn typed_aps(shown: &Shown, has_alert: bool) -> Map<String, Value> {
    let mut aps = Map::new();
    if let Some(badge) = shown.badge_count() {
        aps.insert("badge".to_owned(), badge.into());
    }
    if let Some(sound) = &shown.sound {
        aps.insert("sound".to_owned(), sound_json(sound));
    }
    if has_alert || !aps.is_empty() {
        insert(&mut aps, "interruption-level", shown.level.map(Level::as_str));
        insert(&mut aps, "thread-id", shown.thread.as_deref());
        insert(&mut aps, "category", shown.category.as_deref());
        if let Some(relevance) = &shown.relevance {
            aps.insert("relevance-score".to_owned(), Value::Number(relevance.clone()));
        }
    }
    // The app's notification service extension fetches the image. It only sees alerts.
    if has_alert && shown.mutable.unwrap_or(shown.image.is_some()) {
        aps.insert("mutable-content".to_owned(), json!(1));
    }
    if shown.content_available == Some(true) {
        aps.insert("content-available".to_owned(), json!(1));
    }
    aps
}

/// "For regular notifications, use the sound string instead" of a dictionary.
fn sound_json(sound: &Sound) -> Value {
    if !sound.is_critical {
        return json!(sound.name);
    }
    let mut fields =
        Map::from_iter([("critical".to_owned(), json!(1)), ("name".to_owned(), json!(sound.name))]);
    if let Some(volume) = &sound.volume {
        fields.insert("volume".to_owned(), Value::Number(volume.clone()));
    }
    Value::Object(fields)
}

fn insert(map: &mut Map<String, Value>, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value.into());
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

/// A token that starts Live Activities updates none, and the token of one starts none.
fn check_event(kind: Option<TokenKind>, aps: &Value) -> Result<(), InvalidContent> {
    match kind {
        Some(TokenKind::LiveActivityStart) if aps["event"] != "start" => {
            Err(invalid("payload.aps.event", "must be start for a token that starts Live Activities"))
        }
        Some(TokenKind::LiveActivity) if aps["event"] == "start" => {
            Err(invalid("payload.aps.event", "must be update or end for the token of a Live Activity"))
        }
        _ => Ok(()),
    }
}

/// Rounded down, so that nothing is delivered after its expiry.
fn expiration(time: Timestamp) -> Expiration {
    Expiration::At { time, seconds: (time.0 / 1_000).to_string().into() }
}

#[cfg(test)]
pub(super) mod tests;
