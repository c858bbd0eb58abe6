//! The input of the leader of shared subscriptions from the rest of the node: published messages, acknowledgements, and
//! changes of groups.
//!
//! Filled by publishing, by the cluster and by acknowledgements, on any thread and without waiting. Read by
//! [`crate::share`] only. The queue is bounded; a message that does not fit is dropped and counted.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use noroshi_types::{AppId, Message, Target, When};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

/// Messages that are not stored and wait for the leader, and how many of them one app may have.
const LIVE_MAX: usize = 4_096;
const LIVE_OF_APP_MAX: usize = 1_024;

#[derive(Default)]
pub(crate) struct ShareFeed {
    woken: Notify,
    /// Groups or members changed since they were last read.
    changed: AtomicBool,
    /// Messages wait for acknowledgements.
    awaits_acks: AtomicBool,
    /// Another node leads.
    follows: AtomicBool,
    /// Apps that have groups, as far as this node knows. `None`: not read yet.
    apps: ArcSwapOption<HashSet<AppId>>,
    /// Guards only itself.
    pending: Mutex<Pending>,
    /// Messages that found the queue full.
    dropped: Counter,
}

/// Input that the leader has not processed yet.
#[derive(Default)]
struct Pending {
    live: VecDeque<Arc<Message>>,
    /// How many of them each app has.
    live_of: HashMap<AppId, usize>,
    /// Apps with new stored messages.
    touched: HashSet<AppId>,
}

impl Pending {
    fn has_room(&self, app: AppId) -> bool {
        self.live.len() < LIVE_MAX && self.live_of.get(&app).is_none_or(|count| *count < LIVE_OF_APP_MAX)
    }
}

impl ShareFeed {
    pub(crate) fn new(dropped: Counter) -> Self {
        Self { dropped, ..Self::default() }
    }

    /// A message goes to this node's connections. Called on the store's thread.
    pub(crate) fn message(&self, message: &Arc<Message>, target: &Target) {
        let is_shared = matches!(target, Target::Topic(_)) && self.has(message.app);
        if !is_shared || self.follows.load(Ordering::Relaxed) {
            return;
        }
        let mut pending = self.pending.lock();
        if message.when == When::Stored {
            pending.touched.insert(message.app);
        } else if pending.has_room(message.app) {
            pending.live.push_back(message.clone());
            *pending.live_of.entry(message.app).or_default() += 1;
        } else {
            drop(pending);
            self.dropped.inc();
            return;
        }
        drop(pending);
        self.woken.notify_one();
    }

    /// Devices acknowledged messages.
    pub(crate) fn acknowledged(&self) {
        if self.awaits_acks.load(Ordering::Relaxed) {
            self.woken.notify_one();
        }
    }

    /// Groups of the app or their members changed, on this node or another.
    pub(crate) fn groups_changed(&self, app: AppId) {
        if !self.has(app) {
            self.apps.rcu(|apps| {
                let apps = apps.as_ref()?;
                Some(Arc::new(apps.iter().copied().chain([app]).collect::<HashSet<AppId>>()))
            });
        }
        self.read_again();
    }

    /// Whether the app may have groups. Before the first read every app may.
    pub(crate) fn has(&self, app: AppId) -> bool {
        self.apps.load().as_ref().is_none_or(|apps| apps.contains(&app))
    }

    /// Makes the leader read groups and members again.
    pub(crate) fn read_again(&self) {
        self.changed.store(true, Ordering::Release);
        self.woken.notify_one();
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    /// The apps that have groups.
    pub(crate) fn set_apps(&self, apps: HashSet<AppId>) {
        if self.apps.load().as_deref() != Some(&apps) {
            self.apps.store(Some(Arc::new(apps)));
        }
    }

    pub(crate) fn set_follows(&self, follows: bool) {
        self.follows.store(follows, Ordering::Relaxed);
    }

    pub(crate) fn set_awaits_acks(&self, awaits: bool) {
        self.awaits_acks.store(awaits, Ordering::Relaxed);
    }

    /// Messages that are not stored, and apps with new stored messages.
    pub(crate) fn take(&self) -> (VecDeque<Arc<Message>>, HashSet<AppId>) {
        let Pending { live, touched, .. } = std::mem::take(&mut *self.pending.lock());
        (live, touched)
    }

    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    /// Resolves when there is something to do. Cancel-safe.
    pub(crate) async fn woken(&self) {
        self.woken.notified().await;
    }
}
