//! `POST /v1/activities`, and the changes of an activity.
//!
//! The content state and the attributes belong to the app, and keep their text. What Android devices show is checked, since
//! `Notification.ProgressStyle` ignores what does not fit.

use std::time::Duration;

use noroshi_delivery::activity::{Alert, Spec, Start, Update};
use noroshi_types::{
    ActivityId, Invalid, JsonText, PushService, Timestamp, TokenKey, TokenKind, Urgency, When, limits,
};
use serde::Deserialize;
use serde_json::Number;
use serde_json::value::RawValue;

use super::notification::{To, carried, target};
use super::push_token::Moment;
use crate::error::Problem;
use crate::json::{self, Bounded, Change, FromText, Line, Span, Text};

/// iOS keeps an activity that ended for at most four hours.
const DISMISSAL_MAX: Duration = Duration::from_secs(4 * 3_600);
const ALERT_BODY_BYTES_MAX: usize = 1_024;
/// Segments and points of a progress bar, which is too short to show more.
const PROGRESS_PARTS_MAX: usize = 32;
const NAME_MAX: usize = limits::NOTIFICATION_NAME_BYTES_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StartBody<'a> {
    to: To,
    id: Option<Text<ActivityId>>,
    when: Option<Text<When>>,
    ttl: Option<Span>,
    attributes_type: Text<AttributesType>,
    #[serde(borrow)]
    attributes: Option<&'a RawValue>,
    #[serde(borrow)]
    content_state: &'a RawValue,
    stale_date: Option<Text<Moment>>,
    relevance: Option<Number>,
    alert: AlertBody,
    #[serde(borrow)]
    android: Option<&'a RawValue>,
    ios_via: Option<Text<IosVia>>,
    frequent_updates: Option<bool>,
    join: Option<Text<Join>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateBody<'a> {
    #[serde(borrow)]
    content_state: Option<&'a RawValue>,
    #[serde(default)]
    stale_date: Change<Text<Moment>>,
    relevance: Option<Number>,
    alert: Option<AlertBody>,
    #[serde(borrow)]
    android: Option<&'a RawValue>,
    urgency: Option<Text<Pace>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndBody<'a> {
    #[serde(borrow)]
    content_state: Option<&'a RawValue>,
    dismissal_date: Option<Text<Moment>>,
    relevance: Option<Number>,
    alert: Option<AlertBody>,
    #[serde(borrow)]
    android: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertBody {
    title: Option<Text<Line<NAME_MAX>>>,
    body: Option<Text<Line<ALERT_BODY_BYTES_MAX>>>,
    sound: Option<Text<Line<NAME_MAX>>>,
}

