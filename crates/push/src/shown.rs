//! The visible part of a notification, as push services know it: texts, and the typed fields for sound, badge, actions and
//! so on. Each service's folder decides what it makes of them.
//!
//! The API validates the fields before it accepts a notification. This parser ignores unknown fields, and values of
//! another type, because a stored notification may be older or newer than this node. Those fields reach the app live or
//! through its inbox. An empty text counts as absent: a recipient's variable may be empty.

use noroshi_types::PushService;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value, json};
use url::Url;

noroshi_types::names! {
    /// How much a notification may interrupt the user, in Apple's terms: `UNNotificationInterruptionLevel`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Level {
        /// In the list, without sound or light.
        Passive => "passive",
        Active => "active",
        /// Also while a focus is on.
        TimeSensitive => "time-sensitive",
        /// Also while the device is muted.
        Critical => "critical",
    }
}

noroshi_types::names! {
    /// The direction of the texts, as in the Notifications API.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Direction {
        Auto => "auto",
        LeftToRight => "ltr",
        RightToLeft => "rtl",
    }
}

/// The number on the app's icon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Badge {
    /// 0 clears it.
    Count(u32),
    /// The number of the user's unread items.
    Unread,
}

/// In a request, a badge that counts the user's unread items.
pub const UNREAD_BADGE: &str = "unread";

/// What a push service of the app does not show of a notification that it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub service: PushService,
    /// Its path in the request.
    pub field: String,
    pub warning: &'static str,
}

/// The fields of `notification`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Shown {
    #[serde(deserialize_with = "text")]
    pub(crate) title: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) body: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) image: Option<String>,
    #[serde(deserialize_with = "text")]
    pub(crate) url: Option<String>,
    #[serde(deserialize_with = "level")]
    pub(crate) level: Option<Level>,
    /// 0 to 1
    #[serde(deserialize_with = "lenient")]
    pub(crate) relevance: Option<Number>,
    #[serde(deserialize_with = "sound")]
    pub(crate) sound: Option<Sound>,
    #[serde(deserialize_with = "badge")]
    pub(crate) badge: Option<Badge>,
    /// The unread items of the user; `None`: unknown.
    #[serde(skip)]
    pub(crate) unread: Option<u32>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) thread: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) actions: Vec<Action>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) mutable: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub(crate) content_available: Option<bool>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) category: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) icon: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) lang: Option<String>,
    #[serde(deserialize_with = "direction")]
    pub(crate) dir: Option<Direction>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) android_channel: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) android_icon: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) android_color: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) android_click_action: Option<String>,
    #[serde(deserialize_with = "non_empty")]
    pub(crate) fcm_analytics_label: Option<String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Sound {
    /// "default", or a sound of the app.
    pub(crate) name: String,
    pub(crate) is_critical: bool,
    /// 0 to 1
    pub(crate) volume: Option<Number>,
}

/// A button.
#[derive(Debug, PartialEq, Deserialize)]
pub(crate) struct Action {
    pub(crate) id: String,
    pub(crate) title: String,
    #[serde(default, deserialize_with = "non_empty")]
    pub(crate) url: Option<String>,
}

impl Shown {
    /// The number on the icon, as far as it is known.
    pub(crate) fn badge_count(&self) -> Option<u32> {
        match self.badge? {
            Badge::Count(count) => Some(count),
            Badge::Unread => self.unread,
        }
    }

    /// Whether it has a field other than the texts, the image and the URL.
    pub(crate) fn has_extras(&self) -> bool {
        let texts = [
            &self.thread,
            &self.category,
            &self.icon,
            &self.lang,
            &self.android_channel,
            &self.android_icon,
            &self.android_color,
            &self.android_click_action,
            &self.fcm_analytics_label,
        ];
        self.level.is_some()
            || self.relevance.is_some()
            || self.sound.is_some()
            || self.badge.is_some()
            || !self.actions.is_empty()
            || self.mutable.is_some()
            || self.content_available.is_some()
            || self.dir.is_some()
            || texts.into_iter().any(Option::is_some)
    }
}

impl Action {
    /// As in the request.
    pub(crate) fn json(&self) -> Value {
        let mut action =
            Map::from_iter([("id".to_owned(), json!(self.id)), ("title".to_owned(), json!(self.title))]);
        if let Some(url) = &self.url {
            action.insert("url".to_owned(), json!(url));
        }
        Value::Object(action)
    }
}

/// Whether a browser can fetch or open it: an absolute http or https URL of the URL Standard.
pub(crate) fn is_web_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

