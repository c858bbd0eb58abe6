//! `PUT …/preferences`: the preferences of a user or a device.

use std::collections::BTreeMap;

use noroshi_types::local_time::{LocalTime, QuietHours};
use noroshi_types::{
    CategoryPreference, Channel, Channels, Invalid, Label, Preferences, QuietTime, Topic, limits,
};
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::TimeZone;
use crate::error::Problem;
use crate::json::{self, Bounded, FromText, Text, TextMap};

type ChannelList = Bounded<Text<Channel>, { Channel::ALL.len() }>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    channels: Option<ChannelList>,
    muted_topics: Option<Bounded<Text<Topic>, { limits::MUTED_TOPICS_MAX }>>,
    categories: Option<TextMap<Label, CategoryBody, { limits::PREFERENCE_CATEGORIES_MAX }>>,
    quiet_hours: Option<QuietBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CategoryBody {
    muted: Option<bool>,
    channels: Option<ChannelList>,
    daily_max: Option<DailyMax>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuietBody {
    from: Text<LocalTime>,
    to: Text<LocalTime>,
    timezone: Option<Text<TimeZone>>,
}

struct DailyMax(u32);

impl<'de> Deserialize<'de> for DailyMax {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let max = u64::deserialize(deserializer)?;
        let fits = u32::try_from(max).ok().filter(|max| *max <= limits::DAILY_MAX_MAX);
        fits.map(Self).ok_or_else(|| {
            de::Error::custom(format_args!("must be 0 to {}, got {max}", limits::DAILY_MAX_MAX))
        })
    }
}

/// `None`: the body names no preference.
pub fn preferences(bytes: &[u8]) -> Result<Option<Preferences>, Problem> {
    let body: Body = json::parse(bytes)?;
    let muted = body.muted_topics.map(|topics| topics.all("muted_topics")).transpose()?;
    let mut categories = BTreeMap::new();
    for (name, category) in body.categories.map(|categories| categories.0).unwrap_or_default() {
        let field = || format!("categories.{name}.channels");
        let preference = CategoryPreference {
            muted: category.muted,
            channels: category.channels.map(|list| channels(list, &field())).transpose()?,
            daily_max: category.daily_max.map(|max| max.0),
        };
        if preference != CategoryPreference::default() {
            categories.insert(name, preference);
        }
    }
    let preferences = Preferences {
        channels: body.channels.map(|list| channels(list, "channels")).transpose()?,
        muted_topics: muted.into_iter().flatten().map(|topic| topic.0).collect(),
        categories,
        quiet_hours: body.quiet_hours.map(quiet_time).transpose()?,
    };
    Ok(Some(preferences).filter(|preferences| !preferences.is_empty()))
}

fn channels(list: ChannelList, field: &str) -> Result<Channels, Problem> {
    Ok(list.all(field)?.into_iter().map(|channel| channel.0).collect())
}

fn quiet_time(body: QuietBody) -> Result<QuietTime, Problem> {
    let hours = QuietHours::new(body.from.0, body.to.0);
    let hours = hours.map_err(|invalid| Problem::field("quiet_hours.to", invalid.0))?;
    Ok(QuietTime { hours, timezone: body.timezone.map(|zone| zone.0.0.into()) })
}

