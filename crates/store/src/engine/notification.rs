//! Rows of notifications: codes, texts, and the values that callers read from them.

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{
    Category, Epoch, Label, Message, NotificationId, Outcome, OwnFields, Position, Push, PushMode,
    PushService, Request, Target, Timestamp, Topic, TopicPosition, Urgency, When, limits,
};

use super::outcome::{self, Sums};
use super::push_token::key_of;
use super::record::{Record, trace_of, unknown};
use crate::ids::Ids;
use crate::{Accept, Error, Fallback, NotificationState, PushContent, RequestSummary, State, TARGET_KINDS};

/// What the store still holds of a notification for its devices. Values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Standing {
    /// Nothing: only connected devices received it.
    Nothing = 0,
    /// Inbox rows, or a row in a topic's log. They may be acknowledged by now.
    Kept = 1,
    /// It left a topic's log before its ttl ended: collapsed or trimmed.
    Replaced = 2,
    /// The ttl ended, and the remaining rows were removed.
    Expired = 3,
    Cancelled = 4,
}

impl Standing {
    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Kept,
            2 => Self::Replaced,
            3 => Self::Expired,
            4 => Self::Cancelled,
            _ => Self::Nothing,
        }
    }
}

pub(crate) fn target_of(target: &Target) -> (u8, Option<&str>) {
    match target {
        Target::Users(_) => (0, None),
        Target::Devices(_) => (1, None),
        Target::Topic(topic) => (2, Some(topic.as_str())),
        Target::Condition(condition) => (3, Some(condition.as_str())),
        Target::Everyone => (4, None),
    }
}

/// The code of a campaign's notification in [`TARGET_KINDS`].
pub(crate) const TO_CAMPAIGN: u8 = 5;

/// The message that devices receive.
pub(crate) fn message_of(accept: &Accept, id: NotificationId, position: Option<Position>) -> Message {
    let request = &accept.request;
    let topic = match &request.target {
        Target::Topic(topic) => Some(topic.clone()),
        Target::Everyone => Some(Topic::everyone()),
        Target::Users(_) | Target::Devices(_) | Target::Condition(_) => None,
    };
    Message {
        id,
        app: accept.app,
        when: request.when,
        urgency: request.urgency,
        topic: topic.zip(position).map(|(topic, position)| TopicPosition { topic, position }),
        notification: request.notification.clone(),
        data: request.data.clone(),
        sent_at: accept.now,
        expires_at: request.expires_at(accept.now),
        push_waits: request.push.mode == PushMode::Fallback,
        waits_for_use: request.waits_for_use,
        category: request.category.clone(),
    }
}

/// The row is kept at least until then.
pub(crate) fn keep_until(accept: &Accept, trace_retention: Duration) -> Timestamp {
    let until = accept.request.expires_at(accept.now).max(accept.now.saturating_add(trace_retention));
    match accept.idempotency {
        // The answer to a repeated request comes from this row.
        Some(_) => until.max(accept.now.saturating_add(limits::IDEMPOTENCY_WINDOW)),
        None => until,
    }
}

/// The mode of [`push_text`]; `never` is the default.
fn push_mode(text: Option<&str>) -> PushMode {
    text.and_then(PushMode::named).unwrap_or_default()
}

