//! The leader's task: reads groups and members, and gives each group its turn.
//!
//! Every node reads the groups, because a node reports its own connections to the store. Only the leader assigns.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use noroshi_store::{MemberState, Place, SettleShares, ShareNum};
use noroshi_types::{AppId, DeviceId, DeviceNum};

use super::Shares;
use super::assignment::{self, Pages};
use super::group::{Group, Progress};
use super::members::Members;
use super::reclaim::Reclaim;
use crate::error::Error;
use crate::holder;

/// The task's name in the store, the time of its lease, and how often a node asks for it.
const TASK: &str = "shares";
const LEASE: Duration = Duration::from_secs(6);
const RENEW: Duration = Duration::from_secs(2);
/// The pause between two looks at all groups, and at the connections of members, if nothing wakes the task.
const INTERVAL: Duration = Duration::from_secs(1);
/// Groups and members are read when they change, and after this at the latest, since a report of another node may be
/// lost.
const READ: Duration = Duration::from_secs(5);
/// The leader waits this many times the duration of the last read before the next one, so that a burst of joins causes
/// few reads.
const PAUSES: u32 = 4;
/// The pause between two looks while members have no room. Acknowledgements on this node wake the task.
const RETRY: Duration = Duration::from_millis(100);
/// The pause between two writes of the groups' places.
const SAVE: Duration = Duration::from_millis(200);
/// The pause between two attempts to assign copies that no member could take.
const RECLAIM: Duration = Duration::from_millis(500);
/// Groups between two checks whether this node still leads.
const LEADS_EVERY: usize = 16;

/// Until it is dropped.
pub(crate) async fn run(shares: &Shares) {
    let mut leader = Leader::new(holder::draw(), Members::new(shares.context.store.inbox_rows()));
    let mut pause = INTERVAL;
    loop {
        let _ = tokio::time::timeout(pause, shares.feed.woken()).await;
        // Without connections there are no members to find, and no messages pass.
        if shares.context.edge().is_none() {
            drop(shares.feed.take());
            continue;
        }
        pause = leader.turn(shares).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not assign messages of shared subscriptions; retrying");
            INTERVAL
        });
    }
}

struct Leader {
    holder: u64,
    /// When this node last asked for the lease, and whether it got it.
    asked: Option<(Instant, bool)>,
    read: Option<Instant>,
    /// The earliest time of the next read of groups, and of the next look at connections.
    next_read: Instant,
    next_look: Instant,
    looked: Option<Instant>,
    /// Groups changed since the last look at connections.
    wants_look: bool,
    groups: Vec<Group>,
    members: Members,
    reclaim: Reclaim,
    reclaimed: Option<Instant>,
    /// When every group last had its turn.
    went_round: Option<Instant>,
    /// The group to start with: the first one that could not count members in the last turn.
    from: usize,
    /// The groups' places in the store.
    saved: HashMap<ShareNum, Place>,
    saved_at: Option<Instant>,
}

