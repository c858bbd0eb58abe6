//! A [`Spec`] as the store keeps it. New fields need a default, and no field may change its meaning, because campaigns
//! of older versions are read back.

use std::collections::BTreeMap;
use std::time::Duration;

use noroshi_types::{
    Condition, Invalid, JsonText, Label, Lane, OwnFields, Push, PushMode, PushService, Timestamp, TokenKey,
    Topic, TraceContext, Ttl, Urgency, When,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Audience, CampaignMessage, Spec};
use crate::campaign::trial::{OwnMessage, Treatment, Trial};
use crate::definition::experiment::{Experiment, StoredExperiment};
use crate::filter::Filter;
use crate::texts::{Texts, json};
use noroshi_types::local_time::{LocalTime, QuietHours};

#[derive(Serialize, Deserialize)]
struct StoredSpec {
    name: Option<String>,
    audience: StoredAudience,
    #[serde(default)]
    filter: Filter,
    message: StoredMessage,
    locales: BTreeMap<String, Texts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    experiment: Option<StoredTrial>,
    variables: BTreeMap<String, String>,
    start_at_ms: Option<u64>,
    local_time: Option<String>,
    quiet_hours: Option<(String, String)>,
    rate_per_second: Option<u32>,
    lane: u8,
    batch_size: u32,
    start: bool,
    /// In the format of `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredAudience {
    Everyone,
    Topic(String),
    Condition(String),
    Upload,
    Devices,
}

#[derive(Serialize, Deserialize)]
struct StoredMessage {
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    notification: Option<JsonText>,
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    data: Option<JsonText>,
    urgency: u8,
    ttl_ms: u64,
    collapse_key: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    when: Option<u8>,
    push_mode: u8,
    push_after_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    push_token: Option<String>,
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    apns: Option<JsonText>,
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    fcm: Option<JsonText>,
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    webpush: Option<JsonText>,
    /// Fields of every other push service, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    own: BTreeMap<String, Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
struct StoredTrial {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    control: Option<String>,
    variants: BTreeMap<String, StoredTreatment>,
    definition: Option<StoredExperiment>,
}

#[derive(Serialize, Deserialize)]
struct StoredTreatment {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    hold_out: bool,
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    notification: Option<JsonText>,
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    data: Option<JsonText>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    locales: BTreeMap<String, Texts>,
}

impl Spec {
    pub fn to_json(&self) -> JsonText {
        let stored = StoredSpec::from(self);
        // Cannot fail: only maps with text keys, texts and numbers.
        JsonText::from_valid(serde_json::to_string(&stored).unwrap_or_default())
    }

    /// Parses what [`Spec::to_json`] wrote.
    pub fn from_json(json: &JsonText) -> Result<Self, Invalid> {
        let stored: StoredSpec = serde_json::from_str(json.as_str())
            .map_err(|error| Invalid::new(format!("a stored campaign cannot be read: {error}")))?;
        stored.try_into()
    }
}

impl From<&Spec> for StoredSpec {
    fn from(spec: &Spec) -> Self {
        Self {
            name: spec.name.clone(),
            audience: match &spec.audience {
                Audience::Everyone => StoredAudience::Everyone,
                Audience::Topic(topic) => StoredAudience::Topic(topic.as_str().to_owned()),
                Audience::Condition(condition) => StoredAudience::Condition(condition.as_str().to_owned()),
                Audience::Upload => StoredAudience::Upload,
                Audience::Devices => StoredAudience::Devices,
            },
            filter: spec.filter.clone(),
            message: StoredMessage::from(&spec.message),
            locales: spec.locales.clone(),
            experiment: spec.trial.as_ref().map(StoredTrial::from),
            variables: spec.variables.clone(),
            start_at_ms: spec.start_at.map(|start_at| start_at.0),
            local_time: spec.local_time.map(|time| time.to_string()),
            quiet_hours: spec.quiet_hours.map(|quiet| (quiet.from.to_string(), quiet.to.to_string())),
            rate_per_second: spec.rate_per_second,
            lane: spec.lane as u8,
            batch_size: spec.batch_size,
            start: spec.start,
            trace: spec.trace.map(|trace| trace.to_string()),
        }
    }
}

impl TryFrom<StoredSpec> for Spec {
    type Error = Invalid;

    fn try_from(stored: StoredSpec) -> Result<Self, Invalid> {
        let quiet_hours = stored
            .quiet_hours
            .map(|(from, to)| QuietHours::new(LocalTime::parse(&from)?, LocalTime::parse(&to)?));
        Ok(Self {
            name: stored.name,
            audience: match stored.audience {
                StoredAudience::Everyone => Audience::Everyone,
                StoredAudience::Topic(topic) => Audience::Topic(Topic::parse(&topic)?),
                StoredAudience::Condition(text) => Audience::Condition(Condition::parse(&text)?),
                StoredAudience::Upload => Audience::Upload,
                StoredAudience::Devices => Audience::Devices,
            },
            filter: stored.filter,
            message: stored.message.try_into()?,
            locales: stored.locales,
            trial: stored.experiment.map(Trial::try_from).transpose()?,
            variables: stored.variables,
            start_at: stored.start_at_ms.map(Timestamp),
            local_time: stored.local_time.map(|time| LocalTime::parse(&time)).transpose()?,
            quiet_hours: quiet_hours.transpose()?,
            rate_per_second: stored.rate_per_second,
            lane: Lane::from_code(stored.lane).ok_or_else(|| unknown("lane"))?,
            batch_size: stored.batch_size,
            start: stored.start,
            trace: stored.trace.and_then(|trace| TraceContext::parse(trace.as_bytes())),
        })
    }
}

impl From<&Trial> for StoredTrial {
    fn from(trial: &Trial) -> Self {
        let treatment = |treatment: &Treatment| match treatment {
            Treatment::HoldOut => {
                StoredTreatment { hold_out: true, notification: None, data: None, locales: BTreeMap::new() }
            }
            Treatment::Own(OwnMessage { content, locales }) => StoredTreatment {
                hold_out: false,
                notification: content.notification.clone(),
                data: content.data.clone(),
                locales: locales.clone(),
            },
        };
        Self {
            name: trial.experiment.to_string(),
            control: trial.control.as_ref().map(Label::to_string),
            variants: trial.treatments.iter().map(|(name, one)| (name.to_string(), treatment(one))).collect(),
            definition: trial.definition.as_ref().map(StoredExperiment::from),
        }
    }
}

impl TryFrom<StoredTrial> for Trial {
    type Error = Invalid;

