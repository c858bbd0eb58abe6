//! `notification`: what the user sees, hears and can press. Validated only; its text is passed on unchanged, to push services
//! as to live connections and inboxes.
//!
//! A template may have placeholders in every free text. They count as text here: the rendered message is not validated again,
//! and push services get only those of its fields that have the right type. Names of rules (`level`, `dir`, the colour, the
//! analytics label) take no placeholders.

use noroshi_push::{Direction, Level, UNREAD_BADGE};
use noroshi_types::{Invalid, JsonText, limits};
use serde::Deserialize;
use serde_json::Number;
use serde_json::value::RawValue;

use super::carried;
use crate::error::Problem;
use crate::json::{self, Bounded, FromText, Line, Text};

/// A name that the app knows.
type Name = Text<Line<{ limits::NOTIFICATION_NAME_BYTES_MAX }>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "parsing validates the fields that no rule below reads")]
struct Shown<'a> {
    title: Option<String>,
    body: Option<String>,
    image: Option<String>,
    url: Option<String>,
    level: Option<Text<Level>>,
    relevance: Option<Number>,
    #[serde(borrow)]
    sound: Option<&'a RawValue>,
    #[serde(borrow)]
    badge: Option<&'a RawValue>,
    thread: Option<Name>,
    actions: Option<Bounded<ActionBody, { limits::ACTIONS_MAX }>>,
    mutable: Option<bool>,
    content_available: Option<bool>,
    category: Option<Name>,
    icon: Option<String>,
    lang: Option<Text<LanguageTag>>,
    dir: Option<Text<Direction>>,
    android_channel: Option<Name>,
    android_icon: Option<Name>,
    android_color: Option<Text<Color>>,
    android_click_action: Option<Name>,
    fcm_analytics_label: Option<Text<AnalyticsLabel>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "parsing validates the fields that no rule below reads")]
struct SoundBody {
    name: Option<Name>,
    critical: Option<bool>,
    volume: Option<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "parsing validates the fields that no rule below reads")]
struct ActionBody {
    id: Text<Line<{ limits::ACTION_ID_BYTES_MAX }>>,
    title: Text<Line<{ limits::ACTION_TITLE_BYTES_MAX }>>,
    url: Option<String>,
}

/// Schemes whose URLs run or contain scripts in a web page that links to them.
const SCRIPTS: [&str; 3] = ["javascript", "data", "vbscript"];

struct LanguageTag;
struct Color;
struct AnalyticsLabel;

/// The visible part at `field`. `template`: whether it may contain placeholders.
pub(in crate::body) fn shown(raw: &RawValue, field: &str, template: bool) -> Result<JsonText, Problem> {
    let text = carried(raw, field, limits::NOTIFICATION_BYTES_MAX)?;
    let shown: Shown<'_> = json::parse_part(raw.get(), field)?;
    let texts = [&shown.title, &shown.body, &shown.image, &shown.url];
    if texts.into_iter().all(Option::is_none) && shown.badge.is_none() {
        let rule = "must have at least one of `title`, `body`, `image`, `url`, `badge`";
        return Err(Problem::field(field, rule));
    }
    let at = |name: &str| format!("{field}.{name}");
    // If a URL begins with a placeholder, its scheme depends on the recipient.
    let known = |address: &&str| !(template && address.starts_with("{{"));
    for (name, address) in [("image", &shown.image), ("icon", &shown.icon)] {
        let address = address.as_deref().filter(known);
        if address.is_some_and(|address| !matches!(scheme(address), Some("https" | "http"))) {
            return Err(Problem::field(at(name), "must be an http or https URL"));
        }
    }
    let absolute = |field: String, address: Option<&str>| match address.filter(known).map(scheme) {
        Some(None) => {
            Err(Problem::field(field, "must be an absolute URL: it starts with a scheme such as https:"))
        }
        Some(Some(scheme)) if SCRIPTS.iter().any(|script| scheme.eq_ignore_ascii_case(script)) => {
            Err(Problem::field(field, format!("must not run a script: {scheme}: is not allowed")))
        }
        _ => Ok(()),
    };
    absolute(at("url"), shown.url.as_deref())?;
    if shown.relevance.as_ref().is_some_and(|number| !is_share(number)) {
        return Err(Problem::field(at("relevance"), "must be a number from 0 to 1"));
    }
    if shown.badge.is_some_and(|badge| !is_badge(badge)) {
        let max = limits::BADGE_MAX;
        let rule = format!("must be a whole number from 0 to {max}, or \"{UNREAD_BADGE}\"");
        return Err(Problem::field(at("badge"), rule));
    }
    if let Some(sound) = shown.sound {
        check_sound(sound, &at("sound"))?;
    }
    let actions = shown.actions.map(|actions| actions.all(&at("actions"))).transpose()?.unwrap_or_default();
    for (index, action) in actions.iter().enumerate() {
        if actions[..index].iter().any(|earlier| earlier.id == action.id) {
            return Err(Problem::field(
                at(&format!("actions[{index}].id")),
                "must differ from the other ids",
            ));
        }
        absolute(at(&format!("actions[{index}].url")), action.url.as_deref())?;
    }
    Ok(text)
}

