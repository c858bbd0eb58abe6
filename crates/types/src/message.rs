//! A notification on its way to devices: what a frame is encoded from.

use crate::{AppId, JsonText, NotificationId, Position, Timestamp, Topic, Urgency, When};

/// Where a topic message stands in its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPosition {
    pub topic: Topic,
    pub position: Position,
}

/// One notification, the same for every recipient. It is shared (`Arc<Message>`) by all of them and
/// encoded once per protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: NotificationId,
    pub app: AppId,
    pub when: When,
    pub urgency: Urgency,
    /// Set for messages to a topic and to everyone.
    pub topic: Option<TopicPosition>,
    /// The object of `title`, `body`, … as the provider sent it.
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    /// When it was accepted.
    pub sent_at: Timestamp,
    /// Not delivered from this moment on.
    pub expires_at: Timestamp,
    /// A push service is asked where the device does not confirm.
    pub push_waits: bool,
    /// It stays in the inbox of a connected device until that is in use.
    pub waits_for_use: bool,
}

impl Message {
    /// What is kept until confirmed asks for a confirmation, and what a push waits behind.
    pub fn wants_ack(&self) -> bool {
        self.when == When::Stored || self.push_waits
    }
}
