//! `POST /v1/campaigns`: a message for an audience, and the lines of its recipients. [`audience`] parses the audience;
//! delivery's `Spec` checks rules that span fields.
//!
//! Texts may contain placeholders (`{{name}}`). They are validated here and kept unchanged.

pub(super) mod audience;
pub(crate) mod draft;
mod recipient;

use std::collections::BTreeMap;

use noroshi_delivery::Texts;
use noroshi_delivery::campaign::spec::{LOCALES_MAX, NAME_MAX, VARIABLES_MAX};
use noroshi_delivery::campaign::template::{NAME_BYTES_MAX, Template};
use noroshi_delivery::campaign::{Audience, CampaignMessage, OwnMessage, Spec, Treatment, Trial};
use noroshi_types::local_time::{LocalTime, QuietHours};
use noroshi_types::{Invalid, Label, Lane, PushMode, Timestamp, Ttl, Urgency, When, limits};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Limits;
use super::device::Locale;
use super::notification::{PushBody, carried, push, shown};
use crate::error::Problem;
use crate::json::{self, FromText, Line, Span, Text, TextMap};

pub use recipient::recipient;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    name: Option<Text<Line<NAME_MAX>>>,
    audience: audience::AudienceBody,
    #[serde(borrow)]
    message: MessageBody<'a>,
    #[serde(borrow)]
    locales: Option<LocalesBody<'a>>,
    #[serde(borrow)]
    experiment: Option<TrialBody<'a>>,
    variables: Option<VariablesBody>,
    start_at: Option<Text<StartAt>>,
    local_time: Option<Text<LocalTime>>,
    quiet_hours: Option<QuietHoursBody>,
    rate_per_second: Option<u32>,
    lane: Option<Text<Lane>>,
    batch_size: Option<u32>,
    start: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageBody<'a> {
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    urgency: Option<Text<Urgency>>,
    ttl: Option<Span>,
    collapse_key: Option<Text<Line<{ limits::COLLAPSE_KEY_BYTES_MAX }>>>,
    category: Option<Text<Label>>,
    when: Option<Text<When>>,
    #[serde(borrow)]
    push: Option<PushBody<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantBody<'a> {
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

type LocalesBody<'a> = TextMap<Locale, VariantBody<'a>, LOCALES_MAX>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrialBody<'a> {
    name: Text<Label>,
    control: Option<Text<Label>>,
    #[serde(borrow)]
    variants: Option<TextMap<Label, TreatmentBody<'a>, { limits::VARIANTS_MAX }>>,
}

/// The message of one variant of the experiment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TreatmentBody<'a> {
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    locales: Option<LocalesBody<'a>>,
    hold_out: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuietHoursBody {
    from: Text<LocalTime>,
    to: Text<LocalTime>,
}

/// Values of placeholders, by name.
type VariablesBody = TextMap<VariableName, String, VARIABLES_MAX>;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct VariableName(String);

pub(super) struct StartAt(pub(super) Timestamp);

/// Parses one campaign.
pub fn campaign(bytes: &[u8], limits: &Limits) -> Result<Spec, Problem> {
    let body: Body<'_> = json::parse(bytes)?;
    let (audience, filter) = audience::audience(body.audience)?;
    let quiet_hours = body.quiet_hours.map(|hours| QuietHours::new(hours.from.0, hours.to.0));
    let spec = Spec {
        name: body.name.map(|name| name.0.0),
        start: body.start.unwrap_or(audience != Audience::Upload),
        audience,
        filter,
        message: message(body.message, limits)?,
        locales: locales(body.locales, "locales", limits)?,
        trial: body.experiment.map(|body| trial(body, limits)).transpose()?,
        variables: body.variables.map(variables).unwrap_or_default(),
        start_at: body.start_at.map(|start_at| start_at.0.0),
        local_time: body.local_time.map(|time| time.0),
        quiet_hours: quiet_hours.transpose().map_err(|invalid| Problem::field("quiet_hours", invalid.0))?,
        rate_per_second: body.rate_per_second,
        lane: body.lane.map_or(Lane::Campaign, |lane| lane.0),
        batch_size: body.batch_size.unwrap_or(limits.campaign_batch),
        trace: None,
    };
    spec.check().map_err(placed)
}

fn message(body: MessageBody<'_>, limits: &Limits) -> Result<CampaignMessage, Problem> {
    const FIELD: &str = "message";
    let ttl = match body.ttl {
        Some(Span(duration)) => {
            Ttl::new(duration).map_err(|invalid| Problem::field("message.ttl", invalid.0))?
        }
        None => Ttl::default(),
    };
    let when = body.when.map(|when| when.0);
    let mode = body.push.as_ref().and_then(|push| push.mode.as_ref()).map(|mode| mode.0);
    if body.push.as_ref().is_some_and(|push| push.broadcast.is_some()) {
        let rule = "a campaign is not broadcast to channels";
        return Err(Problem::field("message.push.broadcast", rule));
    }
    let mut push = push(body.push, ttl, "message.push")?;
    if when.is_none() {
        // Only push services deliver it.
        if mode.is_some_and(|mode| mode != PushMode::Always) {
            let rule = "without `when` only push services deliver the message: the mode must be \"always\" or absent";
            return Err(Problem::field("message.push.mode", rule));
        }
        push.mode = PushMode::Always;
    }
    let (notification, data) = (body.notification, body.data);
    let Texts { notification, data } = content(notification, data, FIELD, limits)?;
    Ok(CampaignMessage {
        notification,
        data,
        urgency: body.urgency.map_or(Urgency::Normal, |urgency| urgency.0),
        ttl,
        collapse_key: body.collapse_key.map(|key| key.0.0.into()),
        category: body.category.map(|name| name.0),
        when,
        push,
    })
}