/// The push section as JSON, with `waits` if idle devices do not receive the message yet, and the category; `None` for the
/// defaults.
pub(crate) fn push_text(push: &Push, waits_for_use: bool, category: Option<&Category>) -> Option<String> {
    // Without `..`: a new field must be stored too. Broadcasts have rows of their own.
    let Push { mode, after, token, own, broadcast: _ } = push;
    let mut text = format!(r#"{{"mode":"{}","after_ms":{}"#, mode.as_str(), after.as_millis());
    if let Some(token) = token {
        // Kind and name need no escapes.
        text.push_str(&format!(r#","token":"{token}""#));
    }
    for (service, own) in own.iter() {
        text.push_str(&format!(r#","{}":{}"#, service.as_str(), own.as_str()));
    }
    if waits_for_use {
        text.push_str(r#","waits":"use""#);
    }
    if let Some(Category { name, is_essential }) = category {
        // A label needs no escapes.
        let essential = if *is_essential { r#","essential":1"# } else { "" };
        text.push_str(&format!(r#","category":"{name}"{essential}"#));
    }
    text.push('}');
    let is_default = *push == Push { broadcast: push.broadcast.clone(), ..Push::default() };
    (waits_for_use || category.is_some() || !is_default).then_some(text)
}

/// Acknowledgements of a topic's subscribers are not recorded per message, so a message in a log is pending until its
/// ttl ends.
pub(super) fn state_of(standing: Standing, sums: &Sums, in_topic: bool, expired: bool) -> State {
    let outstanding = outcome::outstanding(sums) > 0;
    match standing {
        Standing::Cancelled => State::Cancelled,
        Standing::Kept if in_topic || outstanding => match expired {
            true => State::Expired,
            false => State::Pending,
        },
        Standing::Expired if in_topic || sums[Outcome::Expired as usize] > 0 => State::Expired,
        Standing::Nothing | Standing::Kept | Standing::Replaced | Standing::Expired => State::Done,
    }
}

impl Fallback {
    pub(crate) fn of(request: &Request) -> Self {
        let in_topic = matches!(request.target, Target::Topic(_) | Target::Everyone);
        Self::by(request.push.mode, request.when, in_topic, request.ttl.duration().is_zero())
    }

    /// `at_once`: its ttl is 0.
    fn by(mode: PushMode, when: When, in_topic: bool, at_once: bool) -> Self {
        match mode {
            PushMode::Never | PushMode::Always => Self::Settled,
            PushMode::Fallback if when != When::Stored => Self::Acknowledged,
            PushMode::Fallback if in_topic => Self::Position,
            // There is no inbox row.
            PushMode::Fallback if at_once => Self::Acknowledged,
            PushMode::Fallback => Self::Inbox,
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Inbox,
            2 => Self::Position,
            3 => Self::Acknowledged,
            _ => Self::Settled,
        }
    }
}

/// The message of a row from column `first` on: `num, app, delivery, urgency, notification, data, created_at, expires_at,
/// topic_offset`, the topic's `name` and `epoch` (0 for a log that no longer exists), whether a fallback push waits, whether idle devices wait, and the category as
/// [`category_of`] reads it.
pub(crate) fn message_of_row(
    row: &(impl Record + ?Sized),
    first: usize,
    ids: &Ids,
) -> Result<Message, Error> {
    let topic = match row.count_or_null(first + 8)? {
        Some(offset) => Some(TopicPosition {
            topic: Topic::from_trusted(row.text(first + 9)?),
            position: Position { epoch: Epoch(row.int(first + 10)? as u32), offset },
        }),
        None => None,
    };
    Ok(Message {
        id: ids.id(row.int(first)?),
        app: row.app(first + 1)?,
        when: When::from_code(row.code(first + 2)?).ok_or_else(|| unknown("delivery"))?,
        urgency: Urgency::from_code(row.code(first + 3)?).ok_or_else(|| unknown("urgency"))?,
        topic,
        notification: row.json_or_null(first + 4)?,
        data: row.json_or_null(first + 5)?,
        sent_at: row.time(first + 6)?,
        expires_at: row.time(first + 7)?,
        push_waits: row.flag(first + 11)?,
        waits_for_use: row.flag(first + 12)?,
        category: category_of(row, first + 13)?,
    })
}

/// Reads a category's name, and whether it is essential.
fn category_of(row: &(impl Record + ?Sized), first: usize) -> Result<Option<Category>, Error> {
    let name = row.text_or_null(first)?.and_then(|name| Label::parse(name).ok());
    let is_essential = row.flag(first + 1)?;
    Ok(name.map(|name| Category { name, is_essential }))
}

/// Columns of `notifications n` behind those of the message, for [`notification_state`].
pub(crate) const STATE_COLUMNS: &str =
    "n.target, n.target_text, n.targets, n.collapse_key, n.retain, n.standing, n.trace";

/// The state of a notification from the columns of its message and [`STATE_COLUMNS`]. `opened` counts devices.
pub(crate) fn notification_state(
    row: &(impl Record + ?Sized),
    ids: &Ids,
    mut sums: Sums,
    opened: u64,
    now: Timestamp,
) -> Result<NotificationState, Error> {
    let message = message_of_row(row, 0, ids)?;
    let request = RequestSummary {
        target: TARGET_KINDS.get(usize::from(row.code(15)?)).copied().unwrap_or("unknown"),
        target_text: row.string_or_null(16)?,
        targets: row.count_or_null(17)?,
        collapse_key: row.string_or_null(18)?,
        retain: row.flag(19)?,
        trace: trace_of(row, 21)?,
    };
    sums[Outcome::Opened as usize] = opened;
    let standing = Standing::from_code(row.code(20)?);
    let state = state_of(standing, &sums, message.topic.is_some(), message.expires_at <= now);
    let counts = Outcome::ALL.into_iter().map(|outcome| (outcome, sums[outcome as usize]));
    let counts = counts.filter(|(_, count)| *count > 0).collect();
    Ok(NotificationState { message: Arc::new(message), request, state, counts })
}

/// The push section's fields of each service, as columns. `of`: the column of a service's name.
pub(crate) fn own_columns(of: impl Fn(&str) -> String) -> String {
    PushService::ALL.map(|service| of(service.as_str())).join(", ")
}

/// Reads `notification, data, urgency, collapse_key`, of the push section `mode, after_ms, token`, then
/// `created_at, expires_at, trace`, `target, target_text`, the category as [`category_of`] reads it,
/// `delivery`, and [`own_columns`].
pub(crate) fn content_of(row: &(impl Record + ?Sized)) -> Result<PushContent, Error> {
    let (mode, when) =
        (push_mode(row.text_or_null(4)?), When::from_code(row.code(14)?).unwrap_or(When::Stored));
    let (sent_at, expires_at) = (row.time(7)?, row.time(8)?);
    let in_topic = matches!(TARGET_KINDS.get(usize::from(row.code(10)?)), Some(&("topic" | "everyone")));
    Ok(PushContent {
        notification: row.json_or_null(0)?,
        data: row.json_or_null(1)?,
        urgency: Urgency::from_code(row.code(2)?).unwrap_or_default(),
        collapse_key: row.text_or_null(3)?.map(Box::from),
        push: Push {
            mode,
            after: Duration::from_millis(row.count_or_null(5)?.unwrap_or(0)),
            token: key_of(row, 6)?,
            own: own_of(row, 15)?,
            broadcast: None,
        },
        sent_at,
        expires_at,
        trace: trace_of(row, 9)?,
        fallback: Fallback::by(mode, when, in_topic, expires_at <= sent_at),
        topic: topic_of_target(row, 10)?,
        category: category_of(row, 12)?,
        names_recipients: matches!(
            TARGET_KINDS.get(usize::from(row.code(10)?)),
            Some(&("users" | "devices"))
        ),
    })
}

/// The topic of `target, target_text`.
fn topic_of_target(row: &(impl Record + ?Sized), first: usize) -> Result<Option<Topic>, Error> {
    let is_topic = TARGET_KINDS.get(usize::from(row.code(first)?)) == Some(&"topic");
    Ok(row.text_or_null(first + 1)?.filter(|_| is_topic).map(Topic::from_trusted))
}

fn own_of(row: &(impl Record + ?Sized), first: usize) -> Result<OwnFields, Error> {
    let mut own = OwnFields::default();
    for (index, service) in PushService::ALL.into_iter().enumerate() {
        if let Some(fields) = row.json_or_null(first + index)? {
            own.set(service, fields);
        }
    }
    Ok(own)
}
