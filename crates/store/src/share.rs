//! Shared subscriptions (MQTT 5 §4.8.2): who is in which group, and up to where a group's messages were assigned.
//!
//! A *group* is a share name with a topic filter, in one app. Its members are devices. The node that leads the task
//! assigns each message of the topics' logs to one member: it sends the device a copy, which waits in the device's inbox
//! until it is confirmed (`delivery::share`). This part of the store only keeps what has to survive the leader.
//!
//! A group begins with its first member and ends with its last. It gets nothing of what was accepted before it began.

use noroshi_types::{AppId, DeviceId, DeviceNum, NotificationId, limits};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// Subscribed, and connected as far as was told.
    Here = 0,
    /// The connection ended, the session did not.
    Away = 1,
    /// Unsubscribed, or the session ended. The row stays until the leader has dealt with what the device had not confirmed.
    Left = 2,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareMember {
    pub num: DeviceNum,
    /// None: the device is gone.
    pub device: Option<DeviceId>,
    /// The most that messages are sent to it with.
    pub qos: u8,
    pub generation: u64,
    /// Its session outlives its connection.
    pub lasts: bool,
    pub state: MemberState,
    /// Messages with QoS 2 that the device may already have: nobody else may get them ([MQTT-4.8.2-5]).
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
    /// With the QoS that was granted.
    pub shares: Vec<(Share, u8)>,
    pub generation: u64,
    pub lasts: bool,
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
    /// All of them are [`MemberState::Away`].
    Connection,
    /// All of them are [`MemberState::Left`].
    Session,
    /// These are [`MemberState::Left`].
    Some(Vec<Share>),
}

#[async_trait::async_trait]
pub trait Shares: Send + Sync {
    /// Makes groups and memberships where they are missing; all of them or none. A group without a member that is here or
    /// away begins anew. Does nothing to memberships of a later connection. [`Error::Limit`] over
    /// [`limits::SHARES_PER_DEVICE_MAX`], [`limits::SHARES_PER_APP_MAX`] or [`limits::SHARE_MEMBERS_PER_APP_MAX`],
    /// [`Error::NotFound`] if there is no such device.
    async fn join_shares(&self, join: JoinShares) -> Result<(), Error>;

    /// Whether any membership changed.
    async fn leave_shares(&self, leave: LeaveShares) -> Result<bool, Error>;

    /// The groups of all apps, by number.
    async fn share_groups(&self) -> Result<Vec<ShareGroup>, Error>;

    /// Moves groups forward (never back), removes memberships that have [`MemberState::Left`] or whose device is gone,
    /// and then groups that have no members.
    async fn settle_shares(
        &self,
        since: Vec<(ShareNum, Place)>,
        over: Vec<(ShareNum, DeviceNum)>,
    ) -> Result<(), Error>;
}

impl MemberState {
    pub(crate) fn of(code: i64) -> Self {
        match code {
            0 => Self::Here,
            1 => Self::Away,
            _ => Self::Left,
        }
    }
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

/// [`GroupRow`], in this order.
pub(crate) const GROUPS: &str = "SELECT g.num, g.app, g.name, g.filter, g.since,
            m.device, d.id, m.qos, m.generation, m.lasts, m.state, m.held
     FROM share_groups AS g LEFT JOIN share_members AS m ON m.share = g.num LEFT JOIN devices AS d ON d.num = m.device
     ORDER BY g.num, m.device";