/// What an Android app shows: the fields of `Notification.ProgressStyle`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AndroidBody {
    #[serde(rename = "title")]
    _title: Option<Text<Line<NAME_MAX>>>,
    #[serde(rename = "text")]
    _text: Option<Text<Line<ALERT_BODY_BYTES_MAX>>>,
    #[serde(rename = "short_text")]
    _short_text: Option<Text<Line<NAME_MAX>>>,
    progress: Option<ProgressBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgressBody {
    value: Option<u32>,
    max: Option<u32>,
    #[serde(rename = "indeterminate")]
    _indeterminate: Option<bool>,
    segments: Option<Bounded<SegmentBody, PROGRESS_PARTS_MAX>>,
    points: Option<Bounded<PointBody, PROGRESS_PARTS_MAX>>,
    #[serde(rename = "tracker_icon")]
    _tracker_icon: Option<Text<Line<NAME_MAX>>>,
    #[serde(rename = "start_icon")]
    _start_icon: Option<Text<Line<NAME_MAX>>>,
    #[serde(rename = "end_icon")]
    _end_icon: Option<Text<Line<NAME_MAX>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SegmentBody {
    length: u32,
    #[serde(rename = "color")]
    _color: Option<Text<Color>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PointBody {
    position: u32,
    #[serde(rename = "color")]
    _color: Option<Text<Color>>,
}

struct AttributesType(String);
struct IosVia(PushService);
struct Color;

#[derive(PartialEq)]
enum Join {
    Invited,
    Anyone,
}

/// An update has a normal or a high urgency.
#[derive(PartialEq)]
enum Pace {
    Normal,
    High,
}

/// Parses a start. `draw`: an id for an activity without one.
pub fn activity(bytes: &[u8], draw: impl FnOnce() -> ActivityId, now: Timestamp) -> Result<Start, Problem> {
    let body: StartBody<'_> = json::parse(bytes)?;
    let ttl = body.ttl.map_or(limits::ACTIVITY_TTL_MAX, |span| span.0);
    if ttl.is_zero() || ttl > limits::ACTIVITY_TTL_MAX {
        return Err(Problem::field("ttl", "an activity lives for 1s to 12h"));
    }
    if body.alert.title.is_none() {
        return Err(Problem::field("alert.title", "iOS shows an alert when an activity starts"));
    }
    let spec = Spec {
        attributes_type: body.attributes_type.0.0,
        attributes: body.attributes.map(|raw| object(raw, "attributes")).transpose()?,
        when: body.when.map_or(When::Connected, |when| when.0),
        ios_via: body.ios_via.map(|via| via.0.0),
        frequent_updates: body.frequent_updates.unwrap_or(false),
        named: false,
    };
    let first = Update {
        content: Some(object(body.content_state, "content_state")?),
        stale_at: body.stale_date.map(|at| in_future(at.0.0, "stale_date", now).map(Some)).transpose()?,
        relevance: body.relevance.map(relevance).transpose()?,
        android: body.android.map(android).transpose()?,
        alert: Some(alert(body.alert)?),
        high: true,
    };
    Ok(Start {
        target: target(body.to)?,
        id: body.id.map_or_else(draw, |id| id.0),
        spec,
        first,
        ttl,
        joinable: body.join.is_some_and(|join| join.0 == Join::Anyone),
    })
}

/// Parses an update.
pub fn activity_update(bytes: &[u8], now: Timestamp) -> Result<Update, Problem> {
    let body: UpdateBody<'_> = json::parse(bytes)?;
    let stale_date = body.stale_date.check(|at| in_future(at.0.0, "stale_date", now))?;
    let update = Update {
        content: body.content_state.map(|raw| object(raw, "content_state")).transpose()?,
        stale_at: stale_date.into_update(|at| at),
        relevance: body.relevance.map(relevance).transpose()?,
        android: body.android.map(android).transpose()?,
        alert: body.alert.map(alert).transpose()?,
        high: body.urgency.is_some_and(|pace| pace.0 == Pace::High),
    };
    match update == (Update { high: update.high, ..Update::default() }) {
        true => Err(Problem::field("content_state", "an update must change something")),
        false => Ok(update),
    }
}

/// Parses an end, which may be empty: the last state, and when the activity leaves the screen.
pub fn activity_end(bytes: &[u8], now: Timestamp) -> Result<(Update, Option<Timestamp>), Problem> {
    if bytes.trim_ascii().is_empty() {
        return Ok((Update::default(), None));
    }
    let body: EndBody<'_> = json::parse(bytes)?;
    let dismiss_at = body.dismissal_date.map(|at| at.0.0);
    if dismiss_at.is_some_and(|at| at > now.saturating_add(DISMISSAL_MAX)) {
        return Err(Problem::field(
            "dismissal_date",
            "must be within 4 hours: iOS removes the activity then",
        ));
    }
    let last = Update {
        content: body.content_state.map(|raw| object(raw, "content_state")).transpose()?,
        stale_at: None,
        relevance: body.relevance.map(relevance).transpose()?,
        android: body.android.map(android).transpose()?,
        alert: body.alert.map(alert).transpose()?,
        high: true,
    };
    Ok((last, dismiss_at))
}

/// An `id` parameter of a path.
pub fn activity_id(text: &str) -> Result<ActivityId, Problem> {
    ActivityId::parse(text).map_err(|invalid| Problem::from(invalid).at("id"))
}

fn object(raw: &RawValue, field: &str) -> Result<JsonText, Problem> {
    match raw.get().starts_with('{') {
        true => carried(raw, field, limits::ACTIVITY_STATE_BYTES_MAX),
        false => Err(Problem::field(field, "must be an object")),
    }
}

fn in_future(at: Timestamp, field: &str, now: Timestamp) -> Result<Timestamp, Problem> {
    match at > now {
        true => Ok(at),
        false => Err(Problem::field(field, "must be in the future")),
    }
}

fn relevance(number: Number) -> Result<Number, Problem> {
    match number.as_f64().is_some_and(|number| (0.0..=1e6).contains(&number)) {
        true => Ok(number),
        false => Err(Problem::field("relevance", "must be a number from 0 to 1000000")),
    }
}

fn alert(body: AlertBody) -> Result<Alert, Problem> {
    let AlertBody { title, body, sound } = body;
    if title.is_none() && body.is_none() {
        return Err(Problem::field("alert.title", "an alert has a title, a body, or both"));
    }
    Ok(Alert {
        title: title.map(|text| text.0.0),
        body: body.map(|text| text.0.0),
        sound: sound.map(|text| text.0.0),
    })
}

fn android(raw: &RawValue) -> Result<JsonText, Problem> {
    let text = object(raw, "android")?;
    let body: AndroidBody = json::parse_part(text.as_str(), "android")?;
    let Some(progress) = body.progress else { return Ok(text) };
    let at = |name: &str| format!("android.progress.{name}");
    let segments = progress.segments.map(|list| list.all(&at("segments"))).transpose()?.unwrap_or_default();
    let points = progress.points.map(|list| list.all(&at("points"))).transpose()?.unwrap_or_default();
    if let Some(index) = segments.iter().position(|segment| segment.length == 0) {
        return Err(Problem::field(at(&format!("segments[{index}].length")), "must be at least 1"));
    }
    // As Android does: the segments determine the length of the bar, which is 100 by default.
    let sum: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
    let max = match (segments.is_empty(), progress.max) {
        (true, max) => u64::from(max.unwrap_or(100)),
        (false, Some(max)) if u64::from(max) != sum => {
            return Err(Problem::field(at("max"), "must be the sum of the segments"));
        }
        (false, _) => sum,
    };
    if progress.value.is_some_and(|value| u64::from(value) > max) {
        return Err(Problem::field(at("value"), "must be at most `max`"));
    }
    match points.iter().position(|point| u64::from(point.position) > max) {
        Some(index) => Err(Problem::field(at(&format!("points[{index}].position")), "must be at most `max`")),
        None => Ok(text),
    }
}

impl FromText for ActivityId {
    const WHAT: &'static str = "an activity id (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        Self::parse(text)
    }
}

impl FromText for AttributesType {
    const WHAT: &'static str = "the type of the attributes (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        // Tokens that start activities may be named by it.
        match TokenKey::new(TokenKind::LiveActivityStart, text) {
            Ok(_) if !text.is_empty() => Ok(Self(text.to_owned())),
            _ => Err(Invalid::new("must be the name of a Swift type, such as \"MatchAttributes\"")),
        }
    }
}

