//! The connections of this node, as the decisions see them.
//!
//! `delivery` owns this trait and the gateway implements it, so neither the API nor the decisions
//! know what a socket is. Calls hand work to the shards and return at once.

use std::sync::Arc;

use noroshi_cluster::SessionKey;
use noroshi_types::{
    AppId, CloseReason, DeviceId, DeviceNum, Message, NotificationId, Position, Presence, Target, Topic,
    UserId,
};

/// Into how many pages the sessions of a node are divided.
pub const SESSION_PAGES: usize = 64;

/// The low bits of a generation, which tell log-ins of one millisecond apart; above them stands the time.
pub const GENERATION_BITS: u32 = 20;

/// A user's or device's sessions on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub device: DeviceId,
    pub presence: Presence,
}

/// A session as it is compared with the directory and the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSession {
    pub app: AppId,
    pub device: DeviceId,
    pub num: DeviceNum,
    pub device_key: SessionKey,
    pub user_key: Option<SessionKey>,
    pub generation: u64,
    /// Of the device when it logged in; none: not known.
    pub revision: Option<u64>,
}

pub trait Edge: Send + Sync {
    /// Writes a message to every session meant by `target`, through the presence gate of
    /// `message.when`. Calls for one recipient or topic arrive in the order in which their messages
    /// were committed, and are written in that order. What became of it is reported through
    /// [`crate::Delivery::outcomes`]: written, inactive, slow and, where nothing is kept for who is
    /// away, offline. Takes no lock for long, never blocks: it is called on the store's writer thread.
    fn deliver(&self, message: Arc<Message>, target: &Target);

    /// As [`Edge::deliver`], of one of several nodes: which named targets have no session here is told by
    /// their index and recorded by the caller.
    fn deliver_part(&self, message: Arc<Message>, target: &Target, missing: &mut dyn FnMut(usize));

    /// A kept message of a topic that sessions here may not have been offered: for those only, if this is
    /// still known.
    fn offer(&self, message: Arc<Message>, topic: &Topic);

    /// Everything kept of the topic up to `position` was offered by now: live messages behind it follow it.
    fn offered(&self, app: AppId, topic: &Topic, position: Position);

    /// False while the shards are behind with what is for such a target: a request that is refused now
    /// can be made again, a message that finds a full mailbox cannot.
    fn has_room(&self, target: &Target) -> bool;

    /// The sessions of each user, in the order asked.
    fn sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>>;

    fn session(&self, app: AppId, device: &DeviceId) -> Option<Session>;

    /// Of the device's session: 0 if there is none.
    fn generation(&self, app: AppId, device: &DeviceId) -> u64;

    /// False if the device has no session here.
    fn set_presence(&self, app: AppId, device: &DeviceId, presence: Presence) -> bool;

    /// Durable subscriptions were made: an open session hears the topics from now on. One hand-over to
    /// its shard, however many they are.
    fn subscribe(&self, app: AppId, device: &DeviceId, topics: &[Topic]);

    fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic);

    /// Ends the device's session, if there is one.
    fn close(&self, app: AppId, device: &DeviceId, reason: CloseReason);

    /// The device logged in on another node: ends its session of a generation below `below`.
    fn replaced(&self, app: AppId, device: &DeviceId, below: u64);

    /// Ends every session of an app.
    fn close_app(&self, app: AppId, reason: CloseReason);

    /// The topic rules of apps changed: sessions that lost a permission end their subscriptions, some at a time. By
    /// default there are no sessions.
    fn rules_changed(&self, apps: &[AppId]) {
        let _ = apps;
    }

    /// Connections that hear the topic now.
    fn topic_sessions(&self, app: AppId, topic: &Topic) -> u64;

    /// The sessions of one of [`SESSION_PAGES`] pages; a session that stays is always on the same one.
    fn sessions_page(&self, page: usize) -> Vec<LocalSession>;

    /// A message that was accepted may have reached nobody: every session reads from the store what it missed.
    fn reread_all(&self);

    /// The inboxes of these sessions may have something behind `since` that was not offered to them: they
    /// are read on from there, and what was offered is left out as far as this is still known.
    fn reread(&self, sessions: &[LocalSession], since: NotificationId);
}
