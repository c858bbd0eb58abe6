//! Broadcast channels of APNs, and the broadcasts that wait for them.
//!
//! A channel exists here and at Apple. It is *reserved* here first, under a claim, then created at Apple, then
//! *completed* with Apple's id. When the claim has ended, another caller may claim the name. A channel that the first
//! caller created at Apple then has no name, and only Apple's list shows it.
//!
//! Broadcasts of a channel are sent one after the other, in the order of their commits. A sender *takes* the first
//! broadcast of a channel under a lease, and *finishes* it. A taken broadcast stays in the store until then, so a crash
//! repeats it and loses none. Opening a store of one node ends all leases.

use std::time::Duration;

use noroshi_types::{
    AppId, Broadcast, BroadcastId, BroadcastState, JsonText, Label, NotificationId, PushEnvironment,
    StoragePolicy, Timestamp, Topic,
};

use crate::{Error, Idempotency, PushRecord};

/// A channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub name: Label,
    pub environment: PushEnvironment,
    /// The bundle id under which it was created.
    pub bundle: String,
    pub policy: StoragePolicy,
    /// `None`: it was reserved, and is not known to exist at Apple.
    pub apple: Option<String>,
    pub topic: Option<Topic>,
    pub created_at: Timestamp,
    /// Broadcasts that wait, counted up to [`noroshi_types::limits::BROADCASTS_WAITING_MAX`].
    pub waiting: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChannel {
    pub app: AppId,
    pub name: Label,
    pub environment: PushEnvironment,
    pub bundle: String,
    pub policy: StoragePolicy,
    pub topic: Option<Topic>,
}

/// The right to create a channel at Apple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Random, not 0.
    pub by: u64,
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// The caller creates it at Apple.
    Claimed,
    /// It exists, with these settings.
    Exists(Channel),
    /// Another caller is creating it.
    Busy,
}

/// A broadcast to one channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBroadcast {
    pub app: AppId,
    pub channel: Label,
    pub broadcast: Broadcast,
    pub expires_at: Timestamp,
    pub idempotency: Option<Idempotency>,
}

/// What became of a broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBroadcast {
    pub id: BroadcastId,
    /// Its channel, which may be deleted.
    pub channel: Label,
    pub notification: Option<NotificationId>,
    pub priority: u8,
    pub replaceable: bool,
    pub accepted_at: Timestamp,
    pub expires_at: Timestamp,
    pub state: BroadcastState,
    /// Of Apple or Noroshi, for the last attempt.
    pub reason: Option<String>,
    /// Attempts that ended.
    pub attempts: u32,
    pub ended_at: Option<Timestamp>,
}

/// Which broadcasts to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BroadcastsOf {
    Channel(Label),
    Notification(NotificationId),
}

/// After this many takes in a row that no sender reported on, a broadcast is set aside. More than for a batch of pushes: a
/// sender only passes the payload on, so its process hardly ends because of it.
pub const BROADCAST_TAKES_MAX: u32 = 50;

/// A broadcast under a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueBroadcast {
    /// The channel's number.
    pub channel: u64,
    /// The end of the lease, which identifies it.
    pub leased_until: Timestamp,
    /// The broadcast's number.
    pub num: u64,
    pub app: AppId,
    pub id: BroadcastId,
    pub environment: PushEnvironment,
    pub bundle: String,
    /// Apple's id of the channel.
    pub apple: String,
    pub policy: StoragePolicy,
    pub payload: JsonText,
    pub priority: u8,
    pub expires_at: Timestamp,
    pub attempt: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenBroadcasts {
    /// At most one of each channel.
    pub due: Vec<DueBroadcast>,
    pub expired: u64,
    pub replaced: u64,
    /// Broadcasts that were taken too often ([`BROADCAST_TAKES_MAX`]), refused with [`crate::SENDER_ENDED`].
    pub set_aside: u64,
    /// When to ask again; not after `now` if more are due.
    pub next_due: Option<Timestamp>,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedBroadcast {
    pub channel: u64,
    pub leased_until: Timestamp,
    pub num: u64,
    pub reason: Option<&'static str>,
    pub then: Then,
    /// Of [`PushRecord::NO_DEVICE`].
    pub record: Option<Box<PushRecord>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It is over.
    End(BroadcastState),
    /// Another attempt.
    Again(Timestamp),
}

/// The numbers behind the gauges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChannelCounts {
    pub channels: u64,
    /// Channels with broadcasts that wait.
    pub waiting: u64,
}

