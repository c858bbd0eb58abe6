//! What a connection needs from the store: the log-in, its backlog, and confirmations.

use std::sync::Arc;

use noroshi_types::{
    AppId, DeviceId, DeviceNum, Message, NotificationId, Position, Timestamp, Topic, UserId,
};

use crate::{Device, Error, Issued, Place, Revocation};

/// Stands before what a protocol kept of a session ([`Sessions::keep_session`]) once that session may not go on: the
/// device got another user, or its tokens were revoked. The protocol ends the session instead of resuming it. What a
/// protocol keeps never begins with this byte.
pub const KEPT_ENDED: u8 = 0xFF;

/// One device that logs in. Its token was verified before; what is left to check is whether the
/// device exists and the token is not revoked.
#[derive(Debug, Clone)]
pub struct Login {
    pub app: AppId,
    pub device: DeviceId,
    /// Of an app JWT: the device is made, or moved to this user, where needed.
    pub user: Option<UserId>,
    /// An app JWT makes its device on first use; a device token never does.
    pub create: bool,
    /// The version in a device token, compared with the device's.
    pub token_version: Option<u32>,
    /// When the app JWT was issued; refused if it was revoked since.
    pub issued: Issued,
    /// Durable subscriptions that the token names.
    pub topics: Vec<Topic>,
    /// Subscriptions of this connection only.
    pub session_topics: Vec<Topic>,
    /// Everything up to here was seen (SSE `Last-Event-ID`): the backlog starts behind it, also for
    /// session topics.
    pub resume: Option<NotificationId>,
    pub now: Timestamp,
}

/// Why a log-in is not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginRefused {
    /// No such device, or its tokens or its user's were revoked.
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
    /// App JWTs issued until then are revoked.
    pub revoked: Revocation,
    /// Durable subscriptions with `$everyone`, and the session topics.
    pub topics: Vec<Topic>,
    pub page: BacklogPage,
    /// Grows with every change of user, token version or durable subscriptions.
    pub revision: u64,
    /// What was accepted up to here was there to be read; nothing behind it was.
    pub as_of: Place,
    /// As [`Sessions::keep_session`] left it.
    pub kept: Option<Vec<u8>>,
}

/// Asks whether what was read of a device earlier still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recheck {
    pub device: DeviceNum,
    /// As read earlier; none: only the inbox is looked at.
    pub revision: Option<u64>,
    pub since: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rechecked {
    Same,
    /// Its inbox got something behind the place asked for.
    Newer,
    /// It has another user, token version or other durable subscriptions, or it is gone.
    Changed,
}

/// Asks for the next page of what a device has not confirmed: its inbox and the `stored` messages
/// of its durable subscriptions.
#[derive(Debug, Clone)]
pub struct Backlog {
    pub app: AppId,
    pub device: DeviceNum,
    /// Only what came after this one.
    pub after: Option<NotificationId>,
    /// Topics that this session heard beside those; what came after `session_since` too.
    pub session_topics: Vec<Topic>,
    pub session_since: Option<NotificationId>,
    pub now: Timestamp,
}

/// Asks which of the messages that a session had sent to its device are still to be had.
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
    /// None: from the present on; only the retained message and the head are answered. Of another
    /// epoch: everything in the log, not complete. Epoch 0 and offset 0, the head of a topic that
    /// nobody had used yet: everything since then.
    pub since: Option<Position>,
    /// The retained message is wanted too.
    pub retained: bool,
    pub now: Timestamp,
}

/// A page of messages, oldest first. All of a page is one consistent read.
#[derive(Debug, Clone, Default)]
pub struct BacklogPage {
    /// Retained messages of the topics (first page only), those also in `messages` left out.
    pub retained: Vec<Arc<Message>>,
    /// At most `types::limits::BACKLOG_PAGE`, by id, none expired.
    pub messages: Vec<Arc<Message>>,
    /// For every topic read: how far the log reached when this was read.
    pub heads: Vec<Head>,
    /// There is more behind the last of `messages`.
    pub more: bool,
}

/// A topic message whose offset is at most a head's was given out before the page was read: what of
/// it concerns the device is in the page. One above it came later and is heard live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub topic: Topic,
    /// The last offset given out, whether stored or not. A topic that nobody ever used has epoch 0
    /// (which no topic in use has) and offset 0.
    pub position: Position,
    /// False if `stored` messages behind the place asked for have left the log (trimmed, expired,
    /// cancelled), or the epoch is another: the client cannot know all it missed.
    pub complete: bool,
}

