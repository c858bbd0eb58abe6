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
    /// True if there was one.
    async fn delete_retained(&self, app: AppId, topic: &Topic) -> Result<bool, Error>;
    /// Topics of all apps, `$everyone` among them, whose log has messages behind `since`, in no order. As many
    /// as `limit`: there may be more.
    async fn topics_since(&self, since: Place, limit: usize) -> Result<Vec<(AppId, Topic)>, Error>;
}
