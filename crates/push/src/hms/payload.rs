//! Renders a message for Huawei Push Kit: a notification, or a background message of data. Pure.
//!
//! | Noroshi | Push Kit v3 |
//! |---|---|
//! | title, body, image | `notification.title`, `body`, `image`; the beginning of the title replaces a missing body and the reverse, because both are required |
//! | id, url, data | `noroshi_id`, `noroshi_url` and `data` in `notification.clickAction.data`, which the app reads when it is opened |
//! | data without a visible part | `push-type: 6`, and the same three as JSON text in `extraData` |
//! | badge | `notification.badge.setNum`, at most 99 |
//! | sound | `notification.sound`, unless it is "default" |
//! | collapse key | `notification.notifyId`: 31 bits of its hash; a notification replaces one with the same |
//! | ttl | `pushOptions.ttl` in seconds, 1 to 1,296,000 |

use bytes::{BufMut as _, Bytes, BytesMut};
use noroshi_types::{PushService, Timestamp};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::config::is_category;
use crate::content;
use crate::fields::{Fields, InvalidContent, merge_patch, own_fields};
use crate::shown::Shown;

/// "The message body, without tokens, exceeds 4,096 bytes."
const PAYLOAD_BYTES_MAX: usize = 4_096;
/// 15 days.
const TTL_SECONDS_MAX: u64 = 1_296_000;
/// "0 <= setNum < 100"
pub(super) const BADGE_MAX: u32 = 99;

/// About a line.
const SHORT_CHARS_MAX: usize = 60;

const ALERT: &str = "0";
const BACKGROUND: &str = "6";
const OWN: [&str; 3] = ["push_type", "payload", "pushOptions"];

/// The message without its token, category and remaining time.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(super) push_type: Bytes,
    payload: Map<String, Value>,
    options: Map<String, Value>,
    expires_at: Timestamp,
    /// The rendering of the latest second; the remaining time changes once a second. The lock guards only this field.
    rendered: Mutex<Option<Rendered>>,
}

#[derive(Debug)]
struct Rendered {
    seconds: u64,
    category: Box<str>,
    /// The body up to its token.
    head: Bytes,
}

impl content::Payload for Payload {
    const SERVICE: PushService = PushService::Hms;

    fn render(fields: &Fields, shown: &Shown) -> Result<Self, InvalidContent> {
        let mut own = own_fields(PushService::Hms, fields, &OWN)?;
        let push_type = match own.remove("push_type") {
            None => None,
            Some(Value::Number(number)) if number.as_u64().is_some_and(|number| number < 100) => {
                Some(number.to_string())
            }
            Some(_) => return Err(invalid("push_type", "must be a number, such as 0 for a notification")),
        };
        let (derived_type, mut payload) = derived(fields, shown);
        // The fields of another type are the provider's alone.
        if push_type.as_deref().is_some_and(|push_type| push_type != derived_type) {
            payload.clear();
        }
        let mut options = Map::new();
        for (name, target) in [("payload", &mut payload), ("pushOptions", &mut options)] {
            match own.remove(name) {
                None => {}
                Some(Value::Object(patch)) => merge_patch(target, patch),
                Some(_) => return Err(invalid(name, "must be an object")),
            }
        }
        if let Some(category) =
            payload.get("notification").and_then(|notification| notification.get("category"))
            && !category.as_str().is_some_and(is_category)
        {
            return Err(invalid("payload.notification.category", "must be capital letters, digits and `_`"));
        }
        let push_type = Bytes::from(push_type.unwrap_or_else(|| derived_type.to_owned()));
        let rendered = Mutex::new(None);
        let rendered = Self { push_type, payload, options, expires_at: fields.expires_at, rendered };
        // All categories that an app may have are this long at most.
        let bytes = rendered.body("", "DEVICE_REMINDER", fields.expires_at).len();
        match bytes <= PAYLOAD_BYTES_MAX {
            true => Ok(rendered),
            false => {
                let (service, bytes_max) = (PushService::Hms, PAYLOAD_BYTES_MAX);
                Err(InvalidContent::TooLarge { service, bytes, bytes_max })
            }
        }
    }
}

impl Payload {
    /// `token` and `category` need no escapes.
    pub(super) fn body(&self, token: &str, category: &str, now: Timestamp) -> Bytes {
        let head = self.head(category, now);
        let mut body = BytesMut::with_capacity(head.len() + token.len() + 8);
        body.put_slice(&head);
        body.put_slice(token.as_bytes());
        body.put_slice(b"\"]}}");
        body.freeze()
    }