/// A number, or the word for the user's unread items. Null counts as absent.
fn is_badge(raw: &RawValue) -> bool {
    let is_word = |text: &str| serde_json::from_str(text).is_ok_and(|word: String| word == UNREAD_BADGE);
    match raw.get() {
        "null" => true,
        text => text.parse().is_ok_and(|count: u32| count <= limits::BADGE_MAX) || is_word(text),
    }
}

/// A name, or an object. Null counts as absent.
fn check_sound(raw: &RawValue, field: &str) -> Result<(), Problem> {
    match raw.get().as_bytes().first() {
        Some(b'n') => return Ok(()),
        Some(b'"') => return json::parse_part::<Name>(raw.get(), field).map(drop),
        Some(b'{') => {}
        _ => {
            return Err(Problem::field(
                field,
                "must be a name, or an object with `name`, `critical`, `volume`",
            ));
        }
    }
    let sound: SoundBody = json::parse_part(raw.get(), field)?;
    let Some(volume) = sound.volume else { return Ok(()) };
    match sound.critical {
        _ if !is_share(&volume) => {
            Err(Problem::field(format!("{field}.volume"), "must be a number from 0 to 1"))
        }
        Some(true) => Ok(()),
        // Apple: "The volume for the critical alert's sound."
        _ => Err(Problem::field(format!("{field}.volume"), "allowed only with `critical`: true")),
    }
}

fn is_share(number: &Number) -> bool {
    number.as_f64().is_some_and(|number| (0.0..=1.0).contains(&number))
}

/// The scheme of an absolute URI (RFC 3986 §3.1) that has something behind it and no blanks.
fn scheme(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once(':')?;
    let well_formed = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let blank = |c: char| c.is_whitespace() || c.is_control();
    (well_formed && !rest.is_empty() && !rest.contains(blank)).then_some(scheme)
}

/// The form of a tag (RFC 5646 §2.1), not whether its parts are registered.
impl FromText for LanguageTag {
    const WHAT: &'static str = "a language tag (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let part = |part: &str| {
            (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        match text.len() <= limits::LANGUAGE_TAG_BYTES_MAX && text.split('-').all(part) {
            true => Ok(Self),
            false => Err(Invalid::new("must be a language tag, such as \"en-GB\"".to_owned())),
        }
    }
}

/// FCM: "expressed in #rrggbb format".
impl FromText for Color {
    const WHAT: &'static str = "a colour (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6);
        match digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            true => Ok(Self),
            false => Err(Invalid::new("must be a colour in the form #rrggbb".to_owned())),
        }
    }
}

impl FromText for AnalyticsLabel {
    const WHAT: &'static str = "an analytics label (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let fits = (1..=limits::ANALYTICS_LABEL_BYTES_MAX).contains(&text.len());
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte);
        match fits && text.bytes().all(allowed) {
            true => Ok(Self),
            false => {
                Err(Invalid::new("must be 1 to 50 letters, digits, '-', '_', '.', '~' and '%'".to_owned()))
            }
        }
    }
}
