//! Renders a message for FCM: the `message` of HTTP v1 without the token. Pure.
//!
//! | Noroshi | FCM |
//! |---|---|
//! | shown notification | `notification` of title, body, image; url as `data.noroshi_url` and `webpush.fcmOptions.link` |
//! | data | `data`: strings unchanged, other values as JSON text; plus `noroshi_id` |
//! | data only | for iOS `apns-push-type: background`, priority 5, `content-available` (Apple allows nothing else) |
//! | urgency very-low, low, normal, high | `android.priority` NORMAL, NORMAL, NORMAL, HIGH (`androidV2` has none); plus each platform's own |
//! | ttl | `android.ttl`, `apns-expiration`, `webpush.headers.TTL` |
//! | collapse key | `android.collapseKey`, `apns-collapse-id`, `webpush.headers.Topic` |
//!
//! A token does not reveal its platform, so the message always has a part for each platform. Without it FCM would store
//! a push for iOS for 30 days and one for a browser for 28, whatever the message's ttl. Names follow the discovery
//! document of `fcm.googleapis.com` v1. A provider may also write them in snake case, as proto3's JSON allows; they are
//! normalized before they are merged.

use bytes::{BufMut as _, Bytes, BytesMut};
use noroshi_types::{PushService, Timestamp, Urgency};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::apns::typed_aps;
use crate::collapse;
use crate::content;
use crate::fields::{Fields, InvalidContent, merge_patch, own_fields};
use crate::shown::{Action, Level, Shown};
use crate::webpush::options;

/// The limit of what reaches the device: notification and data.
const PAYLOAD_BYTES_MAX: usize = 4_096;
/// "The maximum time to live supported is 4 weeks."
const TTL_SECONDS_MAX: u64 = 28 * 86_400;

/// The fields of a message that a provider may set: all but its name and its target.
const OWN: [&str; 9] = [
    "notification",
    "data",
    "android",
    "androidV2",
    "android_v2",
    "apns",
    "webpush",
    "fcmOptions",
    "fcm_options",
];

/// A message for FCM without the token and the remaining time to live.
#[derive(Debug)]
pub(crate) struct Payload {
    message: Map<String, Value>,
    expires_at: Timestamp,
    /// Which parts state the remaining time: those that the provider did not set.
    time_left: TimeLeft,
    /// The rendering of the latest second; the remaining time changes once a second. The lock guards only this field.
    rendered: Mutex<Option<(u64, Bytes)>>,
}

#[derive(Debug, Clone, Copy)]
struct TimeLeft {
    /// `android` or `androidV2`: a message has one of them.
    android: Option<&'static str>,
    apns: bool,
    webpush: bool,
}

impl content::Payload for Payload {
    const SERVICE: PushService = PushService::Fcm;

    fn render(fields: &Fields, shown: &Shown) -> Result<Self, InvalidContent> {
        let own = canonical(own_fields(PushService::Fcm, fields, &OWN)?, &OPAQUE);
        let android = match own.contains_key("androidV2") {
            true => "androidV2",
            false => "android",
        };
        let mut message = derived(fields, shown, android);
        if shown.has_extras() {
            let remote = at(&own, &["androidV2", "remoteNotification"]).is_some();
            insert_typed(&mut message, shown, (android == "android" || remote).then_some(android));
        }
        merge_patch(&mut message, own);
        for part in ["notification", "data", "android", "androidV2", "apns", "webpush", "fcmOptions"] {
            if message.get(part).is_some_and(|value| !value.is_object()) {
                return Err(invalid(part, "must be an object"));
            }
        }
        if message.contains_key("android") && message.contains_key("androidV2") {
            return Err(invalid("androidV2", "excludes android: FCM accepts only one of the two"));
        }
        check_data(&message)?;
        let bytes = payload_bytes(&message);
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(InvalidContent::TooLarge {
                service: PushService::Fcm,
                bytes,
                bytes_max: PAYLOAD_BYTES_MAX,
            });
        }
        let time_left = TimeLeft {
            android: at(&message, &[android, "ttl"]).is_none().then_some(android),
            apns: at(&message, &["apns", "headers", "apns-expiration"]).is_none(),
            webpush: at(&message, &["webpush", "headers", "TTL"]).is_none(),
        };
        Ok(Self { message, expires_at: fields.expires_at, time_left, rendered: Mutex::new(None) })
    }
}

