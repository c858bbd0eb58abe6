//! `POST /v1/notifications`: one notification.
//!
//! Content that is passed through (`data`, `notification`, fields of push services) keeps its text: it is validated here but
//! not encoded again.

mod shown;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use noroshi_push::{Direction, Level};
use noroshi_types::{
    Category, Condition, DeviceId, Invalid, ItemRequest, JsonText, Label, Push, PushMode, PushService,
    Request, Target, Timestamp, TokenKey, Topic, Ttl, Urgency, UserId, When, limits,
};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Limits, broadcast, each_once};
use crate::error::{Code, Problem};
use crate::json::{self, Bounded, FromText, Line, Span, Text};

pub(super) use shown::shown;

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
    item: Option<ItemBody>,
    category: Option<Text<Label>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemBody {
    category: Option<Text<Label>>,
    retention: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct To {
    users: Option<Bounded<Text<UserId>, { limits::TARGETS_MAX }>>,
    devices: Option<Bounded<Text<DeviceId>, { limits::TARGETS_MAX }>>,
    topic: Option<Text<Topic>>,
    condition: Option<Text<Condition>>,
    everyone: Option<bool>,
}

#[derive(Default)]
pub(super) struct PushBody<'a> {
    pub(super) mode: Option<Text<PushMode>>,
    after: Option<Span>,
    pub(super) token: Option<Text<TokenKey>>,
    /// A push service's own fields, at its name.
    own: Vec<(PushService, &'a RawValue)>,
    /// For one message to a topic only: campaigns have none.
    pub(super) broadcast: Option<&'a RawValue>,
}

/// The place of the first push service in [`PUSH_FIELDS`].
const OWN_FIRST: usize = 4;

/// The names in a push section.
const PUSH_FIELDS: [&str; OWN_FIRST + PushService::ALL.len()] = {
    let mut names = [""; OWN_FIRST + PushService::ALL.len()];
    (names[0], names[1], names[2], names[3]) = ("mode", "after", "token", "broadcast");
    let mut index = 0;
    while index < PushService::ALL.len() {
        names[OWN_FIRST + index] = PushService::ALL[index].as_str();
        index += 1;
    }
    names
};

impl<'de: 'a, 'a> Deserialize<'de> for PushBody<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PushVisitor<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for PushVisitor<'a> {
            type Value = PushBody<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PushBody<'a>, A::Error> {
                let (mut body, mut seen) = (PushBody::default(), [false; PUSH_FIELDS.len()]);
                while let Some(name) = map.next_key::<Cow<'_, str>>()? {
                    let Some(index) = PUSH_FIELDS.iter().position(|known| *known == name) else {
                        return Err(de::Error::unknown_field(&name, &PUSH_FIELDS));
                    };
                    if std::mem::replace(&mut seen[index], true) {
                        return Err(de::Error::duplicate_field(PUSH_FIELDS[index]));
                    }
                    match (index, PushService::named(&name)) {
                        (_, Some(service)) => {
                            let fields: Option<&'a RawValue> = map.next_value()?;
                            body.own.extend(fields.map(|fields| (service, fields)));
                        }
                        (0, None) => body.mode = map.next_value()?,
                        (1, None) => body.after = map.next_value()?,
                        (2, None) => body.token = map.next_value()?,
                        (_, None) => body.broadcast = map.next_value()?,
                    }
                }
                Ok(body)
            }
        }
        deserializer.deserialize_map(PushVisitor(PhantomData))
    }
}

/// Parses one notification. `now`: the time of a broadcast that names none.
pub fn notification(bytes: &[u8], limits: &Limits, now: Timestamp) -> Result<Request, Problem> {
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
    let broadcast = match body.push.as_ref().and_then(|push| push.broadcast) {
        Some(_) if !matches!(target, Target::Topic(_)) => {
            let rule = "only a message to a topic can be broadcast to the topic's channels";
            return Err(Problem::field("push.broadcast", rule));
        }
        Some(raw) => Some(Box::new(broadcast::of_notification(raw, now, "push.broadcast")?)),
        None => None,
    };
    let item = body.item.map(|item| item_request(item, &target)).transpose()?;
    // The item has the category of its notification; either place names it.
    let of_item = item.as_ref().and_then(|item| item.category.clone());
    let category = match (body.category.map(|name| name.0), of_item) {
        (Some(category), Some(of_item)) if category != of_item => {
            return Err(Problem::field("item.category", "must be the same as `category`, or absent"));
        }
        (category, of_item) => category.or(of_item),
    };
    let item = item.map(|item| ItemRequest { category: category.clone(), ..item });
    Ok(Request {
        item,
        target,
        when: body.when.map_or(When::Stored, |when| when.0),
        ttl,
        urgency: body.urgency.map_or(Urgency::Normal, |urgency| urgency.0),
        waits_for_use: false,
        // Delivery knows which categories are essential.
        category: category.map(|name| Category { name, is_essential: false }),
        collapse_key: body.collapse_key.map(|key| key.0.0.into()),
        retain,
        notification: body.notification.map(|raw| shown(raw, "notification", false)).transpose()?,
        data: body.data.map(|data| carried(data, "data", limits.data_bytes)).transpose()?,
        push: Push { broadcast, ..push(body.push, ttl, "push")? },
        trace: None,
    })
}

fn item_request(body: ItemBody, target: &Target) -> Result<ItemRequest, Problem> {
    let named = match target {
        Target::Users(users) => users.len(),
        Target::Devices(devices) => devices.len(),
        Target::Topic(_) | Target::Condition(_) | Target::Everyone => {
            let rule = "only a notification to `users` or `devices` can have items: of other targets no list of users exists";
            return Err(Problem::field("item", rule));
        }
    };
    if named > limits::ITEM_TARGETS_MAX {
        let max = limits::ITEM_TARGETS_MAX;
        let rule = format!("a notification with items names at most {max} targets, got {named}");
        return Err(Problem::new(Code::TooManyTargets, rule).at("to"));
    }
    let retention = body.retention.map_or(limits::ITEM_RETENTION, |span| span.0);
    if !(limits::ITEM_RETENTION_MIN..=limits::ITEM_RETENTION_MAX).contains(&retention) {
        return Err(Problem::field("item.retention", "must be from 1 minute to 365 days"));
    }
    Ok(ItemRequest { category: body.category.map(|category| category.0), retention })
}

pub(super) fn target(to: To) -> Result<Target, Problem> {
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

/// What stands at `field` for push services.
pub(super) fn push(body: Option<PushBody<'_>>, ttl: Ttl, field: &str) -> Result<Push, Problem> {
    let Some(body) = body else { return Ok(Push::default()) };
    let token = body.token.map(|token| token.0);
    let mode = match (body.mode, &token) {
        (Some(Text(PushMode::Never)), Some(_)) => {
            let rule = "must be \"always\" or \"fallback\" for a push to a token";
            return Err(Problem::field(format!("{field}.mode"), rule));
        }
        (Some(mode), _) => mode.0,
        // A request that names a token asks for a push.
        (None, Some(_)) => PushMode::Always,
        (None, None) => PushMode::Never,
    };
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
    let own = |(service, raw): (PushService, &RawValue)| {
        service_fields(raw, &format!("{field}.{}", service.as_str())).map(|fields| (service, fields))
    };
    let own = body.own.into_iter().map(own).collect::<Result<_, _>>()?;
    Ok(Push { mode, after, token, own, broadcast: None })
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
    Level, "an interruption level (a string)";
    Direction, "a direction (a string)";
}

#[cfg(test)]
mod tests;
