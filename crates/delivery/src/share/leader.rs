//! The leader's task: reads groups and members, assigns what the logs hold behind each group's place, and takes back what
//! members left.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use noroshi_protocol::mqtt::ShareCopy;
use noroshi_store::{Leave, LeaveShares, LogPage, MemberState, Outstanding, Place, ShareMember, ShareNum};
use noroshi_types::{AppId, DeviceId, DeviceNum, Message, limits};

use super::copy;
use super::group::{Group, Rooms};
use crate::delivery::{Delivery, Error};
use crate::edge::GENERATION_BITS;
use crate::push::lead;

/// The task's name in the store, how long one node leads it without a word, and how often it says so.
const TASK: &str = "shares";
const LEASE: Duration = Duration::from_secs(6);
const RENEW: Duration = Duration::from_secs(2);
/// Between two looks where nothing wakes the task. Connections of members are looked for as often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Groups and members are read when they change, which another node may have failed to tell.
const READ: Duration = Duration::from_secs(5);
/// After they were read, so many times as long passes before they are read again: many that join at once make few reads.
const PAUSES: u32 = 4;
/// Between two looks while members have no room; confirmations at this node wake the task.
const RETRY: Duration = Duration::from_millis(100);
/// Between two writes of how far groups are, while messages come.
const SAVE: Duration = Duration::from_millis(200);
/// A member whose node says nothing of its connection's end, and who is not connected, is gone after this.
const UNSEEN: Duration = Duration::from_secs(5);
/// Between two looks at what members left that nobody could take.
const RECLAIM: Duration = Duration::from_millis(500);
/// Log rows that one read looks at, and reads for a group in one turn.
const PAGE_ROWS: usize = 256;
const PAGES: usize = 4;
/// Inboxes that are read in one turn to take back what is in them.
const INBOXES: usize = 64;
/// Copies that are written at once.
const AT_ONCE: usize = 64;

/// Until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>) {
    let mut leader = Leader::new(lead::draw());
    let mut pause = INTERVAL;
    loop {
        let _ = tokio::time::timeout(pause, delivery.shares.woken.notified()).await;
        // Without connections there are no members to find, and no messages pass.
        if delivery.edge().is_none() {
            continue;
        }
        pause = leader.turn(delivery).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "shared subscriptions were not looked after; trying again");
            INTERVAL
        });
    }
}

/// What a member has that it does not need to keep.
enum Leftover {
    Nothing,
    /// It is still confirming what it had when it unsubscribed.
    Held,
    /// Nobody can take it now.
    NoRoom,
}

/// Where a turn's log pages begin. Groups that are equally far read the same.
type Pages = HashMap<(AppId, Place), Arc<LogPage>>;

struct Leader {
    holder: u64,
    /// When this node asked last, and was told that it leads.
    led: Option<Instant>,
    refreshed: Option<Instant>,
    not_before: Instant,
    /// When this node looked for members' connections.
    looked: Option<Instant>,
    groups: Vec<Group>,
    connected: HashSet<DeviceNum>,
    /// Members that should be connected and are not, and since when.
    unseen: HashMap<DeviceNum, Instant>,
    rooms: Rooms,
    /// Members without a connection that have nothing to give back.
    clean: HashSet<(ShareNum, DeviceNum, u64)>,
    reclaimed: Option<Instant>,
    /// As far as the store knows.
    saved: HashMap<ShareNum, Place>,
    saved_at: Option<Instant>,
}

impl Leader {
    fn new(holder: u64) -> Self {
        Self {
            holder,
            led: None,
            refreshed: None,
            not_before: Instant::now(),
            looked: None,
            groups: Vec::new(),
            connected: HashSet::new(),
            unseen: HashMap::new(),
            rooms: Rooms::default(),
            clean: HashSet::new(),
            reclaimed: None,
            saved: HashMap::new(),
            saved_at: None,
        }
    }