impl Leader {
    fn new(holder: u64, members: Members) -> Self {
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
            members,
            reclaim: Reclaim::default(),
            reclaimed: None,
            went_round: None,
            from: 0,
            saved: HashMap::new(),
            saved_at: None,
        }
    }

    /// One turn. Returns the pause until the next one, if nothing wakes the task.
    async fn turn(&mut self, shares: &Shares) -> Result<Duration, Error> {
        // Before groups are read: a pending message may be for a new group.
        let (live, touched) = shares.feed.take();
        let ready = self.prepare(shares).await;
        let Ok(Some(changed)) = ready else {
            // Before the first read, messages of apps without groups are pending as well.
            if !self.groups.is_empty() {
                shares.metrics.share_messages_dropped.inc_by(live.len() as u64);
            }
            return ready.map(|_| self.until_read(shares, INTERVAL));
        };
        let now = Instant::now();
        self.members.begin_turn();
        let mut result = Ok(());
        if changed || self.reclaimed.is_none_or(|at| now - at >= RECLAIM) {
            self.reclaimed = Some(now);
            result = self.reclaim(shares).await;
        }
        self.members.begin_turn();
        for message in live {
            assignment::live(shares, &self.members, &mut self.groups, &message).await;
        }
        let is_round = changed || self.went_round.is_none_or(|at| now - at >= INTERVAL);
        if is_round {
            self.went_round = Some(now);
        }
        result = result.and(self.assign(shares, |app| is_round || touched.contains(&app)).await);
        let blocked = self.groups.iter().filter(|group| group.progress == Progress::Blocked).count();
        shares.metrics.share_groups_waiting.set(i64::try_from(blocked).unwrap_or(i64::MAX));
        shares.feed.set_awaits_acks(blocked > 0);
        self.save(shares, Vec::new()).await?;
        if let Err(error) = result {
            tracing::warn!(%error, "could not assign messages of some shared subscriptions; retrying");
        }
        let pause = match (blocked, self.is_saved()) {
            (0, true) => INTERVAL,
            (0, false) => SAVE,
            _ => RETRY,
        };
        Ok(self.until_read(shares, pause))
    }

    /// Reads groups and looks at connections, if due. `None` if this node has nothing to do, otherwise whether groups
    /// changed.
    async fn prepare(&mut self, shares: &Shares) -> Result<Option<bool>, Error> {
        let changed = self.read(shares).await?;
        self.wants_look |= changed;
        if self.groups.is_empty() || !self.leads(shares).await? {
            return Ok(None);
        }
        self.look(shares).await;
        // The look may have waited for nodes that do not answer.
        Ok(self.leads(shares).await?.then_some(changed))
    }

    /// The pause, shortened to the next read of changed groups or look at connections.
    fn until_read(&self, shares: &Shares, pause: Duration) -> Duration {
        let now = Instant::now();
        let read = shares.feed.is_changed().then(|| self.next_read.saturating_duration_since(now));
        let look = self.wants_look.then(|| self.next_look.saturating_duration_since(now));
        read.into_iter().chain(look).fold(pause, Duration::min)
    }

    /// Looks at the connections of members, if groups changed or a look is due.
    async fn look(&mut self, shares: &Shares) {
        let now = Instant::now();
        let is_due = self.wants_look || self.looked.is_none_or(|at| now - at >= INTERVAL);
        if is_due && self.next_look <= now {
            self.members.look(shares, &self.groups).await;
            (self.wants_look, self.looked) = (false, Some(now));
            self.next_look = Instant::now() + now.elapsed() * PAUSES;
        }
    }

    async fn leads(&mut self, shares: &Shares) -> Result<bool, Error> {
        if let Some((at, led)) = self.asked
            && at.elapsed() < RENEW
        {
            return Ok(led);
        }
        let led = self.asked.take().is_some_and(|(at, led)| led && at.elapsed() < LEASE);
        let asked = Instant::now();
        let leads = shares.context.store.lead(TASK, self.holder, LEASE).await?;
        if leads && !led {
            // Another node may have led in the meantime.
            self.members = Members::new(shares.context.store.inbox_rows());
            (self.reclaim, self.wants_look) = (Reclaim::default(), true);
        }
        self.asked = Some((asked, leads));
        shares.feed.set_follows(!leads);
        Ok(leads)
    }

    /// Reads groups and members, if due. Returns whether a change was reported.
    async fn read(&mut self, shares: &Shares) -> Result<bool, Error> {
        let now = Instant::now();
        // Until then the known groups are used.
        if self.next_read > now {
            return Ok(false);
        }
        let changed = shares.feed.take_changed();
        if !changed && self.read.is_some_and(|at| at.elapsed() < READ) {
            return Ok(false);
        }
        if let Err(error) = self.refresh(shares).await {
            shares.feed.read_again();
            return Err(error);
        }
        self.read = Some(now);
        self.next_read = Instant::now() + now.elapsed() * PAUSES;
        Ok(changed)
    }

    async fn refresh(&mut self, shares: &Shares) -> Result<(), Error> {
        let groups = shares.context.store.share_groups().await?;
        let before: HashMap<ShareNum, Group> =
            self.groups.drain(..).map(|group| (group.of.num, group)).collect();
        self.saved = groups.iter().map(|group| (group.num, group.since)).collect();
        let group = |of: noroshi_store::ShareGroup| {
            let before = before.get(&of.num);
            Group::new(of, before)
        };
        self.groups = groups.into_iter().map(group).collect();
        shares.feed.set_apps(self.groups.iter().map(|group| group.of.app).collect());
        shares.metrics.share_groups.set(i64::try_from(self.groups.len()).unwrap_or(i64::MAX));
        let members = self.groups.iter().flat_map(|group| &group.of.members);
        let devices: HashSet<DeviceNum> = members.map(|member| member.num).collect();
        self.members.copies.retain(&devices);
        self.reclaim.retain(&self.groups);
        self.report_open(shares).await
    }

    /// Reports members with an open connection on this node that another node marked as away.
    async fn report_open(&self, shares: &Shares) -> Result<(), Error> {
        let mut here: HashMap<AppId, Vec<(DeviceNum, u64)>> = HashMap::new();
        for group in &self.groups {
            let away = group.of.members.iter().filter(|member| member.state == MemberState::Away);
            let is_here = |device: &DeviceId, generation: u64| {
                shares.context.local_generations(group.of.app, std::slice::from_ref(device)) == [generation]
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
            if shares.context.store.return_to_shares(members).await? {
                shares.changed(app).await;
            }
        }
        Ok(())
    }

    /// Gives each due group its turn, and all groups with more to assign. A group that fails does not stop the others.
    async fn assign(&mut self, shares: &Shares, is_due: impl Fn(AppId) -> bool) -> Result<(), Error> {
        let (mut pages, mut result, mut has_more) = (Pages::default(), Ok(()), false);
        let first = self.from.min(self.groups.len());
        let mut next = None;
        for (number, at) in (first..self.groups.len()).chain(0..first).enumerate() {
            if number % LEADS_EVERY == LEADS_EVERY - 1 && !self.leads(shares).await? {
                return result;
            }
            let group = &mut self.groups[at];
            if !group.has_candidates(&self.members.connected) {
                group.progress = Progress::Done;
                continue;
            }
            if group.progress == Progress::Done && !is_due(group.of.app) {
                continue;
            }
            match assignment::stored(shares, &mut self.members, group, &mut pages).await {
                Ok(progress) => group.progress = progress,
                Err(error) => {
                    group.progress = Progress::Done;
                    result = result.and(Err(error));
                }
            }
            has_more |= group.progress == Progress::More;
            if next.is_none() && !self.members.may_count() {
                next = Some(at);
            }
        }
        self.from = next.unwrap_or(first);
        if has_more {
            shares.feed.wake();
        }
        result
    }

    /// Reassigns copies of members that left, and ends memberships without remaining copies.
    async fn reclaim(&mut self, shares: &Shares) -> Result<(), Error> {
        let (done, result) = self.reclaim.turn(shares, &mut self.members, &mut self.groups).await;
        if !done.over.is_empty() {
            self.save(shares, done.over).await?;
            shares.feed.read_again();
        }
        if done.has_more {
            // The other groups have their turn first.
            self.reclaimed = None;
            shares.feed.wake();
        }
        result
    }

    fn is_saved(&self) -> bool {
        self.groups.iter().all(|group| self.saved.get(&group.of.num) == Some(&group.since))
    }

    /// Writes the groups' places, if due, and ends memberships.
    async fn save(&mut self, shares: &Shares, over: Vec<(ShareNum, DeviceNum)>) -> Result<(), Error> {
        let is_due = self.saved_at.is_none_or(|at| at.elapsed() >= SAVE);
        if over.is_empty() && (!is_due || self.is_saved()) {
            return Ok(());
        }
        let moved = self.groups.iter().filter(|group| self.saved.get(&group.of.num) != Some(&group.since));
        let since: Vec<_> = moved.map(|group| (group.of.num, group.since)).collect();
        shares.context.store.settle_shares(SettleShares { since: since.clone(), over }).await?;
        self.saved.extend(since);
        self.saved_at = Some(Instant::now());
        Ok(())
    }
}