#[async_trait::async_trait]
pub trait Channels: Send + Sync {
    /// Reserves the name. [`Error::Limit`] beyond `channels_max` channels of the app in the environment; [`Error::Exists`]
    /// if the topic has a channel in the environment.
    async fn reserve_channel(
        &self,
        new: NewChannel,
        claim: Claim,
        channels_max: usize,
        now: Timestamp,
    ) -> Result<Reserved, Error>;
    /// Apple created it. [`Error::Conflict`] if the claim is no longer the caller's.
    async fn complete_channel(
        &self,
        app: AppId,
        name: &Label,
        claim: u64,
        apple: String,
    ) -> Result<Channel, Error>;
    /// Apple certainly did not create it: frees the name, if the claim is still the caller's.
    async fn abandon_channel(&self, app: AppId, name: &Label, claim: u64) -> Result<(), Error>;

    async fn channel(&self, app: AppId, name: &Label) -> Result<Option<Channel>, Error>;
    /// By name.
    async fn channels(&self, app: AppId, after: Option<Label>, limit: usize) -> Result<Vec<Channel>, Error>;
    /// The channels that are bound to the topic: at most one of each environment.
    async fn channels_of_topic(&self, app: AppId, topic: &Topic) -> Result<Vec<Channel>, Error>;
    /// Which of these ids of Apple belong to channels of the app, each with the channel's name.
    async fn known_channels(&self, app: AppId, apple: Vec<String>) -> Result<Vec<(String, Label)>, Error>;
    /// Binds the channel to a topic, or to none. [`Error::Exists`] if the topic has another channel in the environment.
    async fn bind_channel(&self, app: AppId, name: &Label, topic: Option<Topic>) -> Result<Channel, Error>;
    /// Forgets the channel; broadcasts that wait are cancelled.
    async fn delete_channel(&self, app: AppId, name: &Label, now: Timestamp) -> Result<(), Error>;

    /// Accepts a broadcast to one channel. True: the answer repeats that of an earlier call with the same idempotency
    /// key. [`Error::NotFound`] without such a channel, [`Error::Conflict`] if it is not created yet, [`Error::Limit`]
    /// beyond `waiting_max` broadcasts that wait.
    async fn broadcast(
        &self,
        new: NewBroadcast,
        waiting_max: usize,
        now: Timestamp,
    ) -> Result<(StoredBroadcast, bool), Error>;
    async fn stored_broadcast(&self, app: AppId, id: BroadcastId) -> Result<Option<StoredBroadcast>, Error>;
    /// The attempts of the newest 100 records, oldest first, each as in [`PushRecord::attempts`].
    async fn broadcast_attempts(&self, app: AppId, id: BroadcastId) -> Result<Vec<Vec<u8>>, Error>;
    /// The newest first.
    async fn broadcasts(
        &self,
        app: AppId,
        of: BroadcastsOf,
        limit: usize,
    ) -> Result<Vec<StoredBroadcast>, Error>;

    /// Leases the first broadcast of channels that are due, the longest due first. Those whose ttl has ended, and those
    /// that a newer one replaces, end here; with a ttl of 0 one attempt is made. Clocks of nodes may differ by a part of
    /// `lease`: more of it repeats a broadcast.
    async fn take_broadcasts(
        &self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<TakenBroadcasts, Error>;
    /// Writes results in one commit. A result counts once, even if another sender has the lease by then. A broadcast keeps
    /// its newest 100 records.
    async fn finish_broadcasts(&self, finished: Vec<FinishedBroadcast>, now: Timestamp) -> Result<(), Error>;
    async fn channel_counts(&self) -> Result<ChannelCounts, Error>;
}
