//! Shared subscriptions (MQTT 5 §4.8.2): who is in which group, and up to where a group's messages were assigned.
//!
//! A *group* is a share name with a topic filter, in one app. Its members are devices. The node that leads the task
//! assigns each message of the topics' logs to one member: it sends the device a copy, which waits in the device's inbox
//! until it is confirmed (`delivery::share`). This part of the store only keeps what has to survive the leader.
//!
//! A group begins with its first member and ends with its last. It gets nothing of what was accepted before it began.

use std::collections::BTreeMap;

use noroshi_types::{AppId, DeviceId, DeviceNum, NotificationId, Timestamp, limits};

use crate::{Error, Place};

/// A group's number, which is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShareNum(pub i64);

/// What names a group in its app.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Share {
    pub name: Box<str>,
    pub filter: Box<str>,
}

/// A member only moves down this list, unless it subscribes again or its connection turns out to be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberState {
    /// It subscribed, and no node reported the end of its connection.
    Here = 0,
    /// Its connection ended. Its session did not.
    Away = 1,
    /// It unsubscribed. The row stays until the leader has dealt with what the device has not confirmed.
    Left = 2,
    /// Its session ended. The row stays as it does for [`MemberState::Left`].
    Ended = 3,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareMember {
    pub num: DeviceNum,
    /// None: the device was deleted.
    pub device: Option<DeviceId>,
    /// The highest QoS that messages are sent to it with.
    pub qos: u8,
    /// Of the connection that subscribed.
    pub generation: u64,
    /// How long its session outlives its connection.
    pub expiry_s: u32,
    pub state: MemberState,
    /// When its session ends, if it is [`MemberState::Away`].
    pub ends_at: Option<Timestamp>,
    /// Messages that were sent to it and that it has not confirmed. Those with QoS 2 may go to nobody else
    /// ([MQTT-4.8.2-5]).
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
    /// With the QoS that was granted. Of a share that is there twice the last one counts (MQTT 5 §3.8.4).
    pub shares: Vec<(Share, u8)>,
    pub generation: u64,
    /// How long the session outlives its connection.
    pub expiry_s: u32,
}

/// A device's memberships change because it unsubscribes, or because its connection or session ends.
#[derive(Debug, Clone)]
pub struct LeaveShares {
    pub device: DeviceNum,
    /// Memberships that a later connection made stay as they are.
    pub generation: u64,
    pub what: Leave,
    /// [`ShareMember::held`]; none: as before.
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

impl Leave {
    pub(crate) fn state(&self) -> MemberState {
        match self {
            Self::Connection { .. } => MemberState::Away,
            Self::Session => MemberState::Ended,
            Self::Shares(_) => MemberState::Left,
        }
    }

    /// In milliseconds.
    pub(crate) fn ends_at(&self) -> Option<i64> {
        match self {
            Self::Connection { ends_at } => Some(i64::try_from(ends_at.0).unwrap_or(i64::MAX)),
            _ => None,
        }
    }
}

/// What the leader did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettleShares {
    /// Groups move forward to these places, never back.
    pub since: Vec<(ShareNum, Place)>,
    /// Memberships that are removed if they still are [`MemberState::Left`] or [`MemberState::Ended`], or if their device was
    /// deleted. A group whose last member goes is removed too.
    pub over: Vec<(ShareNum, DeviceNum)>,
}

#[async_trait::async_trait]
pub trait Shares: Send + Sync {
    /// Makes groups and memberships where they are missing; all of them or none. A group begins anew if no member of it is
    /// here or away. Does nothing to memberships of a later connection. [`Error::Limit`] over
    /// [`limits::SHARES_PER_DEVICE_MAX`], [`limits::SHARES_PER_APP_MAX`] or [`limits::SHARE_MEMBERS_PER_APP_MAX`],
    /// [`Error::NotFound`] if there is no such device.
    async fn join_shares(&self, join: JoinShares) -> Result<(), Error>;

