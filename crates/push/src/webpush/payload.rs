//! Renders a message for Web Push: the plaintext, which `encryption` seals for each subscription, and the headers. Pure.
//!
//! | Noroshi | Web Push |
//! |---|---|
//! | notification, data, id | plaintext `{"id", "notification", "data"}` for the service worker to show, as on a live connection |
//! | title and url | also `"web_push": 8030` and `notification.navigate`: a declarative push message |
//! | level passive | `notification.silent` |
//! | badge | `app_badge`; browsers expect a URL in `notification.badge` |
//! | actions | `notification.actions` with the standard's names: `action`, `title`, `navigate` |
//! | urgency | `Urgency`, unchanged (RFC 8030 §5.3 has the same four) |
//! | ttl | `TTL`: remaining whole seconds, 0 is now or never (RFC 8030 §5.2) |
//! | collapse key | `Topic`: unchanged, or hashed unless it has at most 32 characters of base64url (RFC 8030 §5.4) |
//!
//! A browser that supports declarative push messages (Push API, "declarative push message") shows the notification
//! itself; any other hands the same JSON to the service worker, which finds the classic members where they always were.

use bytes::Bytes;
use noroshi_types::{PushService, Timestamp};
use serde_json::{Map, Value, json};

use super::encryption::PLAINTEXT_BYTES_MAX;
use crate::collapse::{is_web_push_topic, web_push_topic};
use crate::content;
use crate::fields::{Fields, InvalidContent, own_fields, own_headers};
use crate::shown::{Action, Level, Shown, is_web_url};

const TTL: &str = "TTL";
const URGENCY: &str = "Urgency";
const TOPIC: &str = "Topic";

/// The number that marks a declarative push message.
const DECLARATIVE: u64 = 8_030;

/// The plaintext for the browser or its service worker, and the headers of the request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Payload {
    pub(super) plaintext: Bytes,
    pub(super) urgency: Bytes,
    pub(super) topic: Option<Bytes>,
    ttl: Option<Bytes>,
    expires_at: Timestamp,
}

impl content::Payload for Payload {
    const SERVICE: PushService = PushService::WebPush;

    fn render(fields: &Fields, shown: &Shown) -> Result<Self, InvalidContent> {
        let mut own = own_fields(PushService::WebPush, fields, &["headers", "payload"])?;
        let (mut ttl, mut topic) =
            (None, fields.collapse_key.as_deref().map(|key| web_push_topic(key).into()));
        let mut urgency = Bytes::from_static(fields.urgency.as_str().as_bytes());
        for (name, value) in own_headers(PushService::WebPush, &mut own, &[TTL, URGENCY, TOPIC])? {
            let wrong = |rule: &'static str| {
                Err(InvalidContent::invalid(
                    PushService::WebPush,
                    format!("push.webpush.headers.{name}"),
                    rule,
                ))
            };
            match name {
                // RFC 8030 §5.2: a non-negative number of seconds; 2^31 represents any greater one.
                TTL if value.parse::<u32>().is_ok_and(|seconds| seconds < 1 << 31) => {
                    ttl = Some(value.into())
                }
                TTL => return wrong("must be a whole number of seconds below 2147483648"),
                URGENCY if ["very-low", "low", "normal", "high"].contains(&value.as_str()) => {
                    urgency = value.into();
                }
                URGENCY => return wrong("must be very-low, low, normal or high"),
                _ if is_web_push_topic(&value) => topic = Some(value.into()),
                _ => return wrong("must be 1 to 32 characters of base64url"),
            }
        }
        let plaintext =
            own.remove("payload").map_or_else(|| derived(fields, shown), |payload| payload.to_string());
        let plaintext = Bytes::from(plaintext);
        if plaintext.len() > PLAINTEXT_BYTES_MAX {
            let (bytes, bytes_max) = (plaintext.len(), PLAINTEXT_BYTES_MAX);
            return Err(InvalidContent::TooLarge { service: PushService::WebPush, bytes, bytes_max });
        }
        Ok(Self { plaintext, urgency, topic, ttl, expires_at: fields.expires_at })
    }
}

impl Payload {
    pub(super) fn ttl(&self, now: Timestamp) -> Bytes {
        match &self.ttl {
            Some(own) => own.clone(),
            // Rounded down, so that nothing is delivered after its expiry.
            None => self.expires_at.saturating_since(now).as_secs().to_string().into(),
        }
    }
}

/// Declarative if the notification allows it and the payload fits, else only for service workers.
fn derived(fields: &Fields, shown: &Shown) -> String {
    match navigation(shown) {
        Ok(url) => {
            let whole = plaintext(fields, shown, Some(url));
            if whole.len() <= PLAINTEXT_BYTES_MAX { whole } else { plaintext(fields, shown, None) }
        }
        Err(_) => plaintext(fields, shown, None),
    }
}

