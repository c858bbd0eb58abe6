//! Members that can get a message now: they are connected and have room.
//!
//! Asks the sessions of all nodes which members are connected, and the store how many copies a member has not
//! acknowledged. Reports members whose node cannot report the end of their connection.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use noroshi_store::{Leave, LeaveShares, MemberState, Outstanding, ShareMember};
use noroshi_types::{AppId, DeviceId, DeviceNum, NotificationId, Timestamp};

use super::group::{Connections, Group, UnacknowledgedCopies};
use super::{Shares, copy};
use crate::edge::GENERATION_BITS;
use crate::error::Error;
use crate::sessions::Connected;

/// Unacknowledged copies of a member before it is skipped: two windows of an MQTT connection. In a small inbox, a quarter
/// of its rows, so that copies do not evict each other.
const UNACKNOWLEDGED_MAX: u32 = 128;
/// A member without a connection, whose node did not report its end, is away after this.
const UNSEEN: Duration = Duration::from_secs(5);
/// How long the leader keeps a member whose disconnect no node reported, if its session ends with its connection. A
/// node that still has the connection corrects this.
const GRACE: Duration = Duration::from_secs(600);
/// The longest time of one look at connections, and the number of apps that are looked at concurrently.
const LOOK_MAX: Duration = Duration::from_secs(2);
const APPS_AT_ONCE: usize = 16;
/// Memberships that one look ends or marks as away.
const CHANGES: usize = 256;
/// Members whose copies are counted when a group finds none with room, and in a whole turn.
const COUNTED: usize = 16;
const COUNTED_IN_A_TURN: usize = 128;

pub(super) struct Members {
    pub(super) connected: Connections,
    /// Members that should be connected and are not, with the time since when.
    unseen: HashMap<(DeviceNum, u64), Instant>,
    pub(super) copies: UnacknowledgedCopies,
    counts_left: usize,
}

impl Members {
    pub(super) fn new(inbox_rows: u32) -> Self {
        let most = UNACKNOWLEDGED_MAX.min(inbox_rows / 4).max(1);
        let copies = UnacknowledgedCopies::new(usize::try_from(most).unwrap_or(usize::MAX));
        Self { connected: Connections::new(), unseen: HashMap::new(), copies, counts_left: 0 }
    }

    pub(super) fn begin_turn(&mut self) {
        self.counts_left = COUNTED_IN_A_TURN;
    }

    /// Whether more members may be counted in this turn.
    pub(super) fn may_count(&self) -> bool {
        self.counts_left > 0
    }

    /// Takes the next connected member for a message that is not stored, which needs no room.
    pub(super) fn next_connected(&self, group: &mut Group) -> Option<DeviceId> {
        let member = group.next(&self.connected, |_| true)?;
        let (num, device) = (member.num, member.device.clone());
        group.last = num;
        device
    }

    /// The next member with room. It stays the next.
    pub(super) async fn find(
        &mut self,
        shares: &Shares,
        group: &mut Group,
    ) -> Result<Option<(DeviceNum, DeviceId)>, Error> {
        loop {
            let may = |device| self.copies.has(device) != Some(false);
            let Some(member) = group.next(&self.connected, may) else {
                match self.count(shares, group).await? {
                    true => continue,
                    false => return Ok(None),
                }
            };
            let (num, Some(device)) = (member.num, member.device.clone()) else { return Ok(None) };
            if self.copies.has(num).is_some() {
                return Ok(Some((num, device)));
            }
            // An earlier leader may have sent it copies.
            let copies = copy::in_inbox(shares, group.of.app, &device).await?;
            self.copies.set(num, copies.iter().map(|(message, _)| message.id).collect());
        }
    }

    /// Takes the next member with room, and adds `message` to its copies. The caller replaces it there by what it sent.
    pub(super) async fn take(
        &mut self,
        shares: &Shares,
        group: &mut Group,
        message: NotificationId,
    ) -> Result<Option<(DeviceNum, DeviceId)>, Error> {
        let found = self.find(shares, group).await?;
        if let Some((num, _)) = &found {
            group.last = *num;
            self.copies.add(*num, message);
        }
        Ok(found)
    }

