//! `POST /v1/notifications`: one notification.
//!
//! Content that is passed through (`data`, `notification`, fields of push services) keeps its text: it is validated here but
//! not encoded again.

use std::time::Duration;

use noroshi_types::{
    Condition, DeviceId, Invalid, JsonText, Push, PushMode, Request, Target, Topic, Ttl, Urgency, UserId,
    When, limits,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Limits, each_once};
use crate::error::{Code, Problem};
use crate::json::{self, Bounded, FromText, Line, Span, Text};

/// Default time for a device to acknowledge before a fallback push.
const PUSH_AFTER_DEFAULT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    to: To,
    when: Option<Text<When>>,
    ttl: Option<Span>,
    urgency: Option<Text<Urgency>>,
    collapse_key: Option<Text<Line<{ limits::COLLAPSE_KEY_BYTES_MAX }>>>,
    retain: Option<bool>,
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    push: Option<PushBody<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct To {
    users: Option<Bounded<Text<UserId>, { limits::TARGETS_MAX }>>,
    devices: Option<Bounded<Text<DeviceId>, { limits::TARGETS_MAX }>>,
    topic: Option<Text<Topic>>,
    condition: Option<Text<Condition>>,
    everyone: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PushBody<'a> {
    pub(super) mode: Option<Text<PushMode>>,
    after: Option<Span>,
    #[serde(borrow)]
    apns: Option<&'a RawValue>,
    #[serde(borrow)]
    fcm: Option<&'a RawValue>,
    #[serde(borrow)]
    webpush: Option<&'a RawValue>,
}

/// The visible part. Validated only; its text is passed on unchanged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    title: Option<String>,
    body: Option<String>,
    image: Option<String>,
    url: Option<String>,
}

/// Parses one notification.
pub fn notification(bytes: &[u8], limits: &Limits) -> Result<Request, Problem> {
    let body: Body<'_> = json::parse(bytes)?;
    let target = target(body.to)?;
    let ttl = match body.ttl {
        Some(Span(duration)) => Ttl::new(duration).map_err(|invalid| Problem::field("ttl", invalid.0))?,
        None => Ttl::default(),
    };
    let retain = body.retain.unwrap_or(false);
    if retain && !matches!(target, Target::Topic(_) | Target::Everyone) {
        return Err(Problem::field("retain", "only a message to a topic or to everyone can be retained"));
    }
    if body.notification.is_none() && body.data.is_none() {
        return Err(Problem::field("data", "a notification must have `notification`, `data` or both"));
    }
    Ok(Request {
        target,
        when: body.when.map_or(When::Stored, |when| when.0),
        ttl,
        urgency: body.urgency.map_or(Urgency::Normal, |urgency| urgency.0),
        waits_for_use: false,
        collapse_key: body.collapse_key.map(|key| key.0.0.into()),
        retain,
        notification: body.notification.map(|raw| shown(raw, "notification", false)).transpose()?,
        data: body.data.map(|data| carried(data, "data", limits.data_bytes)).transpose()?,
        push: push(body.push, ttl, "push")?,
        trace: None,
    })
}

fn target(to: To) -> Result<Target, Problem> {
    let To { users, devices, topic, condition, everyone } = to;
    let named =
        [users.is_some(), devices.is_some(), topic.is_some(), condition.is_some(), everyone.is_some()];
    if named.into_iter().filter(|named| *named).count() != 1 {
        let rule = "`to` names exactly one of `users`, `devices`, `topic`, `condition`, `everyone`";
        return Err(Problem::field("to", rule));
    }
    if let Some(users) = users {
        return named_targets(users, "to.users").map(Target::Users);
    }
    if let Some(devices) = devices {
        return named_targets(devices, "to.devices").map(Target::Devices);
    }
    if let Some(Text(topic)) = topic {
        return Ok(Target::Topic(topic));
    }
    if let Some(Text(condition)) = condition {
        return Ok(Target::Condition(condition));
    }
    match everyone {
        Some(true) => Ok(Target::Everyone),
        _ => Err(Problem::field("to.everyone", "`everyone` can only be true")),
    }
}

fn named_targets<T: Eq + std::hash::Hash>(
    list: Bounded<Text<T>, { limits::TARGETS_MAX }>,
    field: &str,
) -> Result<Vec<T>, Problem> {
    match list.count {
        0 => Err(Problem::field(field, "must not be empty")),
        1..=limits::TARGETS_MAX => Ok(each_once(list.items.into_iter().map(|item| item.0).collect())),
        count => {
            let detail = format!("a request names at most {} targets, got {count}", limits::TARGETS_MAX);
            Err(Problem::new(Code::TooManyTargets, detail).at(field))
        }
    }
}