impl Payload {
    /// The request's body.
    pub(super) fn body(&self, token: &str, now: Timestamp) -> Bytes {
        let message = self.rendered(now);
        let mut body = BytesMut::with_capacity(message.len() + token.len() + 32);
        body.put_slice(b"{\"message\":{\"token\":\"");
        // The client has validated it: no character needs an escape.
        body.put_slice(token.as_bytes());
        body.put_slice(b"\",");
        // Without its opening brace.
        body.put_slice(message.get(1..).unwrap_or_default());
        body.put_slice(b"}");
        body.freeze()
    }

    fn rendered(&self, now: Timestamp) -> Bytes {
        let seconds = (self.expires_at.saturating_since(now).as_secs()).min(TTL_SECONDS_MAX);
        let mut rendered = self.rendered.lock();
        if let Some((of, text)) = &*rendered
            && *of == seconds
        {
            return text.clone();
        }
        let mut message = self.message.clone();
        if let Some(android) = self.time_left.android {
            put(&mut message, &[android], "ttl", format!("{seconds}s"));
        }
        if self.time_left.apns {
            // 0: one attempt, not stored.
            let time = if seconds == 0 { 0 } else { self.expires_at.0 / 1_000 };
            put(&mut message, &["apns", "headers"], "apns-expiration", time.to_string());
        }
        if self.time_left.webpush {
            put(&mut message, &["webpush", "headers"], "TTL", seconds.to_string());
        }
        let text = Bytes::from(Value::Object(message).to_string());
        *rendered = Some((seconds, text.clone()));
        text
    }
}

fn invalid(field: &str, rule: &'static str) -> InvalidContent {
    InvalidContent::invalid(PushService::Fcm, format!("push.fcm.{field}"), rule)
}

fn derived(fields: &Fields, shown: &Shown, android: &str) -> Map<String, Value> {
    let mut message = Map::new();
    message.insert("data".to_owned(), Value::Object(data(fields, shown)));
    let mut notification = Map::new();
    for (key, value) in [("title", &shown.title), ("body", &shown.body), ("image", &shown.image)] {
        if let Some(value) = value {
            notification.insert(key.to_owned(), json!(value));
        }
    }
    let is_shown = !notification.is_empty();
    if is_shown {
        message.insert("notification".to_owned(), Value::Object(notification));
    }
    let priority = match fields.urgency {
        Urgency::High => "HIGH",
        Urgency::VeryLow | Urgency::Low | Urgency::Normal => "NORMAL",
    };
    // androidV2 has no priority; `remoteNotification` or `backgroundSync` implies it.
    if android == "android" {
        put(&mut message, &[android], "priority", priority);
    }
    put(&mut message, &["webpush", "headers"], "Urgency", fields.urgency.as_str());
    if let Some(key) = &fields.collapse_key {
        put(&mut message, &[android], "collapseKey", &**key);
        put(&mut message, &["apns", "headers"], "apns-collapse-id", collapse::apns_id(key));
        put(&mut message, &["webpush", "headers"], "Topic", collapse::web_push_topic(key));
    }
    let aps = typed_aps(shown, is_shown);
    let is_noticed = is_shown || aps.contains_key("badge") || aps.contains_key("sound");
    for (key, value) in aps {
        put(&mut message, &["apns", "payload", "aps"], &key, value);
    }
    match (is_noticed, fields.urgency) {
        // "When sending payloads containing only data fields to iOS devices, only normal priority is allowed."
        (false, _) => {
            put(&mut message, &["apns", "headers"], "apns-push-type", "background");
            put(&mut message, &["apns", "headers"], "apns-priority", "5");
            put(&mut message, &["apns", "payload", "aps"], "content-available", 1);
        }
        (true, Urgency::VeryLow) => put(&mut message, &["apns", "headers"], "apns-priority", "1"),
        (true, Urgency::Low) => put(&mut message, &["apns", "headers"], "apns-priority", "5"),
        (true, Urgency::Normal | Urgency::High) => {
            put(&mut message, &["apns", "headers"], "apns-priority", "10");
        }
    }
    // "For all URL values, HTTPS is required."
    if let Some(url) = shown.url.as_deref().filter(|url| url.starts_with("https://")) {
        put(&mut message, &["webpush", "fcmOptions"], "link", url);
    }
    message
}

