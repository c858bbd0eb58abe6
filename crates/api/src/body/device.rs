//! Registration of a device (`POST /v1/devices`, a line of its batch) and changes (`PATCH /v1/me`).
//! [`mod@super::push_token`] parses push tokens.

use std::collections::BTreeMap;

use noroshi_store::{Attributes, DeviceChange, NewToken, Registration};
use noroshi_types::{DeviceId, Invalid, Topic, UserId, limits};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{TimeZone, each_once, push_token};
use crate::error::Problem;
use crate::json::{self, Bounded, Change, FromText, Line, Text, TextMap};

type Attribute = Text<Line<{ limits::ATTRIBUTE_BYTES_MAX }>>;
type Tags<V> = TextMap<Line<{ limits::TAG_BYTES_MAX }>, V, { limits::TAGS_MAX }>;
type TagValue = Text<Line<{ limits::TAG_BYTES_MAX }>>;

/// A registration, independent of who registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registering {
    /// None: a random id.
    pub device: Option<DeviceId>,
    pub registration: Registration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceBody<'a> {
    device: Option<Text<DeviceId>>,
    user: Option<Text<UserId>>,
    platform: Option<Text<Platform>>,
    locale: Option<Text<Locale>>,
    timezone: Option<Text<TimeZone>>,
    app_version: Option<Attribute>,
    tags: Option<Tags<TagValue>>,
    topics: Option<Bounded<Text<Subscription>, { limits::TOPICS_PER_DEVICE_MAX }>>,
    #[serde(borrow)]
    push_token: Option<&'a RawValue>,
    #[serde(borrow)]
    push_tokens: Option<TokenList<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeBody<'a> {
    #[serde(default)]
    user: Change<Text<UserId>>,
    #[serde(default)]
    platform: Change<Text<Platform>>,
    #[serde(default)]
    locale: Change<Text<Locale>>,
    #[serde(default)]
    timezone: Change<Text<TimeZone>>,
    #[serde(default)]
    app_version: Change<Attribute>,
    tags: Option<Tags<Option<TagValue>>>,
    #[serde(borrow, default)]
    push_token: Change<&'a RawValue>,
}

/// Parses one registration.
pub fn device(bytes: &[u8]) -> Result<Registering, Problem> {
    let body: DeviceBody<'_> = json::parse(bytes)?;
    let topics = body.topics.map(|topics| topics.all("topics")).transpose()?.unwrap_or_default();
    let tags = body.tags.map(|tags| tags.0).unwrap_or_default();
    let registration = Registration {
        device: None,
        user: body.user.map(|user| user.0),
        attributes: Attributes {
            platform: body.platform.map(|platform| platform.0.0.to_owned()),
            locale: body.locale.map(|locale| locale.0.0),
            timezone: body.timezone.map(|timezone| timezone.0.0),
            app_version: body.app_version.map(|version| version.0.0),
            tags: tags.into_iter().map(|(key, value)| (key.0, value.0.0)).collect(),
        },
        topics: each_once(topics.into_iter().map(|topic| topic.0.0).collect()),
        push_token: body.push_token.map(|raw| push_token::checked(raw, "push_token", None)).transpose()?,
        push_tokens: push_tokens(body.push_tokens)?,
        ..Registration::default()
    };
    Ok(Registering { device: body.device.map(|device| device.0), registration })
}

/// Parses a change: absent fields stay, `null` clears.
pub fn device_change(bytes: &[u8]) -> Result<DeviceChange, Problem> {
    let body: ChangeBody<'_> = json::parse(bytes)?;
    let tags: BTreeMap<_, _> = body.tags.map(|tags| tags.0).unwrap_or_default();
    let push_token = body.push_token.check(|raw| push_token::checked(raw, "push_token", None))?;
    Ok(DeviceChange {
        user: body.user.into_update(|user| user.0),
        platform: body.platform.into_update(|platform| platform.0.0.to_owned()),
        locale: body.locale.into_update(|locale| locale.0.0),
        timezone: body.timezone.into_update(|timezone| timezone.0.0),
        app_version: body.app_version.into_update(|version| version.0.0),
        tags: tags.into_iter().map(|(key, value)| (key.0, value.map(|value| value.0.0))).collect(),
        push_token: push_token.into_update(|token| token),
        push_tokens: Vec::new(),
    })
}

type TokenList<'a> = Bounded<&'a RawValue, { limits::PUSH_TOKENS_PER_DEVICE_MAX }>;

fn push_tokens(list: Option<TokenList<'_>>) -> Result<Vec<NewToken>, Problem> {
    let list = list.map(|list| list.all("push_tokens")).transpose()?.unwrap_or_default();
    let mut tokens: Vec<NewToken> = Vec::with_capacity(list.len());
    for (index, raw) in list.into_iter().enumerate() {
        let field = format!("push_tokens[{index}]");
        let token = push_token::one_of_many(raw, &field)?;
        if tokens.iter().any(|other| other.key == token.key) {
            let rule = format!("the list has another token \"{}\"", token.key);
            return Err(Problem::field(field, rule));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

/// The platforms of devices.
pub(crate) const PLATFORMS: [&str; 5] = ["ios", "android", "web", "console", "other"];

pub(super) struct Platform(pub(super) &'static str);

impl FromText for Platform {
    const WHAT: &'static str = "a platform (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        PLATFORMS.into_iter().find(|platform| *platform == text).map(Platform).ok_or_else(|| {
            Invalid::new("must be one of \"ios\", \"android\", \"web\", \"console\", \"other\"")
        })
    }
}

/// A topic that a device may subscribe to.
struct Subscription(Topic);

impl FromText for Subscription {
    const WHAT: &'static str = "a topic (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        Topic::parse_subscription(text).map(Self)
    }
}

/// The form of BCP 47: subtags of 1 to 8 letters and digits, the first only of letters (RFC 5646 §2.1). Android separates
/// them by `_`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Locale(pub(super) String);

impl FromText for Locale {
    const WHAT: &'static str = "a locale (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let subtag =
            |part: &str| matches!(part.len(), 1..=8) && part.bytes().all(|b| b.is_ascii_alphanumeric());
        let language = text.split(['-', '_']).next().unwrap_or_default();
        let well_formed = text.len() <= limits::ATTRIBUTE_BYTES_MAX
            && language.bytes().all(|b| b.is_ascii_alphabetic())
            && text.split(['-', '_']).all(subtag);
        match well_formed {
            true => Ok(Self(text.to_owned())),
            false => {
                Err(Invalid::new("must be a language tag such as \"ja-JP\" (BCP 47) of at most 64 bytes"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
