//! The leader's task: reads groups and members, and gives each group its turn.
//!
//! Every node reads the groups, since a node tells the store of its own connections. Only the leader assigns.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use noroshi_store::{MemberState, Place, SettleShares, ShareNum};
use noroshi_types::{AppId, DeviceId, DeviceNum};

use super::assign::{self, Pages};
use super::group::{Group, Progress};
use super::reclaim::Reclaim;
use super::takers::Takers;
use crate::delivery::{Delivery, Error};
use crate::push::lead;

/// The task's name in the store, how long one node leads it without a word, and how often a node asks.
const TASK: &str = "shares";
const LEASE: Duration = Duration::from_secs(6);
const RENEW: Duration = Duration::from_secs(2);
/// Between two looks where nothing wakes the task, at all groups and at the connections of members.
const INTERVAL: Duration = Duration::from_secs(1);
/// Groups and members are read when they change, which another node may have failed to tell.
const READ: Duration = Duration::from_secs(5);
/// The leader waits this many times the duration of the last read before the next one, so that a burst of joins causes few
/// reads.
const PAUSES: u32 = 4;
/// Between two looks while members have no room; confirmations at this node wake the task.
const RETRY: Duration = Duration::from_millis(100);
/// Between two writes of how far groups are, while messages come.
const SAVE: Duration = Duration::from_millis(200);
/// Between two looks at what members left that nobody could take.
const RECLAIM: Duration = Duration::from_millis(500);
/// Groups between two questions whether this node still leads.
const LEADS_EVERY: usize = 16;

/// Until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>) {
    let mut leader = Leader::new(lead::draw(), Takers::new(delivery.store.inbox_rows()));
    let mut pause = INTERVAL;
    loop {
        let _ = tokio::time::timeout(pause, delivery.shares.woken.notified()).await;
        // Without connections there are no members to find, and no messages pass.
        if delivery.edge().is_none() {
            drop(delivery.shares.take_waiting());
            continue;
        }
        pause = leader.turn(delivery).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not assign messages of shared subscriptions; retrying");
            INTERVAL
        });
    }
}

struct Leader {
    holder: u64,
    /// When this node asked last, and whether it was told that it leads.
    asked: Option<(Instant, bool)>,
    read: Option<Instant>,
    /// When groups may be read again, and connections looked for.
    next_read: Instant,
    next_look: Instant,
    looked: Option<Instant>,
    /// Groups were read that changed, and connections not looked for since.
    wants_look: bool,
    groups: Vec<Group>,
    takers: Takers,
    reclaim: Reclaim,
    reclaimed: Option<Instant>,
    /// When every group had its turn.
    went_round: Option<Instant>,
    /// The group that is assigned to first: the one that found nothing left to count in the last turn.
    from: usize,
    /// As far as the store knows.
    saved: HashMap<ShareNum, Place>,
    saved_at: Option<Instant>,
}

impl Leader {
    fn new(holder: u64, takers: Takers) -> Self {
        let now = Instant::now();
        Self {
            holder,
            asked: None,
            read: None,
            next_read: now,
            next_look: now,
            looked: None,
            wants_look: false,
            groups: Vec::new(),
            takers,
            reclaim: Reclaim::default(),
            reclaimed: None,
            went_round: None,
            from: 0,
            saved: HashMap::new(),
            saved_at: None,
        }
    }