impl FromText for IosVia {
    const WHAT: &'static str = "a push service (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        match PushService::named(text) {
            Some(service @ (PushService::Apns | PushService::Fcm)) => Ok(Self(service)),
            _ => Err(Invalid::new("must be \"apns\" or \"fcm\"")),
        }
    }
}

impl FromText for Join {
    const WHAT: &'static str = "who may join (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        match text {
            "invited" => Ok(Self::Invited),
            "anyone" => Ok(Self::Anyone),
            _ => Err(Invalid::new("must be \"invited\" or \"anyone\"")),
        }
    }
}

impl FromText for Pace {
    const WHAT: &'static str = "an urgency (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        match Urgency::named(text) {
            Some(Urgency::Normal) => Ok(Self::Normal),
            Some(Urgency::High) => Ok(Self::High),
            _ => Err(Invalid::new("must be \"normal\" or \"high\"")),
        }
    }
}

impl FromText for Color {
    const WHAT: &'static str = "a colour (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let digits = text.strip_prefix('#').unwrap_or_default();
        match digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true => Ok(Self),
            false => Err(Invalid::new("must be #rrggbb")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn start(rest: &str) -> Result<Start, Problem> {
        let text = format!(
            r#"{{"to": {{"topic": "match"}}, "attributes_type": "Match", "content_state": {{"n": 1}}, "alert": {{"title": "Go"}}{rest}}}"#
        );
        activity(text.as_bytes(), || ActivityId::parse("drawn").expect("an id"), NOW)
    }

    fn refused(problem: Problem) -> (Code, String) {
        (problem.code(), problem.field_path().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_start_has_defaults() {
        let start = start("").expect("valid");
        assert_eq!((start.id.as_str(), start.ttl), ("drawn", Duration::from_secs(12 * 3_600)));
        assert_eq!((start.spec.when, start.joinable, start.spec.ios_via), (When::Connected, false, None));
    }

    #[test]
    fn a_wrong_field_is_named() {
        for (rest, field) in [
            (r#", "id": "a b""#, "id"),
            (r#", "ttl": "13h""#, "ttl"),
            (r#", "ttl": 0"#, "ttl"),
            (r#", "when": "later""#, "when"),
            (r#", "attributes": []"#, "attributes"),
            (r#", "stale_date": "2020-01-01T00:00:00Z""#, "stale_date"),
            (r#", "relevance": -1"#, "relevance"),
            (r#", "ios_via": "webpush""#, "ios_via"),
            (r#", "join": "all""#, "join"),
            (r#", "android": {"progress": {"value": 101}}"#, "android.progress.value"),
            (
                r#", "android": {"progress": {"segments": [{"length": 0}]}}"#,
                "android.progress.segments[0].length",
            ),
            (r#", "android": {"progress": {"max": 9, "segments": [{"length": 5}]}}"#, "android.progress.max"),
            (
                r##", "android": {"progress": {"points": [{"position": 1, "color": "#12345"}]}}"##,
                "android.progress.points[0].color",
            ),
            (
                r#", "android": {"progress": {"points": [{"position": 101}]}}"#,
                "android.progress.points[0].position",
            ),
        ] {
            let problem = start(rest).expect_err(rest);
            assert_eq!(refused(problem), (Code::InvalidField, field.to_owned()), "{rest}");
        }
        assert_eq!(refused(start(r#", "android": {"x": 1}"#).expect_err("unknown")).0, Code::UnknownField);
        let large = format!(r#", "attributes": {{"a": "{}"}}"#, "x".repeat(4_096));
        assert_eq!(refused(start(&large).expect_err("too large")).0, Code::DataTooLarge);
    }

    #[test]
    fn an_update_changes_something() {
        let update = |text: &str| activity_update(text.as_bytes(), NOW);
        let parsed = update(r#"{"stale_date": null, "urgency": "high"}"#).expect("valid");
        assert_eq!((parsed.stale_at, parsed.high), (Some(None), true));
        assert_eq!(refused(update(r#"{"urgency": "high"}"#).expect_err("nothing")).1, "content_state");
        assert_eq!(
            refused(update(r#"{"alert": {"sound": "a.caf"}}"#).expect_err("no text")).1,
            "alert.title"
        );
        assert_eq!(refused(update(r#"{"content_state": 1}"#).expect_err("no object")).1, "content_state");
    }

    #[test]
    fn an_end_may_be_empty_and_dismisses_soon() {
        assert_eq!(activity_end(b"", NOW), Ok((Update::default(), None)));
        assert_eq!(activity_end(b" {} ", NOW).map(|end| end.1), Ok(None));
        let late = br#"{"dismissal_date": "2027-12-24T18:00:00Z"}"#;
        assert_eq!(refused(activity_end(late, NOW).expect_err("too late")).1, "dismissal_date");
    }
}