impl FromText for Channel {
    const WHAT: &'static str = "a channel (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let names = || Self::ALL.map(|channel| format!(" \"{}\"", channel.as_str())).concat();
        Self::named(text).ok_or_else(|| Invalid::new(format!("must be one of{}", names())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn label(name: &str) -> Label {
        Label::parse(name).expect(name)
    }

    #[test]
    fn every_field_is_read() {
        let text = r#"{"channels": ["inbox", "live", "inbox"], "muted_topics": ["news", "a/b"],
            "categories": {"promo": {"muted": true}, "news": {"channels": [], "daily_max": 0}},
            "quiet_hours": {"from": "22:00", "to": "07:30", "timezone": "asia/tokyo"}}"#;
        let read = preferences(text.as_bytes()).expect("valid").expect("some");
        assert_eq!(read.channels, Some([Channel::Live, Channel::Inbox].into_iter().collect()));
        let topics = ["news", "a/b"].map(|name| Topic::parse(name).expect(name));
        assert_eq!(read.muted_topics, topics.into());
        let promo = CategoryPreference { muted: Some(true), ..CategoryPreference::default() };
        assert_eq!(read.categories[&label("promo")], promo);
        let none = Some([].into_iter().collect());
        let news = CategoryPreference { muted: None, channels: none, daily_max: Some(0) };
        assert_eq!(read.categories[&label("news")], news);
        let quiet = read.quiet_hours.expect("quiet hours");
        assert_eq!(
            (quiet.hours.from.to_string(), quiet.hours.to.to_string()),
            ("22:00".into(), "07:30".into())
        );
        assert_eq!(quiet.timezone.as_deref(), Some("Asia/Tokyo"));
    }

    #[test]
    fn no_preference_is_none() {
        let empty = r#"{"channels": null, "muted_topics": [], "categories": {}, "quiet_hours": null}"#;
        for text in ["{}", empty] {
            assert_eq!(preferences(text.as_bytes()), Ok(None), "{text}");
        }
        assert!(preferences(br#"{"channels": []}"#).expect("valid").is_some(), "no channel is a preference");
    }

    #[test]
    fn a_problem_names_the_field() {
        let refused = |text: &str, code: Code, field: Option<&str>| {
            let problem = preferences(text.as_bytes()).expect_err(text);
            assert_eq!((problem.code(), problem.field_path()), (code, field), "{text}");
        };
        let invalid = |text: &str, field: &str| refused(text, Code::InvalidField, Some(field));
        let unknown = |text: &str, field: &str| refused(text, Code::UnknownField, Some(field));
        refused("{", Code::InvalidJson, None);
        refused("1", Code::InvalidField, None);
        unknown(r#"{"topics": []}"#, "topics");
        unknown(r#"{"categories": {"a": {"mute": true}}}"#, "categories.a.mute");
        unknown(r#"{"quiet_hours": {"from": "01:00", "until": "02:00"}}"#, "quiet_hours.until");
        invalid(r#"{"channels": "live"}"#, "channels");
        invalid(r#"{"channels": ["live", "smoke"]}"#, "channels[1]");
        invalid(r#"{"channels": ["live", "live", "live", "live"]}"#, "channels");
        invalid(r#"{"categories": {"a": {"channels": ["x"]}}}"#, "categories.a.channels[0]");
        invalid(
            r#"{"categories": {"a": {"channels": ["live", "live", "live", "live"]}}}"#,
            "categories.a.channels",
        );
        invalid(r#"{"categories": {"A B": {}}}"#, "categories.A B");
        invalid(r#"{"categories": {"a": {"muted": 1}}}"#, "categories.a.muted");
        for max in ["-1", "1001", "4294967296", "1.5", "\"1\""] {
            let text = format!(r#"{{"categories": {{"a": {{"daily_max": {max}}}}}}}"#);
            invalid(&text, "categories.a.daily_max");
        }
        for topic in ["$everyone", "$app/state", "a/#", "a/+", ""] {
            invalid(&format!(r#"{{"muted_topics": ["a", "{topic}"]}}"#), "muted_topics[1]");
        }
        let quiet = |fields: &str| format!(r#"{{"quiet_hours": {{{fields}}}}}"#);
        invalid(&quiet(r#""from": "22:00""#), "quiet_hours.to");
        invalid(&quiet(r#""from": "22:00", "to": "7:00""#), "quiet_hours.to");
        invalid(&quiet(r#""from": "22:00", "to": "22:00""#), "quiet_hours.to");
        invalid(&quiet(r#""from": "22:00", "to": "07:00", "timezone": "Asia/Edo""#), "quiet_hours.timezone");
    }

    #[test]
    fn entries_are_limited() {
        let topics = |count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("\"t{number}\"")).collect();
            preferences(format!(r#"{{"muted_topics": [{}]}}"#, names.join(",")).as_bytes())
        };
        assert!(topics(limits::MUTED_TOPICS_MAX).is_ok());
        let problem = topics(limits::MUTED_TOPICS_MAX + 1).expect_err("too many");
        assert_eq!(problem.field_path(), Some("muted_topics"));
        let categories = |count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("\"c{number}\": {{}}")).collect();
            preferences(format!(r#"{{"categories": {{{}}}}}"#, names.join(",")).as_bytes())
        };
        assert!(categories(limits::PREFERENCE_CATEGORIES_MAX).is_ok());
        let problem = categories(limits::PREFERENCE_CATEGORIES_MAX + 1).expect_err("too many");
        assert_eq!(problem.code(), Code::InvalidField);
        assert!(problem.field_path().is_some_and(|field| field.starts_with("categories")));
    }
}
