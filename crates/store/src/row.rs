//! What rows of notifications and push work hold, on every engine: codes, texts, and what follows from them.

use std::time::Duration;

use noroshi_types::{
    Message, NotificationId, Outcome, Position, Push, PushMode, Request, Target, Timestamp, Topic,
    TopicPosition, TraceContext, When, limits,
};

use crate::{Accept, State};

/// What the store still holds of a notification for its devices. Values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Standing {
    /// It was for those who were there.
    Nothing = 0,
    /// Inbox rows, or a row in a topic's log; maybe confirmed by now.
    Kept = 1,
    /// It left a topic's log before its ttl ended: collapsed or trimmed.
    Replaced = 2,
    /// The ttl ended, and what was left was removed.
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

/// By the stored code.
pub(crate) const TARGETS: [&str; 6] = ["users", "devices", "topic", "condition", "everyone", "campaign"];

pub(crate) fn target_of(target: &Target) -> (u8, Option<&str>) {
    match target {
        Target::Users(_) => (0, None),
        Target::Devices(_) => (1, None),
        Target::Topic(topic) => (2, Some(topic.as_str())),
        Target::Condition(condition) => (3, Some(condition.as_str())),
        Target::Everyone => (4, None),
    }
}

/// Target code of a campaign's notification, at its place in [`TARGETS`].
pub(crate) const TO_CAMPAIGN: u8 = 5;

/// What is delivered of a request.
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
    }
}

/// Until when the row is kept at least.
pub(crate) fn keep_until(accept: &Accept, trace_retention: Duration) -> Timestamp {
    let until = accept.request.expires_at(accept.now).max(accept.now.saturating_add(trace_retention));
    match accept.idempotency {
        // A repeated request is answered from this row.
        Some(_) => until.max(accept.now.saturating_add(limits::IDEMPOTENCY_WINDOW)),
        None => until,
    }
}

/// The mode of [`push_text`]; what says nothing is `never`.
pub(crate) fn push_mode(text: Option<&str>) -> PushMode {
    match text {
        Some("always") => PushMode::Always,
        Some("fallback") => PushMode::Fallback,
        _ => PushMode::Never,
    }
}

/// The push section as JSON, and whether an idle device waits; none where there is nothing to say.
pub(crate) fn push_text(push: &Push, waits_for_use: bool) -> Option<String> {
    let mode = match push.mode {
        PushMode::Never => "never",
        PushMode::Fallback => "fallback",
        PushMode::Always => "always",
    };
    let mut text = format!(r#"{{"mode":"{mode}","after_ms":{}"#, push.after.as_millis());
    for (service, own) in [("apns", &push.apns), ("fcm", &push.fcm), ("webpush", &push.webpush)] {
        if let Some(own) = own {
            text.push_str(&format!(r#","{service}":{}"#, own.as_str()));
        }
    }
    if waits_for_use {
        text.push_str(r#","waits":"use""#);
    }
    text.push('}');
    (waits_for_use || *push != Push::default()).then_some(text)
}

/// None where there is none, or it is of a version to come.
pub(crate) fn trace_of(stored: Option<&[u8]>) -> Option<TraceContext> {
    stored.and_then(TraceContext::from_stored)
}

/// Counts by the outcome's code.
pub(crate) type Sums = [u64; Outcome::ALL.len() + 1];

/// Every way out of an inbox, each recorded with its devices.
pub(crate) const WAYS_OUT: [Outcome; 5] =
    [Outcome::Acked, Outcome::Expired, Outcome::Collapsed, Outcome::Cancelled, Outcome::Evicted];

/// Inbox rows that are left.
pub(crate) fn outstanding(sums: &Sums) -> u64 {
    let left = WAYS_OUT.into_iter().map(|outcome| sums[outcome as usize]).sum();
    sums[Outcome::Kept as usize].saturating_sub(left)
}

/// `sums` by the outcome's code. Who of a topic's subscribers confirmed is not known, so a message
/// in a log is pending until its ttl ends.
pub(crate) fn state_of(standing: Standing, sums: &Sums, in_topic: bool, expired: bool) -> State {
    let outstanding = outstanding(sums) > 0;
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

/// What decides, when a batch is taken, whether a device still needs a push. Values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fallback {
    /// Nothing: always, or decided before.
    Settled = 0,
    /// The notification is in the device's inbox.
    Inbox = 1,
    /// The device's position in the topic is before the message.
    Position = 2,
    /// There is no confirmation.
    Confirmed = 3,
}

impl Fallback {
    pub(crate) fn of(request: &Request) -> Self {
        let in_topic = matches!(request.target, Target::Topic(_) | Target::Everyone);
        match request.push.mode {
            PushMode::Never | PushMode::Always => Self::Settled,
            PushMode::Fallback if request.when != When::Stored => Self::Confirmed,
            PushMode::Fallback if in_topic => Self::Position,
            // With a ttl of 0 there is no inbox row.
            PushMode::Fallback if request.ttl.duration().is_zero() => Self::Confirmed,
            PushMode::Fallback => Self::Inbox,
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Inbox,
            2 => Self::Position,
            3 => Self::Confirmed,
            _ => Self::Settled,
        }
    }
}