fn locales(
    body: Option<LocalesBody<'_>>,
    field: &str,
    limits: &Limits,
) -> Result<BTreeMap<String, Texts>, Problem> {
    let locale = |(tag, body): (Locale, VariantBody<'_>)| {
        let field = format!("{field}.{}", tag.0);
        variant(body, &field, limits).map(|variant| (tag.0, variant))
    };
    body.map(|map| map.0).unwrap_or_default().into_iter().map(locale).collect()
}

/// Does not check whether the experiment exists.
fn trial(body: TrialBody<'_>, limits: &Limits) -> Result<Trial, Problem> {
    let one = |(name, body): (Label, TreatmentBody<'_>)| {
        let field = format!("experiment.variants.{name}");
        Ok((name, treatment(body, &field, limits)?))
    };
    let variants = body.variants.map(|map| map.0).unwrap_or_default();
    Ok(Trial {
        experiment: body.name.0,
        control: body.control.map(|name| name.0),
        treatments: variants.into_iter().map(one).collect::<Result<_, Problem>>()?,
        definition: None,
    })
}

fn treatment(body: TreatmentBody<'_>, field: &str, limits: &Limits) -> Result<Treatment, Problem> {
    let holds_out = body.hold_out == Some(true);
    let is_empty = body.notification.is_none() && body.data.is_none() && body.locales.is_none();
    match (holds_out, is_empty) {
        (true, true) => Ok(Treatment::HoldOut),
        (true, false) => Err(Problem::field(field, "a held-out variant has no message")),
        (false, true) => {
            let rule = "a variant has `notification`, `data`, `locales` or `hold_out`; one that is not named here \
                        gets the campaign's message";
            Err(Problem::field(field, rule))
        }
        (false, false) => Ok(Treatment::Own(OwnMessage {
            content: content(body.notification, body.data, field, limits)?,
            locales: locales(body.locales, &format!("{field}.locales"), limits)?,
        })),
    }
}

fn variant(body: VariantBody<'_>, field: &str, limits: &Limits) -> Result<Texts, Problem> {
    if body.notification.is_none() && body.data.is_none() {
        return Err(Problem::field(field, "a variant must have `notification`, `data` or both"));
    }
    content(body.notification, body.data, field, limits)
}

/// The message content at `field`.
fn content(
    notification: Option<&RawValue>,
    data: Option<&RawValue>,
    field: &str,
    limits: &Limits,
) -> Result<Texts, Problem> {
    let (notification_at, data_at) = (format!("{field}.notification"), format!("{field}.data"));
    let notification = notification.map(|raw| shown(raw, &notification_at, true)).transpose()?;
    let data = data.map(|raw| carried(raw, &data_at, limits.data_bytes)).transpose()?;
    for (text, field) in [(&notification, notification_at), (&data, data_at)] {
        if let Some(text) = text {
            Template::parse(text.clone()).map_err(|invalid| Problem::field(field, invalid.0))?;
        }
    }
    Ok(Texts { notification, data })
}

fn variables(body: VariablesBody) -> BTreeMap<String, String> {
    body.0.into_iter().map(|(name, word)| (name.0, word)).collect()
}

/// Delivery's rules begin with the name of the field.
pub(crate) fn placed(invalid: Invalid) -> Problem {
    let is_path = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'));
    match invalid.0.split_once(": ") {
        Some((field, rule)) if is_path(field) => Problem::field(field, rule.to_owned()),
        _ => Problem::field("", invalid.0),
    }
}

impl FromText for VariableName {
    const WHAT: &'static str = "a name (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        match fits {
            true => Ok(Self(text.to_owned())),
            false => Err(Invalid::new(format!(
                "a variable name has at most {NAME_BYTES_MAX} letters, digits, '_', '-' and '.'"
            ))),
        }
    }
}

impl FromText for StartAt {
    const WHAT: &'static str = "a time (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let wrong = || Invalid::new("must be an RFC 3339 time, such as \"2026-01-15T09:30:00Z\"");
        let time: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
        u64::try_from(time.as_millisecond()).map(Timestamp).map(Self).map_err(|_| wrong())
    }
}

impl FromText for LocalTime {
    const WHAT: &'static str = "a time of day (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        Self::parse(text)
    }
}

impl FromText for Lane {
    const WHAT: &'static str = "a lane (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        [Lane::Campaign, Lane::Extra]
            .into_iter()
            .find(|lane| lane.as_str() == text)
            .ok_or_else(|| Invalid::new("must be \"campaign\" or \"extra\""))
    }
}

#[cfg(test)]
mod tests;
