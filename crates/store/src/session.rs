//! What a connection needs from the store: the log-in, its backlog, and acknowledgements.

use std::sync::Arc;

use noroshi_types::{
    AppId, DeviceId, DeviceNum, Message, NotificationId, Position, Timestamp, Topic, UserId,
};

use crate::{Device, Error, Followed, Issued, OwnPreferences, Place, Revocation};

/// The prefix of a kept protocol state ([`Sessions::keep_session`]) whose session may not continue, because the
/// device got another user or its tokens were revoked. The protocol ends the session instead of resuming it. The
/// state of a protocol never begins with this byte.
pub const ENDED_STATE_PREFIX: u8 = 0xFF;

/// A device that logs in. Its token was verified before; the store checks that the device exists and the token is not
/// revoked.
#[derive(Debug, Clone)]
pub struct Login {
    pub app: AppId,
    pub device: DeviceId,
    /// The user of an app JWT: the device is created or moved to this user if necessary.
    pub user: Option<UserId>,
    /// An app JWT creates its device on first use; a device token never does.
    pub create: bool,
    /// The version of a device token; refused if the device's is higher.
    pub token_version: Option<u32>,
    /// When the app JWT was issued; refused if it was revoked since.
    pub issued: Issued,
    /// Durable subscriptions that the token names.
    pub topics: Vec<Topic>,
    /// Subscriptions of this connection only.
    pub session_topics: Vec<Topic>,
    /// The client has seen everything up to here (SSE `Last-Event-ID`): the backlog starts after it, also for session
    /// topics.
    pub resume: Option<NotificationId>,
    pub now: Timestamp,
}

/// Why a log-in is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginRefused {
    /// There is no such device, or its tokens or its user's were revoked.
    Revoked,
    /// More topics than a device may have.
    TooManyTopics,
}

#[derive(Debug, Clone)]
pub struct LoggedIn {
    pub num: DeviceNum,
    pub user: Option<UserId>,
    /// Device tokens of a lower version are revoked.
    pub token_version: u32,
    /// App JWTs that were issued until then are revoked.
    pub revoked: Revocation,
    /// Durable subscriptions with `$everyone`, and the session topics.
    pub topics: Vec<Topic>,
    pub page: BacklogPage,
    /// Increases with every change of the user, the token version or the durable subscriptions.
    pub revision: u64,
    /// The read saw every acceptance up to here, and none after it.
    pub as_of: Place,
    /// The state that [`Sessions::keep_session`] stored.
    pub kept: Option<Vec<u8>>,
    pub followed: Followed,
}

/// The result of [`Sessions::read_log_ins`].
#[derive(Debug)]
pub enum FirstRead {
    /// In order.
    Answered(Vec<Result<LoggedIn, LoginRefused>>),
    /// Nothing was decided: the caller uses [`Sessions::log_in`]. A device must be created or changed first, or the
    /// engine needs several round trips.
    Unread(Vec<Login>),
    Failed(Error),
}

/// Asks whether an earlier read of a device is still valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recheck {
    pub device: DeviceNum,
    /// From the earlier read; `None`: only the inbox is checked.
    pub revision: Option<u64>,
    pub since: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rechecked {
    Same,
    /// Its inbox has new rows after the place.
    Newer,
    /// Its user, token version or durable subscriptions changed, or it was deleted.
    Changed,
}

/// Asks for the next page of a device's unacknowledged messages: its inbox and the `stored` messages of its durable
/// subscriptions.
#[derive(Debug, Clone)]
pub struct Backlog {
    pub app: AppId,
    pub device: DeviceNum,
    /// Only messages after this one.
    pub after: Option<NotificationId>,
    /// Further topics of this session, read after `session_since`.
    pub session_topics: Vec<Topic>,
    pub session_since: Option<NotificationId>,
    pub now: Timestamp,
}

/// Asks which of the messages that a session sent to its device are still available.
#[derive(Debug, Clone)]
pub struct Outstanding {
    pub app: AppId,
    pub device: DeviceNum,
    pub ids: Vec<NotificationId>,
    pub now: Timestamp,
}

/// Asks for the `stored` messages of one topic since a position.
#[derive(Debug, Clone)]
pub struct Recover {
    pub app: AppId,
    pub topic: Topic,
    /// `None`: start at the present; only the retained message and the head are returned. A position of another
    /// epoch: everything in the log, not complete. Epoch 0 and offset 0, the head of an unused topic: everything.
    pub since: Option<Position>,
    /// Return the retained message too.
    pub retained: bool,
    pub now: Timestamp,
}

/// A page of messages, oldest first, from one consistent read.
#[derive(Debug, Clone, Default)]
pub struct BacklogPage {
    /// Retained messages of the topics (first page only) that are not in `messages`.
    pub retained: Vec<Arc<Message>>,
    /// At most `types::limits::BACKLOG_PAGE`, by id, without expired ones.
    pub messages: Vec<Arc<Message>>,
    /// For every topic read: the end of the log at the time of the read.
    pub heads: Vec<Head>,
    /// There are more messages after the last one.
    pub more: bool,
}

/// A topic message whose offset is at most the head's was published before the page was read: the page has it if it
/// concerns the device. A message with a greater offset is delivered live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub topic: Topic,
    /// The last offset given out, whether stored or not. An unused topic has epoch 0 (which no topic in use has) and
    /// offset 0.
    pub position: Position,
    /// False if `stored` messages after the position have left the log (trimmed, expired, cancelled), or the epoch
    /// differs: the client cannot know everything it missed.
    pub complete: bool,
}

