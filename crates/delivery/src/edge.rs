//! The interface to the connections of this node.
//!
//! `delivery` owns this trait and the gateway implements it, so neither the API nor the decisions know sockets. Calls
//! hand work to the shards and return at once.

use std::sync::Arc;
use std::time::Duration;

use noroshi_cluster::SessionKey;
use noroshi_store::{Followed, Preferring};
use noroshi_types::{
    AppId, CloseReason, DeviceId, DeviceNum, ItemsNotice, Label, Message, NotificationId, Position, Presence,
    Target, Topic, UserId,
};

/// The number of pages into which the sessions of a node are divided.
pub const SESSION_PAGES: usize = 64;

/// The low bits of a generation, which distinguish logins of one millisecond; the bits above them are the time.
pub const GENERATION_BITS: u32 = 20;

/// How a message finds its connections. Shards queue the two kinds apart, so that a busy topic does not delay messages
/// to named recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fan {
    /// By users or devices.
    Named,
    /// By topics, conditions, or to everyone.
    Topic,
}

impl Fan {
    pub fn of(target: &Target) -> Self {
        match target {
            Target::Users(_) | Target::Devices(_) => Self::Named,
            Target::Topic(_) | Target::Everyone | Target::Condition(_) => Self::Topic,
        }
    }
}

/// A session, as callers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub device: DeviceId,
    pub presence: Presence,
}

/// A session of this node, as it is compared with the directory and the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSession {
    pub app: AppId,
    pub device: DeviceId,
    pub num: DeviceNum,
    pub device_key: SessionKey,
    pub user_key: Option<SessionKey>,
    pub generation: u64,
    /// The revision of the device at its login; `None`: unknown.
    pub revision: Option<u64>,
}

pub trait Edge: Send + Sync {
    /// Writes a message to every session of `target`, subject to the presence rule of `message.when`. Calls for one
    /// recipient or topic arrive in commit order, and are written in that order. The edge reports outcomes through
    /// `Outcomes::record`: written, inactive, slow and, for messages that are not stored, offline. Holds no
    /// lock for long and never blocks: it runs on the store's writer thread.
    fn deliver(&self, message: Arc<Message>, target: &Target);

    /// As [`Edge::deliver`], for one of several nodes: calls `missing` with the index of each named target without a
    /// session here, and the caller records it.
    fn deliver_part(&self, message: Arc<Message>, target: &Target, missing: &mut dyn FnMut(usize));

    /// Offers a stored message of a topic to the sessions that were not offered it, as far as the shards still know.
    fn offer(&self, message: Arc<Message>, topic: &Topic);

    /// Every stored message of the topic up to `position` was offered: live messages behind it may follow.
    fn offered(&self, app: AppId, topic: &Topic, position: Position);

    /// Whether a message would reach connections within `delay_max`, behind what the shards have queued and `more`
    /// deliveries. A message that finds a full mailbox is lost to its shard, which reads stored ones from the store.
    fn has_room(&self, fan: Fan, more: usize, delay_max: Duration) -> bool;

    /// How long `more` deliveries would wait behind what the shards have queued. `None`: a shard takes nothing.
    fn delay(&self, fan: Fan, more: usize) -> Option<Duration>;

    /// The sessions of each user, in the order of `users`.
    fn sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>>;

    fn session(&self, app: AppId, device: &DeviceId) -> Option<Session>;

    /// The generation of the device's session; 0 without one.
    fn generation(&self, app: AppId, device: &DeviceId) -> u64;

    /// Returns false if the device has no session here.
    fn set_presence(&self, app: AppId, device: &DeviceId, presence: Presence) -> bool;

    /// Durable subscriptions were created: an open session receives the topics from now on. One call of its shard for
    /// all topics.
    fn subscribe(&self, app: AppId, device: &DeviceId, topics: &[Topic]);

    fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic);

    /// Ends the device's session, if there is one.
    fn close(&self, app: AppId, device: &DeviceId, reason: CloseReason);

    /// The device logged in on another node: ends its session if the generation is below `below`.
    fn replaced(&self, app: AppId, device: &DeviceId, below: u64);

    /// Ends every session of an app.
    fn close_app(&self, app: AppId, reason: CloseReason);

    /// The topic rules of apps changed: sessions that lost a permission end their subscriptions, some at a time. The
    /// default is for an edge without sessions.
    fn rules_changed(&self, apps: &[AppId]) {
        let _ = apps;
    }

    /// Items of the user were added or changed: notifies the user's sessions. May drop it. The default is for an edge
    /// without sessions.
    fn items(&self, app: AppId, user: &UserId, notice: &Arc<ItemsNotice>) {
        let _ = (app, user, notice);
    }

    /// Preferences changed. Returns the devices with sessions here that they concern: the caller reads what these
    /// follow, and then calls [`Edge::follow`]. A login in progress that may have read the old ones reads again. The
    /// default is for an edge without sessions.
    fn preferences_changed(&self, app: AppId, of: &Preferring) -> Vec<DeviceId> {
        let _ = (app, of);
        Vec::new()
    }

    /// The session of the device follows this from now on.
    fn follow(&self, app: AppId, device: &DeviceId, followed: Followed) {
        let _ = (app, device, followed);
    }

    /// The device got as many messages of the category on this day as its preferences allow: some of them elsewhere. May
    /// drop it.
    fn capped(&self, app: AppId, device: &DeviceId, category: &Label, day: u32) {
        let _ = (app, device, category, day);
    }

    /// The number of connections that subscribe to the topic now.
    fn topic_sessions(&self, app: AppId, topic: &Topic) -> u64;

    /// The sessions of one of [`SESSION_PAGES`] pages. A session is always on the same page.
    fn sessions_page(&self, page: usize) -> Vec<LocalSession>;

    /// An accepted message may have reached no session: every session reads its backlog from the store.
    fn reread_all(&self);

    /// The inboxes of these sessions may have messages behind `since` that were not offered: reads on from there, and
    /// skips what was offered, as far as the shards still know.
    fn reread(&self, sessions: &[LocalSession], since: NotificationId);
}