/// Asks for part of an inbox, in the order in which it was filled.
#[derive(Debug, Clone)]
pub struct InboxRange {
    pub app: AppId,
    pub device: DeviceId,
    /// Of what was accepted from then on, and up to then.
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub place: InboxPlace,
    pub limit: usize,
    pub now: Timestamp,
}

/// Which part of an inbox, or of what of it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxPlace {
    First,
    Last,
    /// Right behind this one, or right before it; none of them if it is not in the inbox.
    After(NotificationId),
    Before(NotificationId),
}

/// Part of an inbox, as of one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InboxPage {
    /// The oldest first, none expired.
    pub messages: Vec<Arc<Message>>,
    /// How many of what is asked for come before the first of them, and how many there are in all.
    pub index: u64,
    pub total: u64,
}

/// A device confirms notifications.
#[derive(Debug, Clone)]
pub struct Ack {
    pub device: DeviceNum,
    pub ids: Vec<NotificationId>,
}

/// A notification that was outstanding on some devices until they confirmed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    pub id: NotificationId,
    /// Devices.
    pub count: u64,
}

/// What a device is told when its app starts.
#[derive(Debug, Clone)]
pub struct FirstCall {
    pub device: Device,
    /// Messages of the inbox, none expired.
    pub unread: u64,
    /// The newest of them, newest first.
    pub newest: Vec<Arc<Message>>,
    /// When the first of the unread ones expires.
    pub expires_at: Option<Timestamp>,
}

#[async_trait::async_trait]
pub trait Sessions: Send + Sync {
    /// Logs in many devices with one read, and one write if some of them have to be made or changed.
    /// Answers in order.
    async fn log_in(&self, logins: Vec<Login>) -> Result<Vec<Result<LoggedIn, LoginRefused>>, Error>;

    /// Looks again at many devices with one read. Answers in order.
    async fn recheck(&self, checks: Vec<Recheck>) -> Result<Vec<Rechecked>, Error>;

    /// Keeps what a protocol remembers of a device's session, in its own words, or forgets it. Comes back
    /// with the next log-in. A device that is gone keeps nothing. What is marked with [`KEPT_ENDED`] stays until it is
    /// forgotten, so that the last word of the session that ended does not undo the mark.
    async fn keep_session(&self, device: DeviceNum, kept: Option<Vec<u8>>) -> Result<(), Error>;

    async fn backlog(&self, backlog: Backlog) -> Result<BacklogPage, Error>;

    /// `more` is set when the page is full: ask again since the last message's position.
    async fn recover(&self, recover: Recover) -> Result<BacklogPage, Error>;

    /// Messages by their ids, in the order of the ids: those in the device's inbox, in the log of a topic of the app or
    /// retained by one. What expired, was cancelled or made room for others is left out. Whether the device subscribes to
    /// a topic, and where it stands there, is not asked.
    async fn outstanding(&self, asked: Outstanding) -> Result<Vec<Arc<Message>>, Error>;

    /// Removes inbox rows; for topic messages moves the device's position forward (never back). Ids
    /// that are not this device's are ignored. Records [`noroshi_types::Outcome::Acked`] for what
    /// was outstanding, and answers that.
    async fn ack(&self, acks: Vec<Ack>, now: Timestamp) -> Result<Vec<Acked>, Error>;

    /// Notes that the device's user opened notifications, each once: what is not known (any more), is another
    /// app's or was opened on this device before is left out. Counts as [`noroshi_types::Outcome::Opened`], for the
    /// notification's campaign too. What was opened for the first time, in the order of `ids`.
    ///
    /// It confirms nothing, and whether the device was among the recipients is not asked: of topics that is not known.
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

    /// Part of the inbox of a device; none if it is to begin at a message that is not in it.
    async fn inbox_range(&self, asked: InboxRange) -> Result<Option<InboxPage>, Error>;

    /// The device and its inbox as of one moment, in one round trip to whatever keeps them; none if there is no such
    /// device.
    async fn first_call(
        &self,
        app: AppId,
        device: &DeviceId,
        newest: usize,
        now: Timestamp,
    ) -> Result<Option<FirstCall>, Error>;
}
