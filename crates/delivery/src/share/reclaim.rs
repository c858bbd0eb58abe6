//! What members did not confirm before their connection or session ended, or before they unsubscribed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_store::{MemberState, ShareMember, ShareNum};
use noroshi_types::{AppId, DeviceId, DeviceNum, Message, NotificationId};

use super::assign;
use super::copy::{self, Sent};
use super::group::{Fate, Group, fate};
use super::takers::Takers;
use crate::delivery::{Delivery, Error};

/// Inboxes that are read in one turn.
const INBOXES: usize = 64;
/// Until a member is looked at again whose copies nobody could take, or could not be read.
const RETRY: Duration = Duration::from_millis(500);
/// Between two looks at what a member that left still confirms.
const HELD: Duration = Duration::from_secs(5);
/// How long a member that unsubscribed has to subscribe again and go on with what it has. Otherwise two members would get
/// what the leader gives away at this moment.
const SETTLED: Duration = Duration::from_secs(1);
/// How long the deletion of a device waits until the end of its connection is known, and how often it looks.
const PARTING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// One membership as it was looked at.
type Mark = (ShareNum, DeviceNum, u64, MemberState);

#[derive(Default)]
pub(super) struct Reclaim {
    /// Members whose inbox was looked at, and when it is to be looked at again.
    looked: HashMap<Mark, Option<Instant>>,
    /// The group that is looked at first.
    from: usize,
}

/// What a turn did.
#[derive(Default)]
pub(super) struct Reclaimed {
    /// Memberships of which nothing is left.
    pub(super) over: Vec<(ShareNum, DeviceNum)>,
    /// There is more to look at.
    pub(super) has_more: bool,
}

/// What a member has that it does not need to keep.
enum Leftover {
    Nothing,
    /// It is still confirming what it had when it unsubscribed.
    Held,
    /// Nobody can take it now.
    NoRoom,
}

impl Reclaim {
    /// Forgets members that are not as they were.
    pub(super) fn retain(&mut self, groups: &[Group]) {
        let marks = groups.iter().flat_map(|group| group.of.members.iter().map(|member| mark(group, member)));
        let known: HashSet<Mark> = marks.collect();
        self.looked.retain(|mark, _| known.contains(mark));
    }

    /// Gives what members left to others. A group that fails does not keep the others from their turn.
    pub(super) async fn turn(
        &mut self,
        delivery: &Arc<Delivery>,
        takers: &mut Takers,
        groups: &mut [Group],
    ) -> (Reclaimed, Result<(), Error>) {
        let (mut done, mut read, mut result) = (Reclaimed::default(), 0, Ok(()));
        let first = self.from.min(groups.len());
        for at in (first..groups.len()).chain(0..first) {
            if read >= INBOXES {
                (self.from, done.has_more) = (at, true);
                break;
            }
            if let Err(error) = self.group(delivery, takers, &mut groups[at], &mut read, &mut done.over).await
            {
                result = result.and(Err(error));
            }
        }
        (done, result)
    }