    /// How long to wait if nothing wakes the task.
    async fn turn(&mut self, delivery: &Arc<Delivery>) -> Result<Duration, Error> {
        let now = Instant::now();
        if self.not_before > now && delivery.shares.is_changed() {
            tokio::time::sleep_until(self.not_before.into()).await;
        }
        let changed = delivery.shares.take_changed();
        if changed || self.refreshed.is_none_or(|at| now - at >= READ) {
            if let Err(error) = self.refresh(delivery).await {
                delivery.shares.look_again();
                return Err(error);
            }
            self.refreshed = Some(now);
            self.not_before = Instant::now() + now.elapsed() * PAUSES;
        }
        let live = delivery.shares.take_live();
        if self.groups.is_empty() || !self.leads(delivery).await? {
            return Ok(INTERVAL);
        }
        if changed || self.looked.is_none_or(|at| now - at >= INTERVAL) {
            self.look_for_members(delivery).await;
            self.looked = Some(now);
        }
        if changed || self.reclaimed.is_none_or(|at| now - at >= RECLAIM) {
            self.reclaim(delivery).await?;
            self.reclaimed = Some(now);
        }
        for message in live {
            self.assign_live(delivery, &message).await;
        }
        let waits = self.assign(delivery).await;
        self.save(delivery, Vec::new()).await?;
        let waits = waits?;
        delivery.shares.metrics.waiting.set(i64::try_from(waits).unwrap_or(i64::MAX));
        delivery.shares.waits.store(waits > 0, Ordering::Relaxed);
        Ok(match (waits, self.is_saved()) {
            (0, true) => INTERVAL,
            (0, false) => SAVE,
            _ => RETRY,
        })
    }

    async fn leads(&mut self, delivery: &Delivery) -> Result<bool, Error> {
        if self.led.is_some_and(|at| at.elapsed() < RENEW) {
            return Ok(true);
        }
        let led = self.led.take().is_some_and(|at| at.elapsed() < LEASE);
        let asked = Instant::now();
        if !delivery.store.lead(TASK, self.holder, LEASE).await? {
            return Ok(false);
        }
        if !led {
            // Another may have led meanwhile.
            (self.rooms, self.clean, self.looked) = (Rooms::default(), HashSet::new(), None);
        }
        self.led = Some(asked);
        Ok(true)
    }

    /// Reads groups and members.
    async fn refresh(&mut self, delivery: &Arc<Delivery>) -> Result<(), Error> {
        let groups = delivery.store.share_groups().await?;
        let before: HashMap<ShareNum, Group> =
            self.groups.drain(..).map(|group| (group.of.num, group)).collect();
        self.saved = groups.iter().map(|group| (group.num, group.since)).collect();
        self.groups = groups
            .into_iter()
            .map(|of| {
                let before = before.get(&of.num);
                Group::new(of, before)
            })
            .collect();
        delivery.shares.know(self.groups.iter().map(|group| group.of.app).collect());
        delivery.shares.metrics.groups.set(i64::try_from(self.groups.len()).unwrap_or(i64::MAX));
        let members = || self.groups.iter().flat_map(|group| &group.of.members);
        let devices: HashSet<DeviceNum> = members().map(|member| member.num).collect();
        self.rooms.retain(&devices);
        let known: HashSet<_> = self
            .groups
            .iter()
            .flat_map(|group| {
                group.of.members.iter().map(|member| (group.of.num, member.num, member.generation))
            })
            .collect();
        self.clean.retain(|clean| known.contains(clean));
        Ok(())
    }

    /// Finds out who is connected, and gives up members that should be and are not.
    async fn look_for_members(&mut self, delivery: &Arc<Delivery>) {
        let mut by_app: HashMap<AppId, HashMap<DeviceNum, DeviceId>> = HashMap::new();
        for group in &self.groups {
            let members = group.of.members.iter();
            let of_app = by_app.entry(group.of.app).or_default();
            of_app.extend(members.filter_map(|member| Some((member.num, member.device.clone()?))));
        }
        self.connected.clear();
        for (app, members) in by_app {
            let (nums, devices): (Vec<DeviceNum>, Vec<DeviceId>) = members.into_iter().unzip();
            let sessions = delivery.device_sessions(app, &devices).await;
            self.connected
                .extend(nums.into_iter().zip(sessions).filter_map(|(num, session)| session.map(|_| num)));
        }
        let mut gone = Vec::new();
        let mut unseen = HashMap::new();
        for group in &self.groups {
            let here = group.of.members.iter().filter(|member| member.state == MemberState::Here);
            for member in here.filter(|member| !self.connected.contains(&member.num)) {
                let since = *self.unseen.get(&member.num).unwrap_or(&Instant::now());
                if unseen.insert(member.num, since).is_none() && since.elapsed() >= UNSEEN {
                    gone.push((group.of.app, member.clone()));
                }
            }
        }
        self.unseen = unseen;
        for (app, member) in gone {
            self.give_up(delivery, app, &member).await;
        }
    }

    /// Its node was killed: nobody told of the end of its connection.
    async fn give_up(&mut self, delivery: &Arc<Delivery>, app: AppId, member: &ShareMember) {
        // It logged in after this leader looked, perhaps.
        let logged_in_ms = member.generation >> GENERATION_BITS;
        let age = delivery.clock().now().0.saturating_sub(logged_in_ms);
        if u128::from(age) < UNSEEN.as_millis() {
            return;
        }
        let what = if member.lasts { Leave::Connection } else { Leave::Session };
        let leave = LeaveShares { device: member.num, generation: member.generation, what, held: Vec::new() };
        if let Err(error) = delivery.leave_shares(app, leave).await {
            tracing::debug!(%error, "a member of a shared subscription that is gone stays for now");
        }
    }

