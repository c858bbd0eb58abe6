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
    /// Retained messages of the topics whose names begin with `prefix`, in order of the names, behind
    /// `after`; at most `limit`. `$everyone` is left out.
    async fn retained_page(
        &self,
        app: AppId,
        prefix: &str,
        after: Option<&Topic>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Arc<Message>>, Error>;
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
