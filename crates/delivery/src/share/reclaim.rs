//! Copies that members did not acknowledge before their connection or session ended, or before they unsubscribed.
//!
//! Sends them to other members, cancels them in the first member's inbox, and reports memberships that are over. The
//! leader runs it at intervals; the deletion of a device runs it once for that device.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use noroshi_store::{MemberState, ShareMember, ShareNum};
use noroshi_types::{AppId, DeviceId, DeviceNum, Message, NotificationId};

use super::copy::{self, Sent};
use super::group::{Fate, Group, fate};
use super::members::Members;
use super::{Shares, assignment};
use crate::error::Error;

/// Inboxes that are read in one turn.
const INBOXES: usize = 64;
/// The pause before a retry for a member whose copies no other member could take, or that could not be read.
const RETRY: Duration = Duration::from_millis(500);
/// The pause between two looks at what a member that left still acknowledges.
const HELD: Duration = Duration::from_secs(5);
/// How long a member that unsubscribed may subscribe again and keep its copies. Without this pause two members would
/// get what the leader reassigns at this moment.
const SETTLED: Duration = Duration::from_secs(1);
/// How long the deletion of a device waits until the end of its connection is known, and how often it looks.
const DISCONNECT_MAX: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// One membership in one state.
type Mark = (ShareNum, DeviceNum, u64, MemberState);

#[derive(Default)]
pub(super) struct Reclaim {
    /// Members whose inbox was read, and when to read it again.
    looked: HashMap<Mark, Option<Instant>>,
    /// The group to start with.
    from: usize,
}

/// The result of a turn.
#[derive(Default)]
pub(super) struct Reclaimed {
    /// Memberships without remaining copies.
    pub(super) over: Vec<(ShareNum, DeviceNum)>,
    /// There are more members to look at.
    pub(super) has_more: bool,
}

/// What remains with a member after its copies were reassigned.
enum Remaining {
    Nothing,
    /// It is still acknowledging copies it had when it unsubscribed.
    Held,
    /// No other member has room now.
    NoRoom,
}

impl Reclaim {
    /// Forgets members whose state changed.
    pub(super) fn retain(&mut self, groups: &[Group]) {
        let marks = groups.iter().flat_map(|group| group.of.members.iter().map(|member| mark(group, member)));
        let known: HashSet<Mark> = marks.collect();
        self.looked.retain(|mark, _| known.contains(mark));
    }

    /// Reassigns copies of members that left. A group that fails does not stop the others.
    pub(super) async fn turn(
        &mut self,
        shares: &Shares,
        members: &mut Members,
        groups: &mut [Group],
    ) -> (Reclaimed, Result<(), Error>) {
        let (mut done, mut read, mut result) = (Reclaimed::default(), 0, Ok(()));
        let first = self.from.min(groups.len());
        for at in (first..groups.len()).chain(0..first) {
            if read >= INBOXES {
                (self.from, done.has_more) = (at, true);
                break;
            }
            if let Err(error) = self.group(shares, members, &mut groups[at], &mut read, &mut done.over).await
            {
                result = result.and(Err(error));
            }
        }
        (done, result)
    }

    async fn group(
        &mut self,
        shares: &Shares,
        members: &mut Members,
        group: &mut Group,
        read: &mut usize,
        over: &mut Vec<(ShareNum, DeviceNum)>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        let deleted = group.of.members.iter().filter(|member| member.device.is_none());
        over.extend(deleted.map(|member| (group.of.num, member.num)));
        if group.is_alive() && !group.has_candidates(&members.connected) {
            return Ok(()); // no member could take copies
        }
        let now = Instant::now();
        let is_due = |looked: &HashMap<Mark, Option<Instant>>, mark: &Mark| {
            looked.get(mark).is_none_or(|again| again.is_some_and(|at| at <= now))
        };
        let gone = group.of.members.iter().filter(|member| member.state != MemberState::Here);
        let gone: Vec<ShareMember> = gone.filter(|member| member.device.is_some()).cloned().collect();
        for member in gone {
            let mark = mark(group, &member);
            if *read >= INBOXES || !is_due(&self.looked, &mark) {
                continue;
            }
            if member.state == MemberState::Left && !self.looked.contains_key(&mark) {
                self.looked.insert(mark, Some(now + SETTLED));
                continue;
            }
            *read += 1;
            let again = match take_back(shares, members, group, &member).await {
                Ok(Remaining::Nothing) if member.state == MemberState::Away => None,
                Ok(Remaining::Nothing) => {
                    over.push((group.of.num, member.num));
                    Some(now + RETRY)
                }
                Ok(Remaining::Held) => Some(now + HELD),
                Ok(Remaining::NoRoom) => Some(now + RETRY),
                Err(error) => {
                    result = result.and(Err(error));
                    Some(now + RETRY)
                }
            };
            self.looked.insert(mark, again);
        }
        result
    }
}

