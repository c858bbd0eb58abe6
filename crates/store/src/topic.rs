//! Topics: subscribers, positions and retained messages.

use std::sync::Arc;

use noroshi_types::{AppId, Message, Position, Timestamp, Topic};

use crate::{Error, Place};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicState {
    pub topic: Topic,
    /// Devices that subscribe durably.
    pub subscribers: u64,
    /// `None` if nothing was ever published.
    pub position: Option<Position>,
    /// Rows in the log.
    pub log_rows: u64,
    pub retained: bool,
}

/// A part of the logs of an app's topics.
#[derive(Debug, Clone, Default)]
pub struct LogPage {
    /// Oldest first, without expired ones.
    pub messages: Vec<Arc<Message>>,
    /// Where the next page starts; `None`: this is the last one.
    pub next: Option<Place>,
}

/// Asks for a page of an app's retained messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedScan {
    pub app: AppId,
    /// The smallest name.
    pub from: String,
    /// The names are smaller than this; `None`: no bound.
    pub until: Option<String>,
    pub topics_max: usize,
    pub messages_max: usize,
    pub now: Timestamp,
}

/// Whether the retained message of this topic is wanted. Called for many names, so it must not take a lock.
pub type RetainedFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Debug, Clone, Default)]
pub struct RetainedPage {
    /// Without expired ones.
    pub messages: Vec<Arc<Message>>,
    /// How many topics were examined.
    pub topics: usize,
    /// `from` of the next page; `None`: this is the last one.
    pub next: Option<String>,
}

impl RetainedPage {
    /// `from` of the page after this name: no topic has a control character in its name.
    pub(crate) fn after(name: &str) -> String {
        format!("{name}\u{1}")
    }
}

/// Topics with new messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicsSince {
    /// The topics of the oldest messages, at most as many messages as were asked for; unordered, each topic once.
    pub topics: Vec<(AppId, Topic)>,
    /// Where the next page starts, which may repeat topics; `None`: this is the last one.
    pub next: Option<Place>,
}

#[async_trait::async_trait]
pub trait Topics: Send + Sync {
    /// An unused topic returns zeros.
    async fn topic(&self, app: AppId, topic: &Topic) -> Result<TopicState, Error>;
    /// Topics by name, without `$everyone`.
    async fn topics(&self, app: AppId, after: Option<&Topic>, limit: usize)
    -> Result<Vec<TopicState>, Error>;
    async fn retained(
        &self,
        app: AppId,
        topic: &Topic,
        now: Timestamp,
    ) -> Result<Option<Arc<Message>>, Error>;
    /// Retained messages of the topics in a range of names for which `wanted` returns true, by name, without
    /// `$everyone`. Examines at most `topics_max` topics, with or without a retained message, so a page may be empty
    /// without being the last.
    async fn retained_page(&self, scan: RetainedScan, wanted: RetainedFilter) -> Result<RetainedPage, Error>;
    /// Messages in the logs of an app's topics after a place, without `$everyone`. Examines at most `rows_max` rows
    /// of all apps, so a page may be empty without being the last.
    async fn log_page(
        &self,
        app: AppId,
        since: Place,
        rows_max: usize,
        now: Timestamp,
    ) -> Result<LogPage, Error>;
    /// True if there was a retained message.
    async fn delete_retained(&self, app: AppId, topic: &Topic) -> Result<bool, Error>;
    /// A page of the topics of all apps, including `$everyone`, whose logs have messages after `since`.
    async fn topics_since(&self, since: Place, rows_max: usize) -> Result<TopicsSince, Error>;
}
