//! Topics: subscribers, positions and retained messages.

use std::sync::Arc;

use noroshi_types::{AppId, Message, Position, Timestamp, Topic};

use crate::{Error, Place};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicState {
    pub topic: Topic,
    /// Devices that subscribe durably.
    pub subscribers: u64,
    /// None if nothing was ever published.
    pub position: Option<Position>,
    /// Rows in the log.
    pub log_rows: u64,
    pub retained: bool,
}

/// A part of the logs of an app's topics.
#[derive(Debug, Clone, Default)]
pub struct LogPage {
    /// Oldest first, none expired.
    pub messages: Vec<Arc<Message>>,
    /// Where the next page begins; none: this is the last.
    pub next: Option<Place>,
}

/// Asks for a page of what an app's topics retain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetainedScan {
    pub app: AppId,
    /// The least name.
    pub from: String,
    /// Names are below it; none: no bound.
    pub until: Option<String>,
    pub topics_max: usize,
    pub messages_max: usize,
    pub now: Timestamp,
}

/// Whether what the topic of this name retains is wanted. Called for many names: it takes no lock.
pub type WantedTopic = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Debug, Clone, Default)]
pub struct RetainedPage {
    /// None expired.
    pub messages: Vec<Arc<Message>>,
    /// How many topics were looked at.
    pub topics: usize,
    /// `from` of the next page; none: this is the last.
    pub next: Option<String>,
}

impl RetainedPage {
    /// `from` of the page behind this name: no topic has a control character in its name.
    pub(crate) fn behind(name: &str) -> String {
        format!("{name}\u{1}")
    }
}

/// Topics that got something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicsSince {
    /// Those of the oldest messages, at most as many messages as were asked for; in no order, each once.
    pub topics: Vec<(AppId, Topic)>,
    /// Where the next page begins, which may name some of them again; none: this is the last.
    pub next: Option<Place>,
}

#[async_trait::async_trait]
pub trait Topics: Send + Sync {
    /// A topic that nobody ever used is answered with zeros.
    async fn topic(&self, app: AppId, topic: &Topic) -> Result<TopicState, Error>;
    /// Topics in order of their names, `$everyone` left out.
    async fn topics(&self, app: AppId, after: Option<&Topic>, limit: usize)
    -> Result<Vec<TopicState>, Error>;
    async fn retained(
        &self,
        app: AppId,
        topic: &Topic,
        now: Timestamp,
    ) -> Result<Option<Arc<Message>>, Error>;
    /// Retained messages of the topics in a range of names for which `wanted` says true, in order of the names.
    /// `$everyone` is left out. Looks at `topics_max` topics, whether they retain something or not, so a page may be
    /// empty and not the last.
    async fn retained_page(&self, scan: RetainedScan, wanted: WantedTopic) -> Result<RetainedPage, Error>;
    /// What the logs of an app's topics hold behind a place, `$everyone` left out. Looks at `rows_max` rows
    /// of all apps, so a page may be empty and not the last.
    async fn log_page(
        &self,
        app: AppId,
        since: Place,
        rows_max: usize,
        now: Timestamp,
    ) -> Result<LogPage, Error>;
    /// True if there was one.
    async fn delete_retained(&self, app: AppId, topic: &Topic) -> Result<bool, Error>;
    /// A page of the topics of all apps, `$everyone` among them, whose logs have messages behind `since`.
    async fn topics_since(&self, since: Place, rows_max: usize) -> Result<TopicsSince, Error>;
}