    async fn group(
        &mut self,
        delivery: &Arc<Delivery>,
        takers: &mut Takers,
        group: &mut Group,
        read: &mut usize,
        over: &mut Vec<(ShareNum, DeviceNum)>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        let deleted = group.of.members.iter().filter(|member| member.device.is_none());
        over.extend(deleted.map(|member| (group.of.num, member.num)));
        if group.is_alive() && !group.has_takers(takers.connected()) {
            return Ok(()); // nobody could take it
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
            let again = match take_back(delivery, takers, group, &member).await {
                Ok(Leftover::Nothing) if member.state == MemberState::Away => None,
                Ok(Leftover::Nothing) => {
                    over.push((group.of.num, member.num));
                    Some(now + RETRY)
                }
                Ok(Leftover::Held) => Some(now + HELD),
                Ok(Leftover::NoRoom) => Some(now + RETRY),
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
    delivery: &Arc<Delivery>,
    takers: &mut Takers,
    group: &mut Group,
    member: &ShareMember,
) -> Result<Leftover, Error> {
    let Some(device) = &member.device else { return Ok(Leftover::Nothing) };
    let is_connected = takers.connected().contains(&(member.num, member.generation));
    let mut left = Leftover::Nothing;
    for (message, copy) in copy::in_inbox(delivery, group.of.app, device).await? {
        if copy.share != group.share {
            continue;
        }
        match fate(member, message.id, &copy, is_connected) {
            Fate::Stays => continue,
            Fate::Waits => {
                left = Leftover::Held;
                continue;
            }
            Fate::Moves if group.is_alive() => {
                let turn = copy::turn_of(&message);
                match assign::next_of(delivery, takers, group, &message, turn).await? {
                    Sent::NoDevice => return Ok(Leftover::NoRoom),
                    Sent::Copy(_) => drop(delivery.shares.metrics.moved.inc()),
                    Sent::Expired => {}
                }
            }
            // Of a group without members nobody is to get it.
            Fate::Moves | Fate::Ends => {}
        }
        cancel(delivery, group.of.app, message.id).await?;
    }
    Ok(left)
}

async fn cancel(delivery: &Delivery, app: AppId, id: NotificationId) -> Result<(), Error> {
    match delivery.cancel(app, id).await {
        Ok(_) | Err(Error::Store(noroshi_store::Error::NotFound)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Ends the sessions of a device that is to be deleted, and sends other members what it has not confirmed. The deletion
/// removes its inbox, and with it what no leader has taken back.
pub(super) async fn release(delivery: &Arc<Delivery>, app: AppId, device: &DeviceId) -> Result<(), Error> {
    let mut groups = groups_of(delivery, app, device).await?;
    if groups.is_empty() {
        return Ok(());
    }
    // It is not to come back meanwhile. What it has received with QoS 2 is known once its connection has ended.
    delivery.revoke_tokens(app, device).await?;
    let until = Instant::now() + PARTING;
    while groups.iter().any(|(_, member)| member.state == MemberState::Here) && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
        groups = groups_of(delivery, app, device).await?;
    }
    let copies = copy::in_inbox(delivery, app, device).await?;
    for (group, member) in &groups {
        let of_group = copies.iter().filter(|(_, copy)| copy.share == group.share);
        let mut others = VecDeque::from(others(group, member.num));
        for (message, copy) in of_group {
            let has_ended = ShareMember { state: MemberState::Ended, ..member.clone() };
            if fate(&has_ended, message.id, copy, false) == Fate::Moves {
                send_to_one(delivery, group, message, &mut others).await?;
            }
        }
    }
    Ok(())
}

/// Sends a copy to the first of these devices that is there, and puts that one behind the others.
async fn send_to_one(
    delivery: &Arc<Delivery>,
    group: &Group,
    message: &Message,
    devices: &mut VecDeque<&DeviceId>,
) -> Result<(), Error> {
    let mut turn = copy::turn_of(message);
    while let Some(to) = devices.front() {
        let sent = copy::send(delivery, (group.of.num, &group.share), message, turn, to).await?;
        if sent != Sent::NoDevice {
            delivery.shares.metrics.moved.inc();
            devices.rotate_left(1);
            return Ok(());
        }
        devices.pop_front();
        turn = turn.saturating_add(1);
    }
    Ok(())
}

async fn groups_of(
    delivery: &Delivery,
    app: AppId,
    device: &DeviceId,
) -> Result<Vec<(Group, ShareMember)>, Error> {
    let groups = delivery.store.share_groups().await?;
    let with_member = groups.into_iter().filter(|group| group.app == app).filter_map(|group| {
        let member = group.members.iter().find(|member| member.device.as_ref() == Some(device))?.clone();
        Some((Group::new(group, None), member))
    });
    Ok(with_member.collect())
}

/// Who can take what a member leaves: those that are connected, else those that come back.
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