/// The value, or the default if it has another type.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    lenient(deserializer)
}

fn non_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(text(deserializer)?.filter(|text| !text.is_empty()))
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Level>, D::Error> {
    Ok(text(deserializer)?.and_then(|name| Level::named(&name)))
}

fn badge<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Badge>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(name) if name == UNREAD_BADGE => Some(Badge::Unread),
        value => serde_json::from_value(value).ok().map(Badge::Count),
    })
}

fn direction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Direction>, D::Error> {
    Ok(text(deserializer)?.and_then(|name| Direction::named(&name)))
}

/// A name, or an object with `name`, `critical` and `volume`.
fn sound<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Sound>, D::Error> {
    let named = |name: String| Sound { name, is_critical: false, volume: None };
    let sound = match Value::deserialize(deserializer)? {
        Value::String(name) if !name.is_empty() => named(name),
        Value::Object(fields) => {
            let name = fields.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
            Sound {
                is_critical: fields.get("critical") == Some(&Value::Bool(true)),
                volume: fields.get("volume").and_then(Value::as_number).cloned(),
                ..named(name.unwrap_or("default").to_owned())
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(sound))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Shown {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    #[test]
    fn unknown_keys_and_types_of_a_notification_are_ignored() {
        let shown = read(json!({"title": "t", "body": 5, "extra": {"x": []}}));
        assert_eq!((shown.title.as_deref(), &shown.body, &shown.url), (Some("t"), &None, &None));
        assert!(!shown.has_extras());
        let odd = json!({"level": "loud", "relevance": "1", "sound": 1, "badge": -1, "thread": "", "actions": [{"id": "a"}],
            "mutable": 1, "content_available": null, "category": [], "icon": {}, "lang": 1, "dir": "up",
            "android_channel": "", "android_icon": 2, "android_color": null, "android_click_action": {},
            "fcm_analytics_label": false});
        assert!(!read(odd).has_extras());
    }

    #[test]
    fn each_field_counts_as_an_extra() {
        let all = json!({"level": "passive", "relevance": 0, "sound": "s", "badge": 0, "thread": "t",
            "actions": [{"id": "a", "title": "A"}], "mutable": false, "content_available": false, "category": "c",
            "icon": "https://i/", "lang": "de", "dir": "rtl", "android_channel": "c", "android_icon": "i",
            "android_color": "#000000", "android_click_action": "a", "fcm_analytics_label": "l"});
        for (key, value) in all.as_object().unwrap() {
            assert!(read(json!({key: value})).has_extras(), "{key}");
        }
    }

    #[test]
    fn a_badge_is_a_number_or_the_unread_items() {
        let check = |value: Value, unread: Option<u32>, expected: Option<u32>| {
            let shown = Shown { unread, ..read(json!({"badge": value})) };
            assert_eq!(shown.badge_count(), expected, "{value}");
        };
        check(json!(3), None, Some(3));
        check(json!(3), Some(7), Some(3));
        check(json!("unread"), Some(7), Some(7));
        check(json!("unread"), None, None);
        for other in [json!("7"), json!(-1), json!(null), json!(1.5)] {
            check(other, Some(7), None);
        }
        // The word must not reach a browser, which expects a URL there.
        assert!(read(json!({"badge": "unread"})).has_extras());
    }

    #[test]
    fn a_sound_is_a_name_or_an_object() {
        let check = |value: Value, name: &str, is_critical: bool, volume: Option<f64>| {
            let sound = read(json!({"sound": value})).sound.unwrap();
            let found =
                (sound.name.as_str(), sound.is_critical, sound.volume.and_then(|volume| volume.as_f64()));
            assert_eq!(found, (name, is_critical, volume));
        };
        check(json!("chime.caf"), "chime.caf", false, None);
        check(json!({}), "default", false, None);
        check(json!({"critical": true, "volume": 0.5}), "default", true, Some(0.5));
        check(json!({"name": "x", "critical": false}), "x", false, None);
    }

    #[test]
    fn a_browser_opens_absolute_http_urls_only() {
        for url in ["https://a.example/x?y#z", "http://localhost:8080", "HTTPS://A.EXAMPLE"] {
            assert!(is_web_url(url), "{url}");
        }
        for url in
            ["", "/x", "myapp://x", "javascript:alert(1)", "https://", "data:text/html,x", "https://a b/"]
        {
            assert!(!is_web_url(url), "{url}");
        }
    }
}
