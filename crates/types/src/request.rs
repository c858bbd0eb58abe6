//! What a provider asks for: to whom, when, and how.

use std::time::Duration;

use crate::{Condition, DeviceId, JsonText, Timestamp, Topic, TraceContext, Ttl, UserId};

/// Who is meant. Lists are non-empty and free of duplicates: the API sees to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Users(Vec<UserId>),
    Devices(Vec<DeviceId>),
    Topic(Topic),
    Condition(Condition),
    Everyone,
}

impl Target {
    /// How many were named; none for topics, whose subscribers are found at the edge.
    pub fn named_count(&self) -> Option<u64> {
        match self {
            Target::Users(users) => Some(users.len() as u64),
            Target::Devices(devices) => Some(devices.len() as u64),
            Target::Topic(_) | Target::Condition(_) | Target::Everyone => None,
        }
    }
}

/// The presence gate: who may hear it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum When {
    /// Devices in use now.
    Active = 1,
    /// Connected devices.
    Connected = 2,
    /// Every device: kept in its inbox, or in the topic's log, until `ttl`.
    Stored = 3,
}

impl When {
    pub fn as_str(self) -> &'static str {
        match self {
            When::Active => "active",
            When::Connected => "connected",
            When::Stored => "stored",
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        [When::Active, When::Connected, When::Stored].into_iter().find(|when| *when as u8 == code)
    }
}

/// RFC 8030 §5.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Urgency {
    VeryLow = 1,
    Low = 2,
    #[default]
    Normal = 3,
    High = 4,
}

impl Urgency {
    pub fn as_str(self) -> &'static str {
        match self {
            Urgency::VeryLow => "very-low",
            Urgency::Low => "low",
            Urgency::Normal => "normal",
            Urgency::High => "high",
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        [Urgency::VeryLow, Urgency::Low, Urgency::Normal, Urgency::High]
            .into_iter()
            .find(|urgency| *urgency as u8 == code)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PushMode {
    #[default]
    Never,
    /// Only where the device did not confirm within `after`.
    Fallback,
    Always,
}

/// What push services shall do, with each service's own fields passed through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Push {
    pub mode: PushMode,
    pub after: Duration,
    pub apns: Option<JsonText>,
    pub fcm: Option<JsonText>,
    pub webpush: Option<JsonText>,
}

/// A checked request to notify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub target: Target,
    pub when: When,
    pub ttl: Ttl,
    pub urgency: Urgency,
    /// Connected devices hear it while they are in use; one that is idle, when it is in use again. Without
    /// effect where nothing is kept for the device, and for topics.
    pub waits_for_use: bool,
    pub collapse_key: Option<Box<str>>,
    /// Topics only: keep as the topic's retained message.
    pub retain: bool,
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    pub push: Push,
    /// Of whose trace it is a part: kept with it, for what is done later.
    pub trace: Option<TraceContext>,
}

impl Request {
    pub fn expires_at(&self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.ttl.duration())
    }
}
