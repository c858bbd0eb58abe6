//! Shared subscriptions (MQTT 5 §4.8.2): the members of each group, and up to which place a group's messages were
//! assigned.
//!
//! A *group* is a share name with a topic filter, in one app. Its members are devices. The leader of the task assigns
//! each message of the topics' logs to one member: it sends the device a copy, which waits in the device's inbox
//! until it is acknowledged (`delivery::share`). The store only keeps what has to survive the leader.
//!
//! A group begins with its first member and ends with its last. It gets no messages that were accepted before it
//! began.

use noroshi_types::{AppId, DeviceId, DeviceNum, NotificationId, Timestamp};

use crate::{Error, Place};

/// A group's number, which is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShareNum(pub i64);

/// The name of a group in its app.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Share {
    pub name: Box<str>,
    pub filter: Box<str>,
}

/// A member only moves down this list, unless it subscribes again or its connection turns out to be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberState {
    /// The device subscribed, and no node reported the end of its connection.
    Here = 0,
    /// The connection ended, but not the session.
    Away = 1,
    /// The device unsubscribed. The row stays until the leader has reassigned the unacknowledged messages.
    Left = 2,
    /// The session ended. The row stays as for [`MemberState::Left`].
    Ended = 3,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareMember {
    pub num: DeviceNum,
    /// `None`: the device was deleted.
    pub device: Option<DeviceId>,
    /// The maximum QoS of messages for the device.
    pub qos: u8,
    /// The generation of the connection that subscribed.
    pub generation: u64,
    /// How long its session outlives its connection.
    pub expiry_s: u32,
    pub state: MemberState,
    /// When its session ends, if it is [`MemberState::Away`].
    pub ends_at: Option<Timestamp>,
    /// Messages that were sent to the device and are not acknowledged. Those with QoS 2 must not be sent to another
    /// member ([MQTT-4.8.2-5]).
    pub held: Vec<NotificationId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareGroup {
    pub num: ShareNum,
    pub app: AppId,
    pub share: Share,
    pub since: Place,
    /// By device number.
    pub members: Vec<ShareMember>,
}

/// A connection subscribes.
#[derive(Debug, Clone)]
pub struct JoinShares {
    pub app: AppId,
    pub device: DeviceNum,
    /// With the granted QoS. Of a share that occurs twice the last one counts (MQTT 5 §3.8.4).
    pub shares: Vec<(Share, u8)>,
    pub generation: u64,
    /// How long the session outlives its connection.
    pub expiry_s: u32,
}

/// A device's memberships change because it unsubscribes, or because its connection or session ends.
#[derive(Debug, Clone)]
pub struct LeaveShares {
    pub device: DeviceNum,
    /// Memberships of a later connection stay unchanged.
    pub generation: u64,
    pub what: Leave,
    /// [`ShareMember::held`]; empty: unchanged.
    pub held: Vec<NotificationId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    /// All of them become [`MemberState::Away`].
    Connection { ends_at: Timestamp },
    /// All of them become [`MemberState::Ended`].
    Session,
    /// These become [`MemberState::Left`].
    Shares(Vec<Share>),
}

/// The leader's progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettleShares {
    /// Groups move forward to these places, never back.
    pub since: Vec<(ShareNum, Place)>,
    /// Memberships to remove if they still are [`MemberState::Left`] or [`MemberState::Ended`], or if their device
    /// was deleted. A group is removed with its last member.
    pub over: Vec<(ShareNum, DeviceNum)>,
}

#[async_trait::async_trait]
pub trait Shares: Send + Sync {
    /// Creates missing groups and memberships; all of them or none. A group without present or away members restarts
    /// at the current place. Does not change memberships of a later connection. [`Error::Limit`] over
    /// [`noroshi_types::limits::SHARES_PER_DEVICE_MAX`], [`noroshi_types::limits::SHARES_PER_APP_MAX`] or
    /// [`noroshi_types::limits::SHARE_MEMBERS_PER_APP_MAX`], [`Error::NotFound`] if there is no such device.
    async fn join_shares(&self, join: JoinShares) -> Result<(), Error>;

    /// Returns whether any membership changed.
    async fn leave_shares(&self, leave: LeaveShares) -> Result<bool, Error>;

    /// The connection of this generation is open: memberships of it that are [`MemberState::Away`] become
    /// [`MemberState::Here`]. Returns whether any changed.
    async fn return_to_shares(&self, members: Vec<(DeviceNum, u64)>) -> Result<bool, Error>;

    /// The groups of all apps, by number.
    async fn share_groups(&self) -> Result<Vec<ShareGroup>, Error>;

    async fn settle_shares(&self, settle: SettleShares) -> Result<(), Error>;
}