    /// How long to wait if nothing wakes the task.
    async fn turn(&mut self, delivery: &Arc<Delivery>) -> Result<Duration, Error> {
        // Before groups are read: a message that waits may be for one that is new.
        let (live, touched) = delivery.shares.take_waiting();
        let ready = self.prepare(delivery).await;
        let Ok(Some(changed)) = ready else {
            // Before the first read messages of apps without groups wait too.
            if !self.groups.is_empty() {
                delivery.shares.metrics.dropped.inc_by(live.len() as u64);
            }
            return ready.map(|_| self.until_read(delivery, INTERVAL));
        };
        let now = Instant::now();
        self.takers.begin_turn();
        let mut result = Ok(());
        if changed || self.reclaimed.is_none_or(|at| now - at >= RECLAIM) {
            self.reclaimed = Some(now);
            result = self.reclaim(delivery).await;
        }
        self.takers.begin_turn();
        for message in live {
            assign::live(delivery, &self.takers, &mut self.groups, &message).await;
        }
        let is_round = changed || self.went_round.is_none_or(|at| now - at >= INTERVAL);
        if is_round {
            self.went_round = Some(now);
        }
        result = result.and(self.assign(delivery, |app| is_round || touched.contains(&app)).await);
        let blocked = self.groups.iter().filter(|group| group.progress == Progress::Blocked).count();
        delivery.shares.metrics.waiting.set(i64::try_from(blocked).unwrap_or(i64::MAX));
        delivery.shares.waits.store(blocked > 0, Ordering::Relaxed);
        self.save(delivery, Vec::new()).await?;
        if let Err(error) = result {
            tracing::warn!(%error, "could not assign messages of some shared subscriptions; retrying");
        }
        let pause = match (blocked, self.is_saved()) {
            (0, true) => INTERVAL,
            (0, false) => SAVE,
            _ => RETRY,
        };
        Ok(self.until_read(delivery, pause))
    }

    /// Reads groups and looks for connections, as far as it is time. None if there is nothing to do for this node, else
    /// whether groups changed.
    async fn prepare(&mut self, delivery: &Arc<Delivery>) -> Result<Option<bool>, Error> {
        let changed = self.read(delivery).await?;
        self.wants_look |= changed;
        if self.groups.is_empty() || !self.leads(delivery).await? {
            return Ok(None);
        }
        self.look(delivery).await;
        // Nodes that do not answer may have taken a while.
        Ok(self.leads(delivery).await?.then_some(changed))
    }

    /// A pause that ends when groups may be read that changed, or connections looked for.
    fn until_read(&self, delivery: &Delivery, pause: Duration) -> Duration {
        let now = Instant::now();
        let read = delivery.shares.is_changed().then(|| self.next_read.saturating_duration_since(now));
        let look = self.wants_look.then(|| self.next_look.saturating_duration_since(now));
        read.into_iter().chain(look).fold(pause, Duration::min)
    }

    /// Looks for connections of members, if groups changed or it is time.
    async fn look(&mut self, delivery: &Arc<Delivery>) {
        let now = Instant::now();
        let is_due = self.wants_look || self.looked.is_none_or(|at| now - at >= INTERVAL);
        if is_due && self.next_look <= now {
            self.takers.look(delivery, &self.groups).await;
            (self.wants_look, self.looked) = (false, Some(now));
            self.next_look = Instant::now() + now.elapsed() * PAUSES;
        }
    }

    async fn leads(&mut self, delivery: &Delivery) -> Result<bool, Error> {
        if let Some((at, led)) = self.asked
            && at.elapsed() < RENEW
        {
            return Ok(led);
        }
        let led = self.asked.take().is_some_and(|(at, led)| led && at.elapsed() < LEASE);
        let asked = Instant::now();
        let leads = delivery.store.lead(TASK, self.holder, LEASE).await?;
        if leads && !led {
            // Another may have led meanwhile.
            self.takers = Takers::new(delivery.store.inbox_rows());
            (self.reclaim, self.wants_look) = (Reclaim::default(), true);
        }
        self.asked = Some((asked, leads));
        delivery.shares.follows.store(!leads, Ordering::Relaxed);
        Ok(leads)
    }

    /// Reads groups and members, if they changed. True if they did, as far as this node was told.
    async fn read(&mut self, delivery: &Arc<Delivery>) -> Result<bool, Error> {
        let now = Instant::now();
        // Meanwhile the groups that are known go on.
        if self.next_read > now {
            return Ok(false);
        }
        let changed = delivery.shares.take_changed();
        if !changed && self.read.is_some_and(|at| at.elapsed() < READ) {
            return Ok(false);
        }
        if let Err(error) = self.refresh(delivery).await {
            delivery.shares.look_again();
            return Err(error);
        }
        self.read = Some(now);
        self.next_read = Instant::now() + now.elapsed() * PAUSES;
        Ok(changed)
    }