/// Why a push is not a declarative push message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undeclared {
    /// "title (required)"; WebKit rejects an empty one as well.
    Title,
    /// "navigate (required)": a URL. A browser opens no other scheme than http and https for a page.
    Url,
    TooLarge,
}

/// Whether the derived payload is a declarative push message.
pub(super) fn declares(fields: &Fields, shown: &Shown) -> Result<(), Undeclared> {
    let url = navigation(shown)?;
    match plaintext(fields, shown, Some(url)).len() <= PLAINTEXT_BYTES_MAX {
        true => Ok(()),
        false => Err(Undeclared::TooLarge),
    }
}

/// Whether the browser also runs the page's service worker, which may show something else. It does by default: a worker
/// that shows classic messages works as in other browsers.
fn is_mutable(shown: &Shown) -> bool {
    shown.mutable.unwrap_or(true)
}

/// The URL that a tap opens.
fn navigation(shown: &Shown) -> Result<&str, Undeclared> {
    if shown.title.as_deref().is_none_or(str::is_empty) {
        return Err(Undeclared::Title);
    }
    shown.url.as_deref().filter(|url| is_web_url(url)).ok_or(Undeclared::Url)
}

/// `navigate`: the URL, if the message is declarative. Embeds the JSON texts unchanged, except for a notification with
/// typed fields.
fn plaintext(fields: &Fields, shown: &Shown, navigate: Option<&str>) -> String {
    let marker = navigate.map(|_| format!("\"web_push\":{DECLARATIVE}"));
    let id = fields.notification_id.map(|id| format!("\"id\":\"{id}\""));
    let notification = fields.notification.as_ref().map(|text| match (shown.has_extras(), navigate) {
        (true, _) => format!("\"notification\":{}", Value::Object(notification(shown, navigate))),
        (false, None) => format!("\"notification\":{}", text.as_str()),
        // A title exists, so the object is not empty.
        (false, Some(url)) => {
            let text = text.as_str().trim_end();
            let open = text.strip_suffix('}').unwrap_or(text);
            format!("\"notification\":{open},\"navigate\":{},\"mutable\":true}}", json!(url))
        }
    });
    let data = fields.data.as_ref().map(|text| format!("\"data\":{}", text.as_str()));
    let badge = shown.badge_count().map(|count| format!("\"app_badge\":{count}"));
    let mutable = navigate.map(|_| format!("\"mutable\":{}", is_mutable(shown)));
    let members: Vec<String> =
        [marker, id, notification, data, badge, mutable].into_iter().flatten().collect();
    format!("{{{}}}", members.join(","))
}

/// The notification with standard names where the standard has a member for a field. Without the fields of other
/// platforms. All members have the type that the standard requires, because browsers may reject the whole otherwise.
fn notification(shown: &Shown, navigate: Option<&str>) -> Map<String, Value> {
    let mut notification = options(shown);
    let mut insert = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            notification.insert(key.to_owned(), value);
        }
    };
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    insert("title", text(&shown.title));
    insert("body", text(&shown.body));
    insert("image", text(&shown.image));
    insert("url", text(&shown.url));
    insert("navigate", navigate.map(Value::from));
    insert("level", shown.level.map(|level| level.as_str().into()));
    insert("thread", text(&shown.thread));
    if navigate.is_some() {
        // Where Safari 18.4 expects them; the standard moved both to the outer object later.
        insert("app_badge", shown.badge_count().map(Value::from));
        insert("mutable", Some(is_mutable(shown).into()));
        // "navigate (required)", also for actions.
        let actions = notification.get_mut("actions").and_then(Value::as_array_mut);
        for action in actions.into_iter().flatten().filter_map(Value::as_object_mut) {
            action.entry("navigate").or_insert_with(|| navigate.into());
        }
    }
    notification
}

/// The typed fields that are members of `NotificationOptions`. FCM passes them on to browsers.
pub(crate) fn options(shown: &Shown) -> Map<String, Value> {
    let mut options = Map::new();
    let mut insert = |key: &str, value: Value| drop(options.insert(key.to_owned(), value));
    if let Some(icon) = shown.icon.as_deref().filter(|icon| is_web_url(icon)) {
        insert("icon", icon.into());
    }
    if let Some(lang) = shown.lang.as_deref() {
        insert("lang", lang.into());
    }
    if let Some(dir) = shown.dir {
        insert("dir", dir.as_str().into());
    }
    if shown.level == Some(Level::Passive) {
        insert("silent", true.into());
    }
    if !shown.actions.is_empty() {
        let action = |action: &Action| {
            let url = action.url.as_deref().filter(|url| is_web_url(url));
            let mut json = json!({"action": action.id, "title": action.title});
            if let Some(url) = url {
                json["navigate"] = url.into();
            }
            json
        };
        insert("actions", shown.actions.iter().map(action).collect());
    }
    options
}

#[cfg(test)]
pub(super) mod tests;