    fn head(&self, category: &str, now: Timestamp) -> Bytes {
        let seconds = self.expires_at.saturating_since(now).as_secs().clamp(1, TTL_SECONDS_MAX);
        let mut rendered = self.rendered.lock();
        if let Some(last) = &*rendered
            && last.seconds == seconds
            && *last.category == *category
        {
            return last.head.clone();
        }
        let (mut payload, mut options) = (self.payload.clone(), self.options.clone());
        if let Some(Value::Object(notification)) = payload.get_mut("notification") {
            notification.entry("category").or_insert_with(|| json!(category));
        }
        options.entry("ttl").or_insert_with(|| json!(seconds));
        let (payload, options) = (Value::Object(payload), Value::Object(options));
        let head = format!("{{\"payload\":{payload},\"pushOptions\":{options},\"target\":{{\"token\":[\"");
        let head = Bytes::from(head);
        *rendered = Some(Rendered { seconds, category: category.into(), head: head.clone() });
        head
    }
}

fn invalid(field: &str, rule: &'static str) -> InvalidContent {
    InvalidContent::invalid(PushService::Hms, format!("push.hms.{field}"), rule)
}

fn derived(fields: &Fields, shown: &Shown) -> (&'static str, Map<String, Value>) {
    let mut data = Map::new();
    if let Some(id) = fields.notification_id {
        data.insert("noroshi_id".to_owned(), json!(id.to_string()));
    }
    if let Some(url) = &shown.url {
        data.insert("noroshi_url".to_owned(), json!(url));
    }
    if let Some(own) = fields.data() {
        data.insert("data".to_owned(), own);
    }
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (title, body) = (filled(&shown.title), filled(&shown.body));
    let (Some(title), Some(body)) =
        (title.clone().or(body.as_deref().map(short)), body.or(title.as_deref().map(short)))
    else {
        let extra = Value::Object(data).to_string();
        return (BACKGROUND, Map::from_iter([("extraData".to_owned(), json!(extra))]));
    };
    let mut notification = Map::new();
    let mut add = |name: &str, value: Value| notification.insert(name.to_owned(), value);
    add("title", json!(title));
    add("body", json!(body));
    // Opens the app's home page: another page must be declared by the app.
    add("clickAction", json!({"actionType": 0, "data": data}));
    if let Some(image) = &shown.image {
        add("image", json!(image));
    }
    if let Some(badge) = shown.badge_count() {
        add("badge", json!({"setNum": badge.min(BADGE_MAX)}));
    }
    if let Some(sound) = shown.sound.as_ref().filter(|sound| sound.name != "default") {
        add("sound", json!(sound.name));
    }
    if let Some(key) = &fields.collapse_key {
        let hash = digest(&SHA256, key.as_bytes());
        let number = hash.as_ref()[..4].iter().fold(0, |number: u32, byte| number << 8 | u32::from(*byte));
        add("notifyId", json!(number >> 1));
    }
    (ALERT, Map::from_iter([("notification".to_owned(), Value::Object(notification))]))
}

