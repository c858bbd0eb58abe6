//! The connections of this node, as the decisions see them.
//!
//! `delivery` owns this trait and the gateway implements it, so neither the API nor the decisions
//! know what a socket is. Calls hand work to the shards and return at once.

use std::sync::Arc;

use noroshi_types::{AppId, CloseReason, DeviceId, Message, Presence, Target, Topic, UserId};

/// A user's or device's sessions on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub device: DeviceId,
    pub presence: Presence,
}

pub trait Edge: Send + Sync {
    /// Writes a message to every session meant by `target`, through the presence gate of
    /// `message.when`. Calls for one recipient or topic arrive in the order in which their messages
    /// were committed, and are written in that order. What became of it is reported through
    /// [`crate::Delivery::outcomes`]: written, inactive, slow and, where nothing is kept for who is
    /// away, offline. Takes no lock for long, never blocks: it is called on the store's writer thread.
    fn deliver(&self, message: Arc<Message>, target: &Target);

    /// False while the shards are behind with what is for such a target: a request that is refused now
    /// can be made again, a message that finds a full mailbox cannot.
    fn has_room(&self, target: &Target) -> bool;

    /// The sessions of each user, in the order asked.
    fn sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>>;

    fn session(&self, app: AppId, device: &DeviceId) -> Option<Session>;

    /// False if the device has no session here.
    fn set_presence(&self, app: AppId, device: &DeviceId, presence: Presence) -> bool;

    /// Durable subscriptions were made: an open session hears the topics from now on. One hand-over to
    /// its shard, however many they are.
    fn subscribe(&self, app: AppId, device: &DeviceId, topics: &[Topic]);

    fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic);

    /// Ends the device's session, if there is one.
    fn close(&self, app: AppId, device: &DeviceId, reason: CloseReason);

    /// Ends every session of an app.
    fn close_app(&self, app: AppId, reason: CloseReason);

    /// Connections that hear the topic now.
    fn topic_sessions(&self, app: AppId, topic: &Topic) -> u64;
}