    /// What is not stored goes to who is connected now.
    async fn assign_live(&mut self, delivery: &Arc<Delivery>, message: &Arc<Message>) {
        let Some(topic) = message.topic.as_ref() else { return };
        let connected = &self.connected;
        let groups = self.groups.iter_mut().filter(|group| group.of.app == message.app);
        for group in groups.filter(|group| group.matches(topic.topic.as_str())) {
            let num = group.of.num;
            let share = group.share.clone();
            let to = group.next(connected, None).and_then(|member| member.device.clone());
            let sent = match &to {
                Some(to) => {
                    copy::send(delivery, num, &share, message, to).await.is_ok_and(|sent| sent.is_some())
                }
                None => false,
            };
            match sent {
                true => delivery.shares.metrics.assigned.inc(),
                false => delivery.shares.metrics.dropped.inc(),
            };
        }
    }

    /// Assigns what the logs hold. How many groups have something to assign and nobody with room.
    async fn assign(&mut self, delivery: &Arc<Delivery>) -> Result<usize, Error> {
        let mut waits = 0;
        let mut pages = Pages::new();
        for at in 0..self.groups.len() {
            if self.groups[at].has_members(&self.connected) {
                self.look_for_room(delivery, at).await?;
                waits += usize::from(self.assign_group(delivery, at, &mut pages).await?);
            }
        }
        Ok(waits)
    }

    /// Looks at what members confirmed since they got it.
    async fn look_for_room(&mut self, delivery: &Delivery, at: usize) -> Result<(), Error> {
        let group = &self.groups[at];
        let now = delivery.clock().now();
        for member in group.of.members.iter().filter(|member| self.connected.contains(&member.num)) {
            let Some(ids) = self.rooms.worth_a_look(member.num) else { continue };
            let asked = Outstanding { app: group.of.app, device: member.num, ids: ids.to_vec(), now };
            let left = delivery.store.outstanding(asked).await?;
            self.rooms.set(member.num, left.iter().map(|message| message.id).collect());
        }
        Ok(())
    }

    /// True if a message found no member with room.
    async fn assign_group(
        &mut self,
        delivery: &Arc<Delivery>,
        at: usize,
        pages: &mut Pages,
    ) -> Result<bool, Error> {
        for _ in 0..PAGES {
            let (app, since) = (self.groups[at].of.app, self.groups[at].since);
            let page = match pages.get(&(app, since)) {
                Some(page) => page.clone(),
                None => {
                    let now = delivery.clock().now();
                    let page = Arc::new(delivery.store.log_page(app, since, PAGE_ROWS, now).await?);
                    pages.insert((app, since), page.clone());
                    page
                }
            };
            for messages in page.messages.chunks(AT_ONCE) {
                if !self.assign_some(delivery, at, messages).await? {
                    return Ok(true);
                }
            }
            let group = &mut self.groups[at];
            match page.next {
                Some(next) => group.since = group.since.max(next),
                None => return Ok(false),
            }
        }
        // There is more: the others take their turn before.
        delivery.shares.woken.notify_one();
        Ok(false)
    }

    /// False if one of them found no member with room. The group's place is behind what was assigned.
    async fn assign_some(
        &mut self,
        delivery: &Arc<Delivery>,
        at: usize,
        messages: &[Arc<Message>],
    ) -> Result<bool, Error> {
        let group = &mut self.groups[at];
        let (num, share) = (group.of.num, group.share.clone());
        let mut chosen: Vec<(&Arc<Message>, DeviceNum, DeviceId)> = Vec::new();
        let mut behind = group.since;
        let mut found_all = true;
        for message in messages {
            let topic = message.topic.as_ref().map_or("", |place| place.topic.as_str());
            if group.matches(topic) {
                let Some(member) = group.next(&self.connected, Some(&self.rooms)) else {
                    found_all = false;
                    break;
                };
                let Some(device) = member.device.clone() else { break };
                // Its place among the unconfirmed ones, until its id is known.
                self.rooms.add(member.num, message.id);
                chosen.push((message, member.num, device));
            }
            behind = Place::of(message.id);
        }
        let sends =
            chosen.iter().map(|(message, _, device)| copy::send(delivery, num, &share, message, device));
        let results = join_all(sends).await;
        for ((message, device, _), result) in chosen.iter().zip(&results) {
            let sent = result.as_ref().ok().copied().flatten();
            self.rooms.replace(*device, message.id, sent);
        }
        for ((message, ..), result) in chosen.iter().zip(results) {
            match result {
                Ok(Some(_)) => drop(delivery.shares.metrics.assigned.inc()),
                Ok(None) => {}
                Err(error) => {
                    // Those behind it that were sent are found by their keys when they are sent again.
                    let before = messages.iter().take_while(|one| one.id != message.id).last();
                    let before = before.map_or(self.groups[at].since, |one| Place::of(one.id));
                    self.groups[at].since = self.groups[at].since.max(before);
                    return Err(error);
                }
            }
        }
        self.groups[at].since = self.groups[at].since.max(behind);
        Ok(found_all)
    }