/// The typed fields for Android and browsers; those of iOS are in [`derived`].
///
/// | Noroshi | FCM |
/// |---|---|
/// | sound, badge, level, `android_*` | `android.notification`: `sound`, `notificationCount`, `notificationPriority`, … |
/// | icon, lang, dir, actions, level passive | `webpush.notification`, as for Web Push |
/// | actions | also `data.noroshi_actions`, as JSON text |
/// | fcm_analytics_label | `fcmOptions.analyticsLabel` |
///
/// `android`: the part that holds Android's notification, if it has one.
fn insert_typed(message: &mut Map<String, Value>, shown: &Shown, android: Option<&str>) {
    if let Some(label) = shown.fcm_analytics_label.as_deref() {
        put(message, &["fcmOptions"], "analyticsLabel", label);
    }
    if !message.contains_key("notification") {
        // Android would show a notification without a text.
        return;
    }
    match android {
        Some("androidV2") => {
            put_all(
                message,
                &["androidV2", "remoteNotification", "notification"],
                android_notification(shown),
            );
            if let Some(mutable) = shown.mutable {
                put(message, &["androidV2", "remoteNotification"], "mutableContent", mutable);
            }
        }
        Some(android) => put_all(message, &[android, "notification"], android_notification(shown)),
        None => {}
    }
    put_all(message, &["webpush", "notification"], options(shown));
}

fn android_notification(shown: &Shown) -> Map<String, Value> {
    let mut notification = Map::new();
    let mut insert = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            notification.insert(key.to_owned(), value);
        }
    };
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    insert("channelId", text(&shown.android_channel));
    insert("icon", text(&shown.android_icon));
    insert("color", text(&shown.android_color));
    insert("clickAction", text(&shown.android_click_action));
    // A resource of the app, whose name has no extension. iOS needs the extension.
    let sound = shown.sound.as_ref().and_then(|sound| sound.name.split('.').next());
    insert("sound", sound.filter(|name| !name.is_empty()).map(Value::from));
    // "If zero or unspecified, systems that support badging use the default" of one more.
    insert("notificationCount", shown.badge_count().filter(|count| *count > 0).map(Value::from));
    let priority = shown.level.and_then(|level| match level {
        Level::Passive => Some("PRIORITY_LOW"),
        Level::Active => None,
        Level::TimeSensitive => Some("PRIORITY_HIGH"),
        Level::Critical => Some("PRIORITY_MAX"),
    });
    insert("notificationPriority", priority.map(Value::from));
    notification
}

/// `map<string, string>`.
fn data(fields: &Fields, shown: &Shown) -> Map<String, Value> {
    let mut data: Map<String, Value> = match fields.data() {
        None => Map::new(),
        Some(Value::Object(data)) => data.into_iter().map(|(key, value)| (key, as_string(value))).collect(),
        Some(value) => Map::from_iter([("data".to_owned(), as_string(value))]),
    };
    if let Some(id) = fields.notification_id {
        data.insert("noroshi_id".to_owned(), json!(id.to_string()));
    }
    if let Some(url) = &shown.url {
        data.insert("noroshi_url".to_owned(), json!(url));
    }
    if !shown.actions.is_empty() {
        let actions: Value = shown.actions.iter().map(Action::json).collect();
        data.insert("noroshi_actions".to_owned(), as_string(actions));
    }
    data
}

