//! Renders a message for WNS: a toast, a badge, or raw JSON for the app. Pure.
//!
//! | Noroshi | WNS |
//! |---|---|
//! | title, body | a toast with the template `ToastGeneric`: two `text` elements |
//! | image, icon | `image` with the placement `hero`; with `appLogoOverride` |
//! | id, url, data | JSON in `launch`, which the app reads when it is opened |
//! | actions | `action` elements: a URL is opened by its protocol, others start the app with JSON in `arguments` |
//! | level | passive: `X-WNS-SuppressPopup`; time-sensitive, critical: `scenario="urgent"` |
//! | lang | `lang` of `visual` |
//! | badge without a text | `wns/badge` |
//! | data without a visible part | `wns/raw` with `{"id", "data"}` |
//! | collapse key | `X-WNS-Tag`: unchanged, or hashed unless it has at most 16 letters and digits |
//! | ttl | `X-WNS-TTL` in seconds |
//! | urgency | `X-WNS-PRIORITY`: 1 (high) to 4 (very low) |

use bytes::Bytes;
use noroshi_types::{PushService, Timestamp, Urgency};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::xml;
use crate::content;
use crate::fields::{Fields, InvalidContent, own_fields, own_headers};
use crate::shown::{Action, Level, Shown, is_web_url};

/// "The notification payload exceeds the 5000 byte size limit."
const PAYLOAD_BYTES_MAX: usize = 5_000;
/// "A string of no more than 16 alphanumeric characters"
const TAG_LENGTH_MAX: usize = 16;

const CACHE: &str = "x-wns-cache-policy";
const TAG: &str = "x-wns-tag";
const GROUP: &str = "x-wns-group";
const TTL: &str = "x-wns-ttl";
const SUPPRESS: &str = "x-wns-suppresspopup";
const PRIORITY: &str = "x-wns-priority";

noroshi_types::names! {
    /// `X-WNS-Type`
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Kind {
        Toast => "wns/toast",
        Tile => "wns/tile",
        Badge => "wns/badge",
        Raw => "wns/raw",
    }
}

impl Kind {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Kind::Toast | Kind::Tile | Kind::Badge => "text/xml",
            Kind::Raw => "application/octet-stream",
        }
    }
}

/// The body, and the headers that all devices share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Payload {
    pub(super) kind: Kind,
    pub(super) body: Bytes,
    pub(super) headers: Vec<(&'static str, Bytes)>,
    /// The provider set no TTL.
    pub(super) has_derived_ttl: bool,
    expires_at: Timestamp,
}

impl content::Payload for Payload {
    const SERVICE: PushService = PushService::Wns;

    fn render(fields: &Fields, shown: &Shown) -> Result<Self, InvalidContent> {
        let mut own = own_fields(PushService::Wns, fields, &["type", "payload", "headers"])?;
        let own_kind = match own.remove("type") {
            None => None,
            Some(Value::String(name)) => match Kind::named(&name) {
                Some(kind) => Some(kind),
                None => return Err(invalid("type", "must be wns/toast, wns/tile, wns/badge or wns/raw")),
            },
            Some(_) => return Err(invalid("type", "must be a string")),
        };
        let (derived_kind, derived) = derived(fields, shown);
        let (kind, body) = match (own_kind, own.remove("payload")) {
            (Some(kind), None) if kind != derived_kind => {
                return Err(invalid("payload", "is required for this type"));
            }
            (own_kind, None) => (own_kind.unwrap_or(derived_kind), derived),
            (own_kind, Some(Value::String(text))) => (own_kind.unwrap_or(derived_kind), text),
            (_, Some(_)) => {
                return Err(invalid("payload", "must be a string: XML, or the text of a raw notification"));
            }
        };
        if body.len() > PAYLOAD_BYTES_MAX {
            let (service, bytes) = (PushService::Wns, body.len());
            return Err(InvalidContent::TooLarge { service, bytes, bytes_max: PAYLOAD_BYTES_MAX });
        }
        let mut headers = derived_headers(fields, shown, kind);
        for (name, value) in
            own_headers(PushService::Wns, &mut own, &[CACHE, TAG, GROUP, TTL, SUPPRESS, PRIORITY])?
        {
            headers.retain(|(other, _)| *other != name);
            headers.push((name, value.into()));
        }
        let has_derived_ttl = !headers.iter().any(|(name, _)| *name == TTL);
        Ok(Self { kind, body: body.into(), headers, has_derived_ttl, expires_at: fields.expires_at })
    }
}

impl Payload {
    pub(super) fn ttl(&self, now: Timestamp) -> Bytes {
        // Rounded down, so that nothing is delivered after its expiry.
        self.expires_at.saturating_since(now).as_secs().min(u64::from(u32::MAX)).to_string().into()
    }
}

