//! What a client reports to the application.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::delivery::Delivery;
use crate::error::{Code, Error};
use crate::state::State;
use crate::types::ItemCounts;

/// An event of a client, from its [`Events`](crate::Events).
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message arrived. The next one follows when this one has been handled.
    Message(Delivery),
    /// The state of the client changed.
    State(State),
    /// The recovery of a topic ended.
    Recovered(Recovered),
    /// A subscription was refused, or ended because topic rules changed. It is not tried again.
    Denied(Denied),
    /// Items of the user's notification centre changed.
    Items(ItemsEvent),
    /// Other numbers of unread items are known.
    Unread(ItemCounts),
    /// An error that no call returns. The client continues.
    Error(Error),
}

/// The recovery of a topic ended, after all messages that arrived before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// The topic.
    pub topic: String,
    /// Whether no message is missing. None: the service did not say it (server-sent events). Unless it is true, read the current
    /// state from your own backend.
    pub complete: Option<bool>,
}

/// The end of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// The topic.
    pub topic: String,
    /// [`Code::TopicForbidden`] or [`Code::TopicRevoked`].
    pub code: Code,
    /// Why: docs/authorization.md of the service.
    pub reason: String,
}

/// Items of the user's notification centre changed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[derive(Default)]
pub struct ItemsEvent {
    /// `added`, `read`, `unread`, `archived`, `unarchived` or `deleted`.
    pub event: String,
    /// At most 100.
    pub ids: Vec<String>,
    /// Other items changed too: list them again.
    pub more: bool,
    /// All unread items afterwards.
    pub unread: u64,
    /// Unread items by category.
    pub categories: BTreeMap<String, u64>,
}