fn as_string(value: Value) -> Value {
    match value {
        Value::String(_) => value,
        value => Value::String(value.to_string()),
    }
}

/// "The key should not be a reserved word (from, message_type, or any word starting with google. or
/// gcm.notification.)"; the server refuses all of `gcm.`.
fn check_data(message: &Map<String, Value>) -> Result<(), InvalidContent> {
    let reserved = |key: &str| {
        matches!(key, "" | "from" | "message_type") || key.starts_with("google.") || key.starts_with("gcm.")
    };
    let parts: [&[&str]; 4] = [&["data"], &["android", "data"], &["androidV2", "data"], &["webpush", "data"]];
    for path in parts {
        let Some(Value::Object(data)) = at(message, path) else { continue };
        for (key, value) in data {
            let field = format!("{}.{key}", path.join("."));
            match value.is_string() {
                true if reserved(key) => return Err(invalid(&field, "is a key that FCM reserves")),
                true => {}
                false => return Err(invalid(&field, "must be a string: FCM accepts only strings in data")),
            }
        }
    }
    Ok(())
}

/// The size for the platform that receives the most. FCM does not document how it counts. The length of the JSON is at
/// least the sum of its keys and values.
fn payload_bytes(message: &Map<String, Value>) -> usize {
    let bytes = |path: &[&str]| at(message, path).map_or(0, |value| value.to_string().len());
    let data_of = |platform| match bytes(&[platform, "data"]) {
        0 => bytes(&["data"]),
        own => own,
    };
    let platforms = [
        data_of("android") + bytes(&["android", "notification"]),
        data_of("androidV2") + bytes(&["androidV2", "remoteNotification"]),
        bytes(&["data"]) + bytes(&["apns", "payload"]),
        data_of("webpush") + bytes(&["webpush", "notification"]),
    ];
    bytes(&["notification"]) + platforms.into_iter().max().unwrap_or_default()
}

/// Fields whose keys are not FCM's own: the app's data, headers, and payloads of other formats.
const OPAQUE: [&str; 3] = ["data", "headers", "payload"];
const OPAQUE_OF_WEBPUSH: [&str; 4] = ["data", "headers", "payload", "notification"];

/// proto3's JSON accepts `collapse_key` and `collapseKey`, but not both.
fn canonical(map: Map<String, Value>, opaque: &[&str]) -> Map<String, Value> {
    let entry = |(key, value): (String, Value)| {
        let key = camel_case(&key);
        let value = match value {
            Value::Object(inner) if key == "webpush" => Value::Object(canonical(inner, &OPAQUE_OF_WEBPUSH)),
            Value::Object(inner) if !opaque.contains(&key.as_str()) => {
                Value::Object(canonical(inner, opaque))
            }
            value => value,
        };
        (key, value)
    };
    map.into_iter().map(entry).collect()
}

fn camel_case(key: &str) -> String {
    let mut words = key.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut name, word| {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name.push_str(letters.as_str());
        name
    })
}

fn at<'a>(message: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(message.get(*first)?, |value, key| value.get(key))
}

/// Sets a nested value. If the provider put another type in its path, that value stays.
fn put(message: &mut Map<String, Value>, path: &[&str], key: &str, value: impl Into<Value>) {
    let mut inner = message;
    for part in path {
        let next = inner.entry((*part).to_owned()).or_insert_with(|| json!({}));
        let Value::Object(next) = next else { return };
        inner = next;
    }
    inner.insert(key.to_owned(), value.into());
}

/// Sets nested values, if there are any.
fn put_all(message: &mut Map<String, Value>, path: &[&str], values: Map<String, Value>) {
    for (key, value) in values {
        put(message, path, &key, value);
    }
}

#[cfg(test)]
pub(super) mod tests;