fn invalid(field: &str, rule: &'static str) -> InvalidContent {
    InvalidContent::invalid(PushService::Wns, format!("push.wns.{field}"), rule)
}

fn derived_headers(fields: &Fields, shown: &Shown, kind: Kind) -> Vec<(&'static str, Bytes)> {
    let mut headers = Vec::new();
    let priority = match fields.urgency {
        Urgency::High => "1",
        Urgency::Normal => "2",
        Urgency::Low => "3",
        Urgency::VeryLow => "4",
    };
    headers.push((PRIORITY, Bytes::from_static(priority.as_bytes())));
    // Only toasts and tiles have tags.
    if let Some(key) = fields.collapse_key.as_deref().filter(|_| matches!(kind, Kind::Toast | Kind::Tile)) {
        headers.push((TAG, tag(key).into()));
    }
    if kind == Kind::Toast && shown.level == Some(Level::Passive) {
        headers.push((SUPPRESS, Bytes::from_static(b"true")));
    }
    headers
}

fn tag(key: &str) -> String {
    let fits =
        (1..=TAG_LENGTH_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match fits {
        true => key.to_owned(),
        // 64 bits: collisions only matter within one device.
        false => {
            digest(&SHA256, key.as_bytes()).as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
        }
    }
}

fn derived(fields: &Fields, shown: &Shown) -> (Kind, String) {
    let has_text = [&shown.title, &shown.body].into_iter().flatten().any(|text| !text.is_empty());
    match (has_text || shown.image.is_some(), shown.badge_count()) {
        (true, _) => (Kind::Toast, toast(fields, shown)),
        (false, Some(badge)) => (Kind::Badge, xml::empty("badge", &[("value", &badge.to_string())])),
        (false, None) => (Kind::Raw, context(fields, None).to_string()),
    }
}

/// What the app gets when the user opens the notification or an action.
fn context(fields: &Fields, more: Option<(&str, &str)>) -> Value {
    let mut context = Map::new();
    if let Some(id) = fields.notification_id {
        context.insert("id".to_owned(), json!(id.to_string()));
    }
    if let Some((name, value)) = more {
        context.insert(name.to_owned(), json!(value));
    }
    if let Some(data) = fields.data() {
        context.insert("data".to_owned(), data);
    }
    Value::Object(context)
}

fn toast(fields: &Fields, shown: &Shown) -> String {
    let url = shown.url.as_deref().map(|url| ("url", url));
    let launch = context(fields, url).to_string();
    let mut attributes = vec![("launch", launch.as_str())];
    if matches!(shown.level, Some(Level::TimeSensitive | Level::Critical)) {
        attributes.push(("scenario", "urgent"));
    }
    let visual: Vec<_> = shown.lang.as_deref().map(|lang| ("lang", lang)).into_iter().collect();
    let mut toast = format!(
        "{}>{}>{}>",
        xml::open("toast", &attributes),
        xml::open("visual", &visual),
        xml::open("binding", &[("template", "ToastGeneric")])
    );
    for text in [&shown.title, &shown.body].into_iter().flatten() {
        toast.push_str(&xml::text("text", text));
    }
    if let Some(image) = &shown.image {
        toast.push_str(&xml::empty("image", &[("placement", "hero"), ("src", image)]));
    }
    if let Some(icon) = &shown.icon {
        toast.push_str(&xml::empty("image", &[("placement", "appLogoOverride"), ("src", icon)]));
    }
    toast.push_str("</binding></visual>");
    if !shown.actions.is_empty() {
        let actions: String = shown.actions.iter().map(|one| action(fields, one)).collect();
        toast.push_str(&format!("<actions>{actions}</actions>"));
    }
    toast.push_str("</toast>");
    toast
}

fn action(fields: &Fields, action: &Action) -> String {
    let id = context(fields, Some(("action", &action.id))).to_string();
    let (kind, arguments) = match action.url.as_deref().filter(|url| is_web_url(url)) {
        Some(url) => ("protocol", url),
        None => ("foreground", id.as_str()),
    };
    xml::empty("action", &[("content", &action.title), ("activationType", kind), ("arguments", arguments)])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::content::Payload as _;
    use crate::fields::tests::{fields, json_text, own_fields};

    const ID: &str = "0197b3f0-1111-7222-8333-444455556666";

    /// What the service receives.
    pub(crate) fn rendered(fields: &Fields) -> Bytes {
        Payload::new(fields).unwrap().body
    }

    fn shown(notification: Value) -> Payload {
        Payload::new(&Fields { notification: json_text(&notification), ..fields() }).unwrap()
    }

    fn own(own: &Value) -> Result<Payload, InvalidContent> {
        let notification = json_text(&json!({"title": "T"}));
        Payload::new(&Fields { notification, own: own_fields(PushService::Wns, own), ..fields() })
    }

    fn text(payload: &Payload) -> &str {
        std::str::from_utf8(&payload.body).unwrap()
    }

    fn header<'a>(payload: &'a Payload, name: &str) -> Option<&'a str> {
        let found = payload.headers.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| std::str::from_utf8(value).unwrap())
    }

    #[test]
    fn a_toast_escapes_all_texts() {
        let payload = shown(
            json!({"title": "<T> & \"Co\"", "body": "it's", "image": "https://i/?a=1&b=2", "lang": "de"}),
        );
        let launch = format!("{{&quot;id&quot;:&quot;{ID}&quot;}}");
        assert_eq!(
            text(&payload),
            format!(
                "<toast launch=\"{launch}\"><visual lang=\"de\"><binding template=\"ToastGeneric\">\
                 <text>&lt;T&gt; &amp; &quot;Co&quot;</text><text>it&apos;s</text>\
                 <image placement=\"hero\" src=\"https://i/?a=1&amp;b=2\"/></binding></visual></toast>"
            )
        );
        assert_eq!((payload.kind, header(&payload, PRIORITY)), (Kind::Toast, Some("2")));
    }

    #[test]
    fn actions_open_urls_or_start_the_app() {
        let payload = shown(json!({"title": "T", "level": "critical", "icon": "https://i/",
            "actions": [{"id": "yes", "title": "Yes"}, {"id": "open", "title": "Open", "url": "https://a/"}]}));
        let xml = text(&payload);
        assert!(
            xml.contains("scenario=\"urgent\"") && xml.contains("placement=\"appLogoOverride\""),
            "{xml}"
        );
        assert!(
            xml.contains("<action content=\"Open\" activationType=\"protocol\" arguments=\"https://a/\"/>"),
            "{xml}"
        );
        assert!(xml.contains("<action content=\"Yes\" activationType=\"foreground\" arguments=\"{&quot;action&quot;:&quot;yes&quot;"), "{xml}");
    }

    #[test]
    fn a_badge_and_data_have_their_own_types() {
        let badge = shown(json!({"badge": 0}));
        assert_eq!((badge.kind, text(&badge)), (Kind::Badge, "<badge value=\"0\"/>"));
        let data = Payload::new(&Fields { data: json_text(&json!({"n": 1})), ..fields() }).unwrap();
        let body: Value = serde_json::from_slice(&data.body).unwrap();
        assert_eq!((data.kind, body), (Kind::Raw, json!({"id": ID, "data": {"n": 1}})));
        assert_eq!(data.kind.content_type(), "application/octet-stream");
    }

    #[test]
    fn a_tag_is_hashed_unless_it_fits() {
        let tag = |key: &str| {
            let fields = Fields {
                collapse_key: Some(key.into()),
                notification: json_text(&json!({"title": "T"})),
                ..fields()
            };
            header(&Payload::new(&fields).unwrap(), TAG).unwrap().to_owned()
        };
        assert_eq!(tag("score7"), "score7");
        for key in ["score-7", "スコア", "01234567890123456"] {
            let tag = tag(key);
            assert!(tag.len() == 16 && tag.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{tag}");
        }
        assert_eq!(header(&shown(json!({"title": "T", "level": "passive"})), SUPPRESS), Some("true"));
    }

    #[test]
    fn own_fields_override_derived_ones() {
        let tile = own(
            &json!({"type": "wns/tile", "payload": "<tile/>", "headers": {"X-WNS-TTL": 7, "X-WNS-Tag": "a"}}),
        )
        .unwrap();
        assert_eq!((tile.kind, text(&tile), tile.has_derived_ttl), (Kind::Tile, "<tile/>", false));
        assert_eq!((header(&tile, TTL), header(&tile, TAG)), (Some("7"), Some("a")));
        assert!(
            own(&json!({"payload": "<toast/>"}))
                .is_ok_and(|own| own.kind == Kind::Toast && own.has_derived_ttl)
        );
        for (bad, field) in [
            (json!({"type": "toast"}), "type"),
            (json!({"type": "wns/raw"}), "payload"),
            (json!({"payload": {}}), "payload"),
            (json!({"headers": {"X-WNS-Type": "wns/raw"}}), "headers.X-WNS-Type"),
            (json!({"headers": {"X-WNS-Tag": "a\r\nb: c"}}), "headers.X-WNS-Tag"),
        ] {
            let refused = own(&bad);
            assert!(
                matches!(&refused, Err(InvalidContent::Invalid { field: at, .. }) if *at == format!("push.wns.{field}")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn the_limit_is_microsofts() {
        let with = |length: usize| own(&json!({"payload": "x".repeat(length)}));
        assert!(with(5_000).is_ok());
        assert!(matches!(with(5_001), Err(InvalidContent::TooLarge { bytes: 5_001, bytes_max: 5_000, .. })));
        assert_eq!(with(1).unwrap().ttl(Timestamp(0)), "86400");
    }
}
