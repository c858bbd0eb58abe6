//! A notification in transit to devices: the input for encoding frames.

use crate::{AppId, Category, JsonText, NotificationId, Position, Timestamp, Topic, Urgency, When};

/// A message's position in its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPosition {
    pub topic: Topic,
    pub position: Position,
}

/// One notification, equal for all recipients, which share it (`Arc<Message>`). It is encoded once per
/// protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: NotificationId,
    pub app: AppId,
    pub when: When,
    pub urgency: Urgency,
    /// Set for messages to a topic and to everyone.
    pub topic: Option<TopicPosition>,
    /// The object with `title`, `body`, …, as sent by the provider.
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    /// The time of acceptance.
    pub sent_at: Timestamp,
    /// Not delivered after this time.
    pub expires_at: Timestamp,
    /// A push follows if the device does not acknowledge.
    pub push_waits: bool,
    /// It stays in the inbox of an idle connected device until the device is in use.
    pub waits_for_use: bool,
    pub category: Option<Category>,
}

impl Message {
    /// Whether the device must acknowledge it: stored messages, and those with a pending push.
    pub fn wants_ack(&self) -> bool {
        self.when == When::Stored || self.push_waits
    }
}