/// Asks for part of an inbox, in the order of acceptance.
#[derive(Debug, Clone)]
pub struct InboxRange {
    pub app: AppId,
    pub device: DeviceId,
    /// Only messages accepted between these times, both included.
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub place: InboxPlace,
    pub limit: usize,
    pub now: Timestamp,
}

/// The part of an inbox, or of the selected time span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxPlace {
    First,
    Last,
    /// Right after this message, or right before it; `None` is returned if it is not in the inbox.
    After(NotificationId),
    Before(NotificationId),
}

/// Part of an inbox, from one consistent read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InboxPage {
    /// Oldest first, without expired ones.
    pub messages: Vec<Arc<Message>>,
    /// How many selected messages come before the first of them, and how many there are in all.
    pub index: u64,
    pub total: u64,
}

/// A device acknowledges notifications.
#[derive(Debug, Clone)]
pub struct Ack {
    pub device: DeviceNum,
    pub ids: Vec<NotificationId>,
}

/// A notification that devices acknowledged while it was outstanding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    pub id: NotificationId,
    /// Devices.
    pub count: u64,
}

/// What an app shows first of a device.
#[derive(Debug, Clone)]
pub struct FirstCall {
    pub device: Device,
    /// Messages in the inbox that have not expired.
    pub unread: u64,
    /// The newest messages, newest first.
    pub newest: Vec<Arc<Message>>,
    /// The unread items of the device's user.
    pub unread_items: u64,
    pub preferences: OwnPreferences,
    /// When the first unread message expires.
    pub expires_at: Option<Timestamp>,
}

#[async_trait::async_trait]
pub trait Sessions: Send + Sync {
    /// Logs in many devices with one read, and one write if some of them must be created or changed. Answers in
    /// order.
    async fn log_in(&self, logins: Vec<Login>) -> Result<Vec<Result<LoggedIn, LoginRefused>>, Error>;

    /// [`Sessions::log_in`] with a single read, for devices that need no change: nearly all that reconnect. Calls
    /// `done` exactly once. SQLite calls it on the thread that read, so that a storm of log-ins passes through no
    /// other thread; `done` must not block. PostgreSQL reads nothing and calls it at once.
    fn read_log_ins(&self, logins: Vec<Login>, done: Box<dyn FnOnce(FirstRead) + Send>);

    /// Checks earlier reads of many devices with one read. Answers in order.
    async fn recheck(&self, checks: Vec<Recheck>) -> Result<Vec<Rechecked>, Error>;

    /// Stores the protocol's state of a device's session, which only the protocol interprets, or removes it. The next
    /// log-in returns it. Does nothing for a deleted device. A state with the prefix [`ENDED_STATE_PREFIX`] stays until it is
    /// removed, so that a late write of the ended session does not overwrite it.
    async fn keep_session(&self, device: DeviceNum, kept: Option<Vec<u8>>) -> Result<(), Error>;

    async fn backlog(&self, backlog: Backlog) -> Result<BacklogPage, Error>;

    /// `more` is set if the page is full: ask again from the last message's position.
    async fn recover(&self, recover: Recover) -> Result<BacklogPage, Error>;

    /// Returns messages by their ids, in the order of the ids: those in the device's inbox, in the log of a topic of
    /// the app, or retained by one. Leaves out messages that expired, were cancelled, replaced or evicted. Does not
    /// check whether the device subscribes to a topic, or its position there.
    async fn outstanding(&self, asked: Outstanding) -> Result<Vec<Arc<Message>>, Error>;

    /// Removes inbox rows; for topic messages moves the device's position forward (never back). Ignores ids of other
    /// devices. Records [`noroshi_types::Outcome::Acked`] for what was outstanding, and returns it.
    async fn ack(&self, acks: Vec<Ack>, now: Timestamp) -> Result<Vec<Acked>, Error>;

    /// Records that the device's user opened notifications, each once. Ignores notifications that are unknown, belong
    /// to another app, or were opened on this device before. Counts as [`noroshi_types::Outcome::Opened`], also for
    /// the notification's campaign. Returns those that were opened for the first time, in the order of `ids`.
    ///
    /// This acknowledges nothing, and does not check that the device was a recipient, which is not known for topics.
    async fn open(
        &self,
        device: DeviceNum,
        ids: Vec<NotificationId>,
        now: Timestamp,
    ) -> Result<Vec<NotificationId>, Error>;

    /// How many rows an inbox keeps ([`crate::sqlite::Options::inbox_rows`]).
    fn inbox_rows(&self) -> u32;

    /// The oldest `limit` messages of the inbox and how many there are in all.
    async fn inbox(
        &self,
        app: AppId,
        device: &DeviceId,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<Arc<Message>>, u64), Error>;

    /// Part of the inbox of a device; `None` if the message to start at is not in it.
    async fn inbox_range(&self, asked: InboxRange) -> Result<Option<InboxPage>, Error>;

    /// The device and its inbox from one consistent read, in one round trip; `None` if there is no such device.
    async fn first_call(
        &self,
        app: AppId,
        device: &DeviceId,
        newest: usize,
        now: Timestamp,
    ) -> Result<Option<FirstCall>, Error>;
}