/// The visible part at `field`. `template`: whether it may contain placeholders.
pub(super) fn shown(raw: &RawValue, field: &str, template: bool) -> Result<JsonText, Problem> {
    let text = carried(raw, field, limits::NOTIFICATION_BYTES_MAX)?;
    let Shown { title, body, image, url } = json::parse_part(raw.get(), field)?;
    if title.is_none() && body.is_none() && image.is_none() && url.is_none() {
        return Err(Problem::field(field, "must have at least one of `title`, `body`, `image`, `url`"));
    }
    // If a URL begins with a placeholder, its scheme depends on the recipient.
    let known = |address: &String| !(template && address.starts_with("{{"));
    if image.filter(known).is_some_and(|image| !matches!(scheme(&image), Some("https" | "http"))) {
        return Err(Problem::field(format!("{field}.image"), "must be an http or https URL"));
    }
    if url.filter(known).is_some_and(|url| scheme(&url).is_none()) {
        return Err(Problem::field(
            format!("{field}.url"),
            "must be an absolute URL: it starts with a scheme such as https:",
        ));
    }
    Ok(text)
}

/// The scheme of an absolute URI (RFC 3986 §3.1) that has something behind it and no blanks.
fn scheme(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once(':')?;
    let well_formed = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let blank = |c: char| c.is_whitespace() || c.is_control();
    (well_formed && !rest.is_empty() && !rest.contains(blank)).then_some(scheme)
}

/// What stands at `field` for push services.
pub(super) fn push(body: Option<PushBody<'_>>, ttl: Ttl, field: &str) -> Result<Push, Problem> {
    let Some(body) = body else { return Ok(Push::default()) };
    let mode = body.mode.map_or(PushMode::Never, |mode| mode.0);
    let after = match (mode, body.after) {
        (PushMode::Fallback, None) => PUSH_AFTER_DEFAULT.min(ttl.duration()),
        (PushMode::Fallback, Some(Span(after))) if after <= ttl.duration() => after,
        (PushMode::Fallback, Some(_)) => {
            return Err(Problem::field(format!("{field}.after"), "must not be longer than the ttl"));
        }
        (PushMode::Never | PushMode::Always, None) => Duration::ZERO,
        (PushMode::Never | PushMode::Always, Some(_)) => {
            let rule = "allowed only with mode \"fallback\"";
            return Err(Problem::field(format!("{field}.after"), rule));
        }
    };
    let service = |raw: Option<&RawValue>, name: &str| {
        raw.map(|raw| service_fields(raw, &format!("{field}.{name}"))).transpose()
    };
    Ok(Push {
        mode,
        after,
        apns: service(body.apns, "apns")?,
        fcm: service(body.fcm, "fcm")?,
        webpush: service(body.webpush, "webpush")?,
    })
}

fn service_fields(raw: &RawValue, field: &str) -> Result<JsonText, Problem> {
    match raw.get().starts_with('{') {
        true => carried(raw, field, limits::NOTIFICATION_BYTES_MAX),
        false => Err(Problem::field(field, "must be an object with the push service's own fields")),
    }
}

pub(super) fn carried(raw: &RawValue, field: &str, bytes_max: usize) -> Result<JsonText, Problem> {
    let text = raw.get();
    match text.len() <= bytes_max {
        true => Ok(JsonText::from_valid(text)),
        false => {
            let detail = format!("`{field}` is at most {bytes_max} bytes of JSON, got {}", text.len());
            Err(Problem::new(Code::DataTooLarge, detail).at(field))
        }
    }
}

macro_rules! words {
    ($($type:ty, $what:literal;)*) => {
        $(impl FromText for $type {
            const WHAT: &'static str = $what;
            fn from_text(text: &str) -> Result<Self, Invalid> {
                let names = || Self::ALL.map(|one| format!(" \"{}\"", one.as_str())).concat();
                let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
                found.ok_or_else(|| Invalid::new(format!("must be one of{}", names())))
            }
        })*
    };
}

words! {
    When, "a presence gate (a string)";
    Urgency, "an urgency (a string)";
    PushMode, "a push mode (a string)";
}

#[cfg(test)]
mod tests;