/// What stands for a missing text.
fn short(text: &str) -> String {
    text.chars().take(SHORT_CHARS_MAX).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::content::Payload as _;
    use crate::fields::tests::{fields, json_text, own_fields};

    /// What the service receives.
    pub(crate) fn rendered(fields: &Fields) -> Bytes {
        Payload::new(fields).unwrap().body("T", "MARKETING", Timestamp(0))
    }

    fn body(fields: &Fields) -> Value {
        serde_json::from_slice(&rendered(fields)).unwrap()
    }

    fn own(own: &Value) -> Result<Payload, InvalidContent> {
        let notification = json_text(&json!({"title": "T", "body": "B"}));
        Payload::new(&Fields { notification, own: own_fields(PushService::Hms, own), ..fields() })
    }

    #[test]
    fn a_notification_has_title_body_and_click_data() {
        let full = Fields {
            notification: json_text(
                &json!({"title": "T", "body": "B", "image": "https://i/x.png", "url": "https://a/",
                "badge": 120, "sound": "ring.mp3"}),
            ),
            data: json_text(&json!({"n": 1})),
            collapse_key: Some("k".into()),
            ..fields()
        };
        let rendered = body(&full);
        let notification = &rendered["payload"]["notification"];
        let id = "0197b3f0-1111-7222-8333-444455556666";
        assert_eq!(
            notification["clickAction"],
            json!({"actionType": 0, "data":
            {"noroshi_id": id, "noroshi_url": "https://a/", "data": {"n": 1}}})
        );
        for (name, value) in [
            ("title", json!("T")),
            ("body", json!("B")),
            ("category", json!("MARKETING")),
            ("image", json!("https://i/x.png")),
            ("badge", json!({"setNum": 99})),
            ("sound", json!("ring.mp3")),
        ] {
            assert_eq!(notification[name], value, "{name}");
        }
        let number = notification["notifyId"].as_u64().unwrap();
        assert!(number < 1 << 31);
        assert_eq!(body(&full)["payload"]["notification"]["notifyId"], json!(number));
        assert_eq!(rendered["pushOptions"], json!({"ttl": 86_400}));
        assert_eq!(Payload::new(&full).unwrap().push_type, "0");
        for (typed, title, text) in
            [(json!({"title": "T"}), "T", "T"), (json!({"body": "B", "title": ""}), "B", "B")]
        {
            let rendered = body(&Fields { notification: json_text(&typed), ..fields() });
            let notification = &rendered["payload"]["notification"];
            assert_eq!((&notification["title"], &notification["body"]), (&json!(title), &json!(text)));
        }
    }

    #[test]
    fn data_alone_is_a_background_message() {
        let data = Fields { data: json_text(&json!({"n": 1})), ..fields() };
        let payload = Payload::new(&data).unwrap();
        assert_eq!(payload.push_type, "6");
        let extra: Value =
            serde_json::from_str(body(&data)["payload"]["extraData"].as_str().unwrap()).unwrap();
        assert_eq!(extra, json!({"noroshi_id": "0197b3f0-1111-7222-8333-444455556666", "data": {"n": 1}}));
    }

    #[test]
    fn the_ttl_stays_within_huaweis_limits() {
        let seconds = |expires_at, now| {
            let payload = Payload::new(&Fields { expires_at: Timestamp(expires_at), ..fields() }).unwrap();
            let body: Value = serde_json::from_slice(&payload.body("T", "IM", Timestamp(now))).unwrap();
            body["pushOptions"]["ttl"].clone()
        };
        assert_eq!(seconds(90_999, 0), json!(90));
        assert_eq!(seconds(0, 5_000), json!(1));
        assert_eq!(seconds(u64::MAX / 2, 0), json!(1_296_000));
    }

    #[test]
    fn a_body_has_its_own_token_category_and_time() {
        let payload = Payload::new(&Fields {
            notification: json_text(&json!({"title": "T", "body": "B"})),
            expires_at: Timestamp(90_000),
            ..fields()
        });
        let payload = payload.unwrap();
        for (token, category, now) in [("A", "IM", 0), ("B", "IM", 0), ("B", "VOIP", 0), ("B", "VOIP", 5_000)]
        {
            let body: Value = serde_json::from_slice(&payload.body(token, category, Timestamp(now))).unwrap();
            assert_eq!(body["target"], json!({"token": [token]}));
            assert_eq!(body["payload"]["notification"]["category"], json!(category));
            assert_eq!(body["pushOptions"], json!({"ttl": 90 - now / 1_000}));
        }
    }

    #[test]
    fn own_fields_override_derived_ones() {
        let payload = own(&json!({"payload": {"notification": {"category": "IM", "body": null, "x": 1}},
            "pushOptions": {"testMessage": true, "ttl": 5}}))
        .unwrap();
        let body: Value = serde_json::from_slice(&payload.body("T", "MARKETING", Timestamp(0))).unwrap();
        let notification = &body["payload"]["notification"];
        assert_eq!(
            (&notification["category"], notification.get("body"), &notification["x"]),
            (&json!("IM"), None, &json!(1))
        );
        assert_eq!(body["pushOptions"], json!({"testMessage": true, "ttl": 5}));
        let call = own(&json!({"push_type": 10, "payload": {"extraData": "x"}})).unwrap();
        assert_eq!(
            (call.push_type.as_ref(), call.payload),
            (&b"10"[..], json!({"extraData": "x"}).as_object().unwrap().clone())
        );
        for (bad, field) in [
            (json!({"push_type": "0"}), "push_type"),
            (json!({"payload": 1}), "payload"),
            (json!({"x": 1}), "x"),
            (json!({"target": {}}), "target"),
            (json!({"payload": {"notification": {"category": "a\"b"}}}), "payload.notification.category"),
        ] {
            let refused = own(&bad);
            assert!(
                matches!(&refused, Err(InvalidContent::Invalid { field: at, .. }) if *at == format!("push.hms.{field}")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn the_limit_counts_the_body_without_the_token() {
        let with = |length| Payload::new(&Fields { data: json_text(&json!("x".repeat(length))), ..fields() });
        assert!(with(3_900).is_ok());
        assert!(matches!(with(4_100), Err(InvalidContent::TooLarge { bytes_max: 4_096, .. })));
    }
}