    fn try_from(stored: StoredTrial) -> Result<Self, Invalid> {
        let treatment = |stored: StoredTreatment| match stored.hold_out {
            true => Treatment::HoldOut,
            false => Treatment::Own(OwnMessage {
                content: Texts { notification: stored.notification, data: stored.data },
                locales: stored.locales,
            }),
        };
        let treatments =
            stored.variants.into_iter().map(|(name, one)| Ok((Label::parse(&name)?, treatment(one))));
        Ok(Self {
            experiment: Label::parse(&stored.name)?,
            control: stored.control.as_deref().map(Label::parse).transpose()?,
            treatments: treatments.collect::<Result<_, Invalid>>()?,
            definition: stored.definition.map(Experiment::try_from).transpose()?,
        })
    }
}

impl From<&CampaignMessage> for StoredMessage {
    fn from(message: &CampaignMessage) -> Self {
        let push = &message.push;
        Self {
            notification: message.notification.clone(),
            data: message.data.clone(),
            urgency: message.urgency as u8,
            ttl_ms: milliseconds(message.ttl.duration()),
            collapse_key: message.collapse_key.clone(),
            category: message.category.as_ref().map(Label::to_string),
            when: message.when.map(|when| when as u8),
            push_mode: match push.mode {
                PushMode::Never => 0,
                PushMode::Fallback => 1,
                PushMode::Always => 2,
            },
            push_after_ms: milliseconds(push.after),
            push_token: push.token.as_ref().map(TokenKey::to_string),
            apns: push.own.get(PushService::Apns).cloned(),
            fcm: push.own.get(PushService::Fcm).cloned(),
            webpush: push.own.get(PushService::WebPush).cloned(),
            own: others(&push.own),
        }
    }
}

/// The fields of services that have no field of their own in [`StoredMessage`].
fn others(own: &OwnFields) -> BTreeMap<String, Box<RawValue>> {
    let older = [PushService::Apns, PushService::Fcm, PushService::WebPush];
    let others = own.iter().filter(|(service, _)| !older.contains(service));
    // A `JsonText` is always valid JSON.
    let raw = |fields: &JsonText| RawValue::from_string(fields.as_str().to_owned()).ok();
    others.filter_map(|(service, fields)| Some((service.as_str().to_owned(), raw(fields)?))).collect()
}

/// Leaves out fields of services that only a newer program knows: this program cannot send to them.
fn own_of(
    apns: Option<JsonText>,
    fcm: Option<JsonText>,
    webpush: Option<JsonText>,
    others: BTreeMap<String, Box<RawValue>>,
) -> OwnFields {
    let older = [(PushService::Apns, apns), (PushService::Fcm, fcm), (PushService::WebPush, webpush)];
    let older = older.into_iter().filter_map(|(service, fields)| Some((service, fields?)));
    let text = |raw: Box<RawValue>| JsonText::from_valid(Box::<str>::from(raw).into_string());
    let others = others.into_iter().filter_map(|(name, raw)| Some((PushService::named(&name)?, text(raw))));
    older.chain(others).collect()
}

impl TryFrom<StoredMessage> for CampaignMessage {
    type Error = Invalid;

    fn try_from(stored: StoredMessage) -> Result<Self, Invalid> {
        let mode = match stored.push_mode {
            0 => PushMode::Never,
            1 => PushMode::Fallback,
            2 => PushMode::Always,
            _ => return Err(unknown("push mode")),
        };
        let when = |code| When::from_code(code).ok_or_else(|| unknown("when"));
        Ok(Self {
            notification: stored.notification,
            data: stored.data,
            urgency: Urgency::from_code(stored.urgency).ok_or_else(|| unknown("urgency"))?,
            ttl: Ttl::new(Duration::from_millis(stored.ttl_ms))?,
            collapse_key: stored.collapse_key,
            category: stored.category.map(|name| Label::parse(&name)).transpose()?,
            when: stored.when.map(when).transpose()?,
            push: Push {
                mode,
                after: Duration::from_millis(stored.push_after_ms),
                token: stored.push_token.as_deref().map(TokenKey::parse).transpose()?,
                own: own_of(stored.apns, stored.fcm, stored.webpush, stored.own),
                broadcast: None,
            },
        })
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn unknown(what: &'static str) -> Invalid {
    Invalid::new(format!("a stored campaign has a {what} that this version does not know"))
}
