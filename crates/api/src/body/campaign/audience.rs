//! The audience of a campaign, and the filter of its devices.
//!
//! Lists are never empty and time zones exist, so a mistake cannot select no device or, by accident, all devices.

use std::collections::BTreeMap;

use noroshi_delivery::campaign::Audience;
use noroshi_delivery::campaign::filter::{Filter, VALUES_MAX, VersionRange};
use noroshi_types::{Condition, Topic, limits};
use serde::Deserialize;

use super::super::TimeZone;
use super::super::device::{Locale, Platform};
use crate::error::Problem;
use crate::json::{Bounded, Line, Text, TextMap};

type Tag = Line<{ limits::TAG_BYTES_MAX }>;
type Values<T> = Bounded<Text<T>, VALUES_MAX>;
type Version = Text<Line<{ limits::ATTRIBUTE_BYTES_MAX }>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AudienceBody {
    everyone: Option<bool>,
    topic: Option<Text<Topic>>,
    condition: Option<Text<Condition>>,
    upload: Option<bool>,
    devices: Option<FilterBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::body) struct FilterBody {
    platforms: Option<Values<Platform>>,
    locales: Option<Values<Locale>>,
    timezones: Option<Values<TimeZone>>,
    app_version: Option<VersionBody>,
    tags: Option<TextMap<Tag, Values<Tag>, { limits::TAGS_MAX }>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionBody {
    min: Option<Version>,
    max: Option<Version>,
}

pub(super) fn audience(body: AudienceBody) -> Result<(Audience, Filter), Problem> {
    let AudienceBody { everyone, topic, condition, upload, devices } = body;
    for (field, flag) in [("audience.everyone", everyone), ("audience.upload", upload)] {
        if flag == Some(false) {
            return Err(Problem::field(field, "must be true"));
        }
    }
    let audience = match (everyone, topic, condition, upload) {
        (Some(_), None, None, None) => Audience::Everyone,
        (None, Some(Text(topic)), None, None) => Audience::Topic(topic),
        (None, None, Some(Text(condition)), None) => Audience::Condition(condition),
        (None, None, None, Some(_)) => Audience::Upload,
        (None, None, None, None) if devices.is_some() => Audience::Devices,
        _ => {
            let rule = "an audience is exactly one of `everyone`, `topic`, `condition`, `upload`, `devices`; \
                        `devices` may also stand beside one of the first three";
            return Err(Problem::field("audience", rule));
        }
    };
    Ok((audience, devices.map(filter).transpose()?.unwrap_or_default()))
}

pub(in crate::body) fn filter(body: FilterBody) -> Result<Filter, Problem> {
    let VersionBody { min, max } = body.app_version.unwrap_or(VersionBody { min: None, max: None });
    let mut tags = BTreeMap::new();
    for (tag, values) in body.tags.map(|tags| tags.0).unwrap_or_default() {
        let field = format!("tags.{}", tag.0);
        tags.insert(tag.0, listed(Some(values), &field, |value| value.0)?);
    }
    Ok(Filter {
        platforms: listed(body.platforms, "platforms", |platform| platform.0.to_owned())?,
        locales: listed(body.locales, "locales", |locale| locale.0)?,
        app_version: VersionRange { min: min.map(|min| min.0.0), max: max.map(|max| max.0.0) },
        tags,
        timezones: listed(body.timezones, "timezones", |zone| zone.0)?,
    })
}

/// Rejects an empty list, which would match every device.
fn listed<T>(
    values: Option<Values<T>>,
    name: &str,
    text: impl Fn(T) -> String,
) -> Result<Vec<String>, Problem> {
    let Some(values) = values else { return Ok(Vec::new()) };
    let field = format!("audience.devices.{name}");
    match values.count {
        0 => Err(Problem::field(field, "must not be empty")),
        _ => Ok(values.all(&field)?.into_iter().map(|value| text(value.0)).collect()),
    }
}