    /// Whether any membership changed.
    async fn leave_shares(&self, leave: LeaveShares) -> Result<bool, Error>;

    /// The connection of this generation is open: memberships of it that are [`MemberState::Away`] are
    /// [`MemberState::Here`]. Whether any changed.
    async fn return_to_shares(&self, members: Vec<(DeviceNum, u64)>) -> Result<bool, Error>;

    /// The groups of all apps, by number.
    async fn share_groups(&self) -> Result<Vec<ShareGroup>, Error>;

    async fn settle_shares(&self, settle: SettleShares) -> Result<(), Error>;
}

impl MemberState {
    pub(crate) fn of(code: i64) -> Self {
        match code {
            0 => Self::Here,
            1 => Self::Away,
            2 => Self::Left,
            _ => Self::Ended,
        }
    }
}

/// Each share once, in the order of their names.
pub(crate) fn distinct(shares: Vec<(Share, u8)>) -> Vec<(Share, u8)> {
    let shares: BTreeMap<(Box<str>, Box<str>), u8> =
        shares.into_iter().map(|(Share { name, filter }, qos)| ((name, filter), qos)).collect();
    shares.into_iter().map(|((name, filter), qos)| (Share { name, filter }, qos)).collect()
}

/// Memberships of a device and of its app, and groups of the app, as they would be.
pub(crate) struct Counts {
    pub(crate) of_device: i64,
    pub(crate) members: i64,
    pub(crate) groups: i64,
}

impl Counts {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let over = |count: i64, most: usize| usize::try_from(count).is_ok_and(|count| count > most);
        let text = if over(self.of_device, limits::SHARES_PER_DEVICE_MAX) {
            format!("a device may have {} shared subscriptions", limits::SHARES_PER_DEVICE_MAX)
        } else if over(self.groups, limits::SHARES_PER_APP_MAX) {
            format!("an app may have {} groups of shared subscriptions", limits::SHARES_PER_APP_MAX)
        } else if over(self.members, limits::SHARE_MEMBERS_PER_APP_MAX) {
            format!("an app may have {} shared subscriptions", limits::SHARE_MEMBERS_PER_APP_MAX)
        } else {
            return Ok(());
        };
        Err(Error::Limit(text))
    }
}

pub(crate) fn held_bytes(ids: &[NotificationId]) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.as_bytes().to_owned()).collect();
    (!bytes.is_empty()).then_some(bytes)
}

pub(crate) fn held_ids(bytes: Option<&[u8]>) -> Vec<NotificationId> {
    let (ids, _) = bytes.unwrap_or_default().as_chunks::<16>();
    ids.iter().copied().map(NotificationId::from_bytes).collect()
}

/// A row of a group and one of its members, or of a group without any.
pub(crate) struct GroupRow {
    pub(crate) group: ShareGroup,
    pub(crate) member: Option<ShareMember>,
}

/// Rows come by group.
pub(crate) fn group(rows: impl IntoIterator<Item = GroupRow>) -> Vec<ShareGroup> {
    let mut groups: Vec<ShareGroup> = Vec::new();
    for GroupRow { group, member } in rows {
        match groups.last_mut().filter(|last| last.num == group.num) {
            Some(last) => last.members.extend(member),
            None => groups.push(ShareGroup { members: member.into_iter().collect(), ..group }),
        }
    }
    groups
}

pub(crate) fn time(ms: Option<i64>) -> Option<Timestamp> {
    ms.map(|ms| Timestamp(ms.cast_unsigned()))
}

/// [`GroupRow`], in this order.
pub(crate) const GROUPS: &str = "SELECT g.num, g.app, g.name, g.filter, g.since,
            m.device, d.id, m.qos, m.generation, m.lasts, m.state, m.ends_at, m.held
     FROM share_groups AS g LEFT JOIN share_members AS m ON m.share = g.num LEFT JOIN devices AS d ON d.num = m.device
     ORDER BY g.num, m.device";