    /// Takes back what members without a connection did not confirm, and ends memberships of which nothing is left. At most
    /// [`INBOXES`] inboxes are read.
    async fn reclaim(&mut self, delivery: &Arc<Delivery>) -> Result<(), Error> {
        let (mut over, mut read) = (Vec::new(), 0);
        for at in 0..self.groups.len() {
            let group = &self.groups[at];
            let (num, is_alive) = (group.of.num, group.is_alive());
            if is_alive && !group.has_members(&self.connected) {
                continue; // nobody could take it
            }
            for member in group.of.members.clone() {
                let mark = (num, member.num, member.generation);
                let is_here = member.state == MemberState::Here && member.device.is_some();
                if is_here || read >= INBOXES || self.clean.contains(&mark) {
                    continue;
                }
                read += 1;
                match self.take_back(delivery, at, &member, is_alive).await? {
                    Leftover::Nothing if member.state == MemberState::Away && member.device.is_some() => {
                        self.clean.insert(mark);
                    }
                    Leftover::Nothing => over.push((num, member.num)),
                    Leftover::Held => {}
                    Leftover::NoRoom => break,
                }
            }
        }
        if !over.is_empty() {
            self.save(delivery, over).await?;
        }
        if read >= INBOXES {
            delivery.shares.look_again();
        }
        Ok(())
    }

    async fn take_back(
        &mut self,
        delivery: &Arc<Delivery>,
        at: usize,
        member: &ShareMember,
        is_alive: bool,
    ) -> Result<Leftover, Error> {
        // What was in its inbox went with it.
        let Some(device) = &member.device else { return Ok(Leftover::Nothing) };
        let group = &mut self.groups[at];
        let (app, num, share) = (group.of.app, group.of.num, group.share.clone());
        let now = delivery.clock().now();
        let (messages, _) = delivery.store.inbox(app, device, limits::INBOX_PAGE_MAX, now).await?;
        let is_connected = self.connected.contains(&member.num);
        let mut left = Leftover::Nothing;
        for message in messages {
            let Some(copy) = ShareCopy::of(&message).filter(|copy| copy.share == share) else { continue };
            let is_held = member.held.contains(&message.id);
            if is_held && member.state == MemberState::Away {
                continue; // its own, when it comes back
            }
            if is_held && is_connected {
                left = Leftover::Held;
                continue;
            }
            let is_exactly_once = is_held && member.qos.min(copy.qos as u8) == 2;
            if is_alive && !is_exactly_once {
                let next = group.next(&self.connected, Some(&self.rooms));
                let Some((next, to)) = next.and_then(|member| Some((member.num, member.device.clone()?)))
                else {
                    return Ok(Leftover::NoRoom);
                };
                if let Some(id) = copy::send(delivery, num, &share, &message, &to).await? {
                    self.rooms.add(next, id);
                    delivery.shares.metrics.moved.inc();
                }
            }
            match delivery.cancel(app, message.id).await {
                Ok(_) | Err(Error::Store(noroshi_store::Error::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(left)
    }

    fn is_saved(&self) -> bool {
        self.groups.iter().all(|group| self.saved.get(&group.of.num) == Some(&group.since))
    }

    /// Writes how far groups are, if it is time, and ends memberships.
    async fn save(&mut self, delivery: &Delivery, over: Vec<(ShareNum, DeviceNum)>) -> Result<(), Error> {
        let is_due = self.saved_at.is_none_or(|at| at.elapsed() >= SAVE);
        if over.is_empty() && (!is_due || self.is_saved()) {
            return Ok(());
        }
        let moved = self.groups.iter().filter(|group| self.saved.get(&group.of.num) != Some(&group.since));
        let since: Vec<_> = moved.map(|group| (group.of.num, group.since)).collect();
        delivery.store.settle_shares(since.clone(), over).await?;
        self.saved.extend(since);
        self.saved_at = Some(Instant::now());
        Ok(())
    }
}
