//! Shared subscriptions (MQTT 5 §4.8.2): each message of a group's topics goes to one of the group's members.
//!
//! ```text
//!   a topic's message ──► topic log ──► the leader reads on from the group's place, and assigns
//!                                         │
//!                                         ▼
//!                         a copy, sent to one member: inbox, acknowledgement, trace as of any message to a device
//! ```
//!
//! One node leads, for all groups of all apps (the task `shares`). It takes connected members in turn, passes over those
//! with [`group::UNCONFIRMED_MAX`] unconfirmed copies, and waits where there is no other: the log keeps what is not assigned. What
//! a member that disconnected has not confirmed goes to another member, except what it may have with QoS 2
//! ([MQTT-4.8.2-5]). What is not `stored` goes to a member that is connected now, or to nobody.
//!
//! Reading order: `group` (who is next; pure), `copy` (what is sent), `leader`.
//!
//! Nothing is lost or assigned twice by a crash: a copy has an idempotency key of the group, the message and the turn, and a
//! group's place moves only behind what was assigned. A message goes to a second member before the first one's copy is
//! cancelled, so a member that comes back at this moment may get it too.

mod copy;
mod group;
mod leader;
pub(crate) mod metrics;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use noroshi_store::{JoinShares, LeaveShares};
use noroshi_types::{AppId, Message, Target, When};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::delivery::{Delivery, Error};

pub(crate) use leader::run;

/// Messages that are not stored and wait for the leader.
const LIVE_MAX: usize = 4_096;

/// What the rest of the node tells the leader's task.
pub(crate) struct Shares {
    woken: Notify,
    /// Groups or members are not as they were read last.
    changed: AtomicBool,
    /// Messages wait for confirmations.
    waits: AtomicBool,
    /// Those that have groups, as far as this node knows.
    apps: ArcSwap<HashSet<AppId>>,
    /// Guards only the queue.
    live: Mutex<VecDeque<Arc<Message>>>,
    pub(crate) metrics: metrics::Metrics,
}

impl Shares {
    pub(crate) fn new(metrics: metrics::Metrics) -> Self {
        let (woken, apps, live) = (Notify::new(), ArcSwap::default(), Mutex::default());
        Self { woken, changed: AtomicBool::new(false), waits: AtomicBool::new(false), apps, live, metrics }
    }

    /// A message goes to this node's connections. Called on the store's thread.
    pub(crate) fn passed(&self, message: &Arc<Message>, target: &Target) {
        if !matches!(target, Target::Topic(_)) || !self.apps.load().contains(&message.app) {
            return;
        }
        if message.when != When::Stored {
            let mut live = self.live.lock();
            if live.len() >= LIVE_MAX {
                drop(live);
                self.metrics.dropped.inc();
                return;
            }
            live.push_back(message.clone());
        }
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
        if !self.apps.load().contains(&app) {
            self.apps.rcu(|apps| apps.iter().copied().chain([app]).collect::<HashSet<AppId>>());
        }
        self.look_again();
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
        if **self.apps.load() != apps {
            self.apps.store(Arc::new(apps));
        }
    }

    fn take_live(&self) -> VecDeque<Arc<Message>> {
        std::mem::take(&mut *self.live.lock())
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

    /// Whether devices of the app share subscriptions, as far as this node knows: within a second of the truth.
    pub fn has_shares(&self, app: AppId) -> bool {
        self.shares.apps.load().contains(&app)
    }

    async fn shares_changed(&self, app: AppId) {
        self.shares.changed(app);
        if let Some(peers) = self.peers() {
            peers.tell_now(To::Gateways, Record::SharesChanged { app }).await;
        }
    }
}
