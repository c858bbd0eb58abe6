//! Shared subscriptions (MQTT 5 §4.8.2): each message of a group's topics goes to one of the group's members.
//!
//! ```text
//!   a topic's message ──► topic log ──► the leader reads on from the group's place, and assigns
//!                                         │
//!                                         ▼
//!                         a copy, sent to one member: inbox, acknowledgement, trace as of any message to a device
//! ```
//!
//! One node leads, for all groups of all apps (the task `shares`). It takes connected members in turn and passes over those
//! that have too many unconfirmed copies. If there is no other it waits: the log keeps what is not assigned. What a member
//! that disconnected has not confirmed goes to another member, except what the member may have received with QoS 2
//! ([MQTT-4.8.2-5]). A message that is not `stored` goes to a member that is connected now, or to nobody.
//!
//! Reading order: `group` (who is next, what becomes of a copy; pure), `copy` (what is sent), `takers` (who is connected and
//! has room), `assign`, `reclaim`, `leader`.
//!
//! Nothing is lost or assigned twice by a crash: a copy has an idempotency key of the group, the message and the turn, and a
//! group's place moves only behind what was assigned. A message goes to a second member before the first one's copy is
//! cancelled, so a member that comes back at this moment may get it too.

mod assign;
mod copy;
mod group;
mod leader;
pub(crate) mod metrics;
mod reclaim;
mod takers;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use noroshi_store::{JoinShares, LeaveShares};
use noroshi_types::{AppId, DeviceId, Message, Target, When};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::delivery::{Delivery, Error};

pub(crate) use leader::run;

/// Messages that are not stored and wait for the leader, and of those the messages of one app.
const LIVE_MAX: usize = 4_096;
const LIVE_OF_APP_MAX: usize = 1_024;

/// What the rest of the node tells the leader's task.
pub(crate) struct Shares {
    woken: Notify,
    /// Groups or members are not as they were read last.
    changed: AtomicBool,
    /// Messages wait for confirmations.
    waits: AtomicBool,
    /// Another node leads.
    follows: AtomicBool,
    /// Those that have groups, as far as this node knows. `None`: not read yet.
    apps: ArcSwapOption<HashSet<AppId>>,
    /// Guards only itself.
    waiting: Mutex<Waiting>,
    pub(crate) metrics: metrics::Metrics,
}

#[derive(Default)]
struct Waiting {
    live: VecDeque<Arc<Message>>,
    /// How many of them each app has.
    live_of: HashMap<AppId, usize>,
    /// Their groups may have something to assign.
    touched: HashSet<AppId>,
}

impl Waiting {
    fn has_room(&self, app: AppId) -> bool {
        self.live.len() < LIVE_MAX && self.live_of.get(&app).is_none_or(|count| *count < LIVE_OF_APP_MAX)
    }
}

impl Shares {
    pub(crate) fn new(metrics: metrics::Metrics) -> Self {
        Self {
            woken: Notify::new(),
            changed: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            follows: AtomicBool::new(false),
            apps: ArcSwapOption::empty(),
            waiting: Mutex::default(),
            metrics,
        }
    }

    /// A message goes to this node's connections. Called on the store's thread.
    pub(crate) fn passed(&self, message: &Arc<Message>, target: &Target) {
        let is_shared = matches!(target, Target::Topic(_)) && self.has(message.app);
        if !is_shared || self.follows.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = self.waiting.lock();
        if message.when == When::Stored {
            waiting.touched.insert(message.app);
        } else if waiting.has_room(message.app) {
            waiting.live.push_back(message.clone());
            *waiting.live_of.entry(message.app).or_default() += 1;
        } else {
            drop(waiting);
            self.metrics.dropped.inc();
            return;
        }
        drop(waiting);
        self.woken.notify_one();
    }

    /// Devices confirmed something.
    pub(crate) fn confirmed(&self) {
        if self.waits.load(Ordering::Relaxed) {
            self.woken.notify_one();
        }
    }

    /// Groups of the app or their members changed, at this node or another.
    pub(crate) fn changed(&self, app: AppId) {
        if !self.has(app) {
            self.apps.rcu(|apps| {
                let apps = apps.as_ref()?;
                Some(Arc::new(apps.iter().copied().chain([app]).collect::<HashSet<AppId>>()))
            });
        }
        self.look_again();
    }

    /// Before the first read every app may have groups.
    fn has(&self, app: AppId) -> bool {
        self.apps.load().as_ref().is_none_or(|apps| apps.contains(&app))
    }

    fn look_again(&self) {
        self.changed.store(true, Ordering::Release);
        self.woken.notify_one();
    }

    fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    fn know(&self, apps: HashSet<AppId>) {
        if self.apps.load().as_deref() != Some(&apps) {
            self.apps.store(Some(Arc::new(apps)));
        }
    }

    fn take_waiting(&self) -> (VecDeque<Arc<Message>>, HashSet<AppId>) {
        let Waiting { live, touched, .. } = std::mem::take(&mut *self.waiting.lock());
        (live, touched)
    }
}

impl Delivery {
    /// A connection subscribes to shares: what is published from now on is for it and its fellow members.
    pub async fn join_shares(&self, join: JoinShares) -> Result<(), Error> {
        let app = join.app;
        self.store.join_shares(join).await?;
        self.shares_changed(app).await;
        Ok(())
    }

    /// A device unsubscribes from shares, or its connection or session ends.
    pub async fn leave_shares(&self, app: AppId, leave: LeaveShares) -> Result<(), Error> {
        if self.store.leave_shares(leave).await? {
            self.shares_changed(app).await;
        }
        Ok(())
    }

    /// Whether devices of the app share subscriptions, as far as this node knows: it may lag by seconds if another node could
    /// not report the change.
    pub fn has_shares(&self, app: AppId) -> bool {
        self.shares.has(app)
    }

    /// Before a device is deleted, other members get what it has not confirmed.
    pub(crate) async fn release_shares(self: &Arc<Self>, app: AppId, device: &DeviceId) -> Result<(), Error> {
        match self.has_shares(app) {
            true => reclaim::release(self, app, device).await,
            false => Ok(()),
        }
    }

    async fn shares_changed(&self, app: AppId) {
        self.shares.changed(app);
        if let Some(peers) = self.peers() {
            peers.tell_now(To::Gateways, Record::SharesChanged { app }).await;
        }
    }
}
