//! A provider's request: recipients, delivery policy and content.

use std::time::Duration;

use crate::{
    Broadcast, Category, Condition, DeviceId, ItemRequest, JsonText, PushService, Timestamp, TokenKey, Topic,
    TraceContext, Ttl, UserId,
};

/// The recipients. The API guarantees non-empty lists without duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Users(Vec<UserId>),
    Devices(Vec<DeviceId>),
    Topic(Topic),
    Condition(Condition),
    Everyone,
}

impl Target {
    /// The number of named recipients; `None` for topics and conditions, whose subscribers are matched by the
    /// gateways.
    pub fn named_count(&self) -> Option<u64> {
        match self {
            Target::Users(users) => Some(users.len() as u64),
            Target::Devices(devices) => Some(devices.len() as u64),
            Target::Topic(_) | Target::Condition(_) | Target::Everyone => None,
        }
    }
}

crate::names! {
    /// The presence policy: which recipients receive it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum When {
        /// Devices in use.
        Active = 1 => "active",
        /// Connected devices.
        Connected = 2 => "connected",
        /// Every device: stored in its inbox, or in the topic's log, until `ttl`.
        Stored = 3 => "stored",
    }
}

crate::names! {
    /// RFC 8030 §5.3.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub enum Urgency {
        VeryLow = 1 => "very-low",
        Low = 2 => "low",
        #[default]
        Normal = 3 => "normal",
        High = 4 => "high",
    }
}

crate::names! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum PushMode {
        #[default]
        Never => "never",
        /// Only if the device does not acknowledge it within `after`.
        Fallback => "fallback",
        Always => "always",
    }
}

/// Instructions for push services, with service-specific fields passed through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Push {
    pub mode: PushMode,
    pub after: Duration,
    /// The push goes to this token of each device; `None`: to its main token.
    pub token: Option<TokenKey>,
    pub own: OwnFields,
    /// For topics only: what the channels that are bound to the topic get. Independent of the mode.
    pub broadcast: Option<Box<Broadcast>>,
}

/// A provider's fields for single push services, passed through to the service of that name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnFields(
    /// In the order of the services, each at most once.
    Vec<(PushService, JsonText)>,
);

impl OwnFields {
    pub fn get(&self, service: PushService) -> Option<&JsonText> {
        self.0.iter().find(|(of, _)| *of == service).map(|(_, fields)| fields)
    }

    /// Replaces those of the service.
    pub fn set(&mut self, service: PushService, fields: JsonText) {
        match self.0.binary_search_by_key(&service, |(of, _)| *of) {
            Ok(at) => self.0[at].1 = fields,
            Err(at) => self.0.insert(at, (service, fields)),
        }
    }

    /// In the order of the services.
    pub fn iter(&self) -> impl Iterator<Item = (PushService, &JsonText)> {
        self.0.iter().map(|(service, fields)| (*service, fields))
    }
}

impl FromIterator<(PushService, JsonText)> for OwnFields {
    fn from_iter<I: IntoIterator<Item = (PushService, JsonText)>>(fields: I) -> Self {
        let mut all = Self::default();
        fields.into_iter().for_each(|(service, fields)| all.set(service, fields));
        all
    }
}

/// A validated request to notify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub target: Target,
    pub when: When,
    pub ttl: Ttl,
    pub urgency: Urgency,
    /// Idle connected devices receive it when they are in use again. No effect for messages that are not
    /// stored, and for topics.
    pub waits_for_use: bool,
    pub collapse_key: Option<Box<str>>,
    /// For topics only: replace the topic's retained message.
    pub retain: bool,
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    pub push: Push,
    /// The named users, or the users of the named devices, get an item each. Only for such targets.
    pub item: Option<ItemRequest>,
    /// What preferences decide by.
    pub category: Option<Category>,
    /// The trace that the request belongs to, stored for later work on the notification.
    pub trace: Option<TraceContext>,
}

impl Request {
    pub fn expires_at(&self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.ttl.duration())
    }
}