    async fn refresh(&mut self, delivery: &Arc<Delivery>) -> Result<(), Error> {
        let groups = delivery.store.share_groups().await?;
        let before: HashMap<ShareNum, Group> =
            self.groups.drain(..).map(|group| (group.of.num, group)).collect();
        self.saved = groups.iter().map(|group| (group.num, group.since)).collect();
        let group = |of: noroshi_store::ShareGroup| {
            let before = before.get(&of.num);
            Group::new(of, before)
        };
        self.groups = groups.into_iter().map(group).collect();
        delivery.shares.know(self.groups.iter().map(|group| group.of.app).collect());
        delivery.shares.metrics.groups.set(i64::try_from(self.groups.len()).unwrap_or(i64::MAX));
        let members = self.groups.iter().flat_map(|group| &group.of.members);
        let devices: HashSet<DeviceNum> = members.map(|member| member.num).collect();
        self.takers.retain(&devices);
        self.reclaim.retain(&self.groups);
        self.report_open(delivery).await
    }

    /// Members of this node that another node gave up, although their connections are open.
    async fn report_open(&self, delivery: &Delivery) -> Result<(), Error> {
        let mut here: HashMap<AppId, Vec<(DeviceNum, u64)>> = HashMap::new();
        for group in &self.groups {
            let away = group.of.members.iter().filter(|member| member.state == MemberState::Away);
            let is_here = |device: &DeviceId, generation: u64| {
                delivery.generations_here(group.of.app, std::slice::from_ref(device)) == [generation]
            };
            let open = away.filter(|member| {
                member.device.as_ref().is_some_and(|device| is_here(device, member.generation))
            });
            let open: Vec<_> = open.map(|member| (member.num, member.generation)).collect();
            if !open.is_empty() {
                here.entry(group.of.app).or_default().extend(open);
            }
        }
        for (app, members) in here {
            if delivery.store.return_to_shares(members).await? {
                delivery.shares_changed(app).await;
            }
        }
        Ok(())
    }

    /// Gives groups their turn, all of them while they have more to assign. One that fails does not keep the others from it.
    async fn assign(
        &mut self,
        delivery: &Arc<Delivery>,
        is_due: impl Fn(AppId) -> bool,
    ) -> Result<(), Error> {
        let (mut pages, mut result, mut has_more) = (Pages::default(), Ok(()), false);
        let first = self.from.min(self.groups.len());
        let mut next = None;
        for (number, at) in (first..self.groups.len()).chain(0..first).enumerate() {
            if number % LEADS_EVERY == LEADS_EVERY - 1 && !self.leads(delivery).await? {
                return result;
            }
            let group = &mut self.groups[at];
            if !group.has_takers(self.takers.connected()) {
                group.progress = Progress::Done;
                continue;
            }
            if group.progress == Progress::Done && !is_due(group.of.app) {
                continue;
            }
            match assign::stored(delivery, &mut self.takers, group, &mut pages).await {
                Ok(progress) => group.progress = progress,
                Err(error) => {
                    group.progress = Progress::Done;
                    result = result.and(Err(error));
                }
            }
            has_more |= group.progress == Progress::More;
            if next.is_none() && !self.takers.may_count() {
                next = Some(at);
            }
        }
        self.from = next.unwrap_or(first);
        if has_more {
            delivery.shares.woken.notify_one();
        }
        result
    }

    /// Gives what members left to others, and ends memberships of which nothing is left.
    async fn reclaim(&mut self, delivery: &Arc<Delivery>) -> Result<(), Error> {
        let (done, result) = self.reclaim.turn(delivery, &mut self.takers, &mut self.groups).await;
        if !done.over.is_empty() {
            self.save(delivery, done.over).await?;
            delivery.shares.look_again();
        }
        if done.has_more {
            // The others take their turn before.
            self.reclaimed = None;
            delivery.shares.woken.notify_one();
        }
        result
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
        delivery.store.settle_shares(SettleShares { since: since.clone(), over }).await?;
        self.saved.extend(since);
        self.saved_at = Some(Instant::now());
        Ok(())
    }
}