fn mark(group: &Group, member: &ShareMember) -> Mark {
    (group.of.num, member.num, member.generation, member.state)
}

async fn take_back(
    shares: &Shares,
    members: &mut Members,
    group: &mut Group,
    member: &ShareMember,
) -> Result<Remaining, Error> {
    let Some(device) = &member.device else { return Ok(Remaining::Nothing) };
    let is_connected = members.connected.contains(&(member.num, member.generation));
    let mut left = Remaining::Nothing;
    for (message, copy) in copy::in_inbox(shares, group.of.app, device).await? {
        if copy.share != group.share {
            continue;
        }
        match fate(member, message.id, &copy, is_connected) {
            Fate::Stays => continue,
            Fate::Waits => {
                left = Remaining::Held;
                continue;
            }
            Fate::Moves if group.is_alive() => {
                let turn = copy::turn_of(&message);
                match assignment::next_of(shares, members, group, &message, turn).await? {
                    Sent::NoDevice => return Ok(Remaining::NoRoom),
                    Sent::Copy(_) => drop(shares.metrics.share_messages_moved.inc()),
                    Sent::Expired => {}
                }
            }
            // A group without members drops the copy.
            Fate::Moves | Fate::Ends => {}
        }
        cancel(shares, group.of.app, message.id).await?;
    }
    Ok(left)
}

async fn cancel(shares: &Shares, app: AppId, id: NotificationId) -> Result<(), Error> {
    match shares.publisher.cancel(app, id).await {
        Ok(_) | Err(Error::Store(noroshi_store::Error::NotFound)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Ends the sessions of a device before its deletion, and sends its unacknowledged copies to other members. The deletion
/// removes its inbox, with the copies that no leader has reassigned.
pub(super) async fn release(shares: &Shares, app: AppId, device: &DeviceId) -> Result<(), Error> {
    let mut groups = groups_of(shares, app, device).await?;
    if groups.is_empty() {
        return Ok(());
    }
    // The device must not reconnect. What it received with QoS 2 is known when its connection has ended.
    shares.devices.revoke(app, device).await?;
    let until = Instant::now() + DISCONNECT_MAX;
    while groups.iter().any(|(_, member)| member.state == MemberState::Here) && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
        groups = groups_of(shares, app, device).await?;
    }
    let copies = copy::in_inbox(shares, app, device).await?;
    for (group, member) in &groups {
        let of_group = copies.iter().filter(|(_, copy)| copy.share == group.share);
        let mut others = VecDeque::from(others(group, member.num));
        for (message, copy) in of_group {
            let has_ended = ShareMember { state: MemberState::Ended, ..member.clone() };
            if fate(&has_ended, message.id, copy, false) == Fate::Moves {
                send_to_one(shares, group, message, &mut others).await?;
            }
        }
    }
    Ok(())
}

/// Sends a copy to the first of the devices that exists, and moves that one to the end.
async fn send_to_one(
    shares: &Shares,
    group: &Group,
    message: &Message,
    devices: &mut VecDeque<&DeviceId>,
) -> Result<(), Error> {
    let mut turn = copy::turn_of(message);
    while let Some(to) = devices.front() {
        let sent = copy::send(shares, (group.of.num, &group.share), message, turn, to).await?;
        if sent != Sent::NoDevice {
            shares.metrics.share_messages_moved.inc();
            devices.rotate_left(1);
            return Ok(());
        }
        devices.pop_front();
        turn = turn.saturating_add(1);
    }
    Ok(())
}

async fn groups_of(
    shares: &Shares,
    app: AppId,
    device: &DeviceId,
) -> Result<Vec<(Group, ShareMember)>, Error> {
    let groups = shares.context.store.share_groups().await?;
    let with_member = groups.into_iter().filter(|group| group.app == app).filter_map(|group| {
        let member = group.members.iter().find(|member| member.device.as_ref() == Some(device))?.clone();
        Some((Group::new(group, None), member))
    });
    Ok(with_member.collect())
}

/// The members that can take copies: those that are connected, otherwise those that may reconnect.
fn others(group: &Group, but: DeviceNum) -> Vec<&DeviceId> {
    let of = |state| {
        let members =
            group.of.members.iter().filter(move |member| member.state == state && member.num != but);
        members.filter_map(|member| member.device.as_ref()).collect::<Vec<_>>()
    };
    match of(MemberState::Here) {
        here if here.is_empty() => of(MemberState::Away),
        here => here,
    }
}