    /// Counts again what some members have not acknowledged. Returns true if one of them has room.
    async fn count(&mut self, shares: &Shares, group: &mut Group) -> Result<bool, Error> {
        let now = shares.context.now();
        let chosen = group.next_to_count(&self.connected, COUNTED.min(self.counts_left));
        self.counts_left -= chosen.len();
        let mut has_room = false;
        for device in chosen {
            let ids = self.copies.of(device).to_vec();
            let asked = Outstanding { app: group.of.app, device, ids, now };
            let left = shares.context.store.outstanding(asked).await?;
            self.copies.set(device, left.iter().map(|message| message.id).collect());
            has_room |= self.copies.has(device) == Some(true);
        }
        Ok(has_room)
    }

    /// Looks up which members are connected. Marks members as away that should be connected but are not, and ends
    /// those whose session has ended.
    pub(super) async fn look(&mut self, shares: &Shares, groups: &[Group]) {
        let mut by_app: HashMap<AppId, HashMap<DeviceNum, DeviceId>> = HashMap::new();
        for group in groups {
            let here = group.of.members.iter().filter(|member| member.state != MemberState::Away);
            let devices = here.filter_map(|member| Some((member.num, member.device.clone()?)));
            by_app.entry(group.of.app).or_default().extend(devices);
        }
        let seen = seen(shares, by_app).await;
        let before = std::mem::take(&mut self.connected);
        let mut gone = Vec::new();
        let mut unseen = HashMap::new();
        let (now, wall) = (Instant::now(), shares.context.now());
        for group in groups {
            for member in &group.of.members {
                let key = (member.num, member.generation);
                let is_connected = match seen.get(&member.num) {
                    Some(Connected::As(generation)) => *generation == member.generation,
                    Some(Connected::No) => false,
                    Some(Connected::Unknown) | None => before.contains(&key),
                };
                let is_known = seen.get(&member.num).is_some_and(|seen| *seen != Connected::Unknown);
                if is_connected {
                    self.connected.insert(key);
                } else if member.state == MemberState::Here && member.device.is_some() && is_known {
                    let since = *self.unseen.get(&key).unwrap_or(&now);
                    if unseen.insert(key, since).is_none()
                        && now - since >= UNSEEN
                        && let Some(leave) = unreported_end(member, wall)
                    {
                        gone.push((group.of.app, key, leave));
                    }
                } else if member.state == MemberState::Away && member.ends_at.is_some_and(|at| at <= wall) {
                    gone.push((group.of.app, key, Leave::Session));
                }
            }
        }
        self.unseen = unseen;
        for (app, (device, generation), what) in gone.into_iter().take(CHANGES) {
            let leave = LeaveShares { device, generation, what, held: Vec::new() };
            if let Err(error) = shares.leave(app, leave).await {
                tracing::warn!(%error, "could not end the membership of a disconnected device; retrying");
            }
        }
    }
}

/// The connections of members. Members without an entry were not asked for, or no answer arrived in time.
async fn seen(
    shares: &Shares,
    by_app: HashMap<AppId, HashMap<DeviceNum, DeviceId>>,
) -> HashMap<DeviceNum, Connected> {
    let ask = |(app, members): (AppId, HashMap<DeviceNum, DeviceId>)| async move {
        let (nums, devices): (Vec<DeviceNum>, Vec<DeviceId>) = members.into_iter().unzip();
        let known = shares.sessions.generations(app, &devices).await;
        nums.into_iter().zip(known).collect::<Vec<_>>()
    };
    let mut answers = futures_util::stream::iter(by_app.into_iter().map(ask)).buffer_unordered(APPS_AT_ONCE);
    let until = tokio::time::Instant::now() + LOOK_MAX;
    let mut seen = HashMap::new();
    while let Ok(Some(known)) = tokio::time::timeout_at(until, answers.next()).await {
        seen.extend(known);
    }
    seen
}

/// The end of a connection that no node reported, because the member's node was killed. `None` if the member may have
/// logged in after the look.
fn unreported_end(member: &ShareMember, now: Timestamp) -> Option<Leave> {
    let logged_in_ms = member.generation >> GENERATION_BITS;
    let age = now.0.saturating_sub(logged_in_ms);
    let lasts = match member.expiry_s {
        0 => GRACE,
        seconds => Duration::from_secs(seconds.into()),
    };
    (u128::from(age) >= UNSEEN.as_millis()).then(|| Leave::Connection { ends_at: now.saturating_add(lasts) })
}
