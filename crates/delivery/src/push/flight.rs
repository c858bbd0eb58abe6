//! What is under way: recipients in all and for each push service of an app, and batches.
//!
//! Counted up by the sender when it takes a batch, down by each answer. The bounds are looked at before a
//! batch is taken; a take may pass them by the batches of one take. Each batch is held under a lease ([`Held`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use noroshi_cluster::batches::Receipt;
use noroshi_store::{Batch, Lease};
use noroshi_types::{AppId, BatchId, PushService, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::push::config::Config;

/// None: published as a notification.
pub(crate) type Pair = (AppId, Option<PushService>);

pub(crate) struct Flight {
    config: Config,
    recipients: AtomicUsize,
    /// Guards only the map; counts are changed without it.
    pairs: Mutex<HashMap<Pair, Arc<AtomicUsize>>>,
    /// Guards only the map.
    batches: Mutex<HashMap<BatchId, Arc<Held>>>,
    /// The sender found no room and wants to be told.
    wanted: AtomicBool,
    /// Wakes the sender.
    pub(crate) wake: Notify,
}

/// Whose a batch under way is. Where nodes share a store, another takes it as soon as its lease has lapsed, so whoever
/// holds it has to know by a clock of its own.
#[derive(Debug)]
pub(crate) struct Held {
    /// As the store has it, and when it ends by this process' clock, counted from before it was asked for. Guards
    /// only itself.
    lease: Mutex<(Timestamp, Instant)>,
    /// The store said that it is another's.
    lost: AtomicBool,
    /// Of the queue that it came by.
    receipt: Option<Receipt>,
}

impl Held {
    pub(crate) fn new(until: Timestamp, ends: Instant, receipt: Option<Receipt>) -> Self {
        Self { lease: Mutex::new((until, ends)), lost: AtomicBool::new(false), receipt }
    }

    /// Nobody else can have taken it.
    pub(crate) fn is_ours(&self) -> bool {
        !self.is_lost() && Instant::now() < self.lease.lock().1
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    pub(crate) fn until(&self) -> Timestamp {
        self.lease.lock().0
    }

    pub(crate) fn renewed(&self, until: Timestamp, ends: Instant) {
        *self.lease.lock() = (until, ends);
        self.lost.store(false, Ordering::SeqCst);
    }

    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }
}

/// What may be taken now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Recipients of any lane.
    pub(crate) any: usize,
    /// Recipients of ordinary campaigns.
    pub(crate) campaign: usize,
    pub(crate) busy_for_any: Vec<(AppId, PushService)>,
    pub(crate) busy_for_campaigns: Vec<(AppId, PushService)>,
}

impl Flight {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            recipients: AtomicUsize::new(0),
            pairs: Mutex::default(),
            batches: Mutex::default(),
            wanted: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// A batch was taken. The count is that of its push service. None: it is under way already, its lease lapsed
    /// and it is ours again.
    pub(crate) fn begin(self: &Arc<Self>, batch: &Batch, held: Held) -> Option<(Arc<Aboard>, Arc<Held>)> {
        let held = match self.batches.lock().entry(batch.id) {
            Entry::Occupied(known) => {
                let (until, ends) = *held.lease.lock();
                known.get().renewed(until, ends);
                return None;
            }
            Entry::Vacant(vacant) => vacant.insert(Arc::new(held)).clone(),
        };
        self.recipients.fetch_add(batch.recipients.len(), Ordering::SeqCst);
        let pair = self.pairs.lock().entry((batch.app, batch.service)).or_default().clone();
        pair.fetch_add(batch.recipients.len(), Ordering::SeqCst);
        let left = AtomicUsize::new(batch.recipients.len());
        Some((Arc::new(Aboard { flight: self.clone(), pair, left }), held))
    }

    fn landed(&self, recipients: usize) {
        let before = self.recipients.fetch_sub(recipients, Ordering::SeqCst);
        // Each wake-up is a look at the store: one for some batches of room, not one for each answer.
        let step = (self.config.recipients_max / 16).max(1);
        let now = before.saturating_sub(recipients);
        if self.wanted.load(Ordering::SeqCst) && (before / step != now / step || now == 0) {
            self.wake();
        }
    }

    /// A batch is finished, or given up to its lease. What it came by, if that was a queue.
    pub(crate) fn end(&self, batch: BatchId) -> Option<Receipt> {
        let held = self.batches.lock().remove(&batch);
        if self.wanted.load(Ordering::SeqCst) {
            self.wake();
        }
        held.and_then(|held| held.receipt.clone())
    }

    /// Something may be there to be taken.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Whether the sender waits for what is under way to end. In one order with the counts: either it sees the
    /// room that was made, or who made it sees that it waits.
    pub(crate) fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::SeqCst);
    }

    pub(crate) fn room(&self) -> Room {
        let Config { recipients_max, recipients_per_service_max, batches_max, .. } = self.config;
        let recipients = self.recipients();
        let mut room = Room::default();
        if self.batches.lock().len() < batches_max {
            room.any = recipients_max.saturating_sub(recipients);
            room.campaign = self.config.without_reserve(recipients_max).saturating_sub(recipients);
        }
        let mut pairs = self.pairs.lock();
        pairs.retain(|_, count| Arc::strong_count(count) > 1 || count.load(Ordering::SeqCst) > 0);
        for ((app, service), count) in pairs.iter() {
            let (Some(service), count) = (service, count.load(Ordering::SeqCst)) else { continue };
            if count >= recipients_per_service_max {
                room.busy_for_any.push((*app, *service));
            }
            if count >= self.config.without_reserve(recipients_per_service_max) {
                room.busy_for_campaigns.push((*app, *service));
            }
        }
        room
    }

    pub(crate) fn recipients(&self) -> usize {
        self.recipients.load(Ordering::SeqCst)
    }

    /// Every batch under way that is not lost: their leases are kept.
    pub(crate) fn leases(&self) -> Vec<(Lease, Arc<Held>)> {
        let batches = self.batches.lock();
        let ours = batches.iter().filter(|(_, held)| !held.is_lost());
        ours.map(|(batch, held)| (Lease { batch: *batch, until: held.until() }, held.clone())).collect()
    }

    pub(crate) fn batch_count(&self) -> usize {
        self.batches.lock().len()
    }
}

/// The recipients of one batch that are under way. Whatever becomes of the batch, with the last of those that hold this
/// all of them have landed.
pub(crate) struct Aboard {
    flight: Arc<Flight>,
    /// The count of their push service.
    pair: Arc<AtomicUsize>,
    left: AtomicUsize,
}

impl Aboard {
    /// The fate of so many is known.
    pub(crate) fn land(&self, recipients: usize) {
        let rest = |left: usize| Some(left.saturating_sub(recipients));
        let before = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, rest).unwrap_or(0);
        let landed = before.min(recipients);
        self.pair.fetch_sub(landed, Ordering::SeqCst);
        self.flight.landed(landed);
    }
}

impl Drop for Aboard {
    fn drop(&mut self) {
        if *self.left.get_mut() > 0 {
            self.land(usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_store::Work;
    use noroshi_types::{DeviceNum, Lane, NotificationId, Timestamp};

    fn batch(id: u64, app: u32, recipients: u64) -> Batch {
        Batch {
            id: BatchId(id),
            app: AppId(app),
            service: Some(PushService::Fcm),
            lane: Lane::Campaign,
            due_at: Timestamp(0),
            attempt: 0,
            work: Work::Notification(NotificationId::from_bytes([0; 16])),
            campaign: None,
            variant: None,
            leased_until: Timestamp(60_000),
            recipients: (0..recipients).map(DeviceNum).collect(),
        }
    }

    fn held(seconds: u64) -> Held {
        let lease = std::time::Duration::from_secs(seconds);
        Held::new(Timestamp(seconds * 1_000), Instant::now() + lease, None)
    }

    fn flight() -> Arc<Flight> {
        let bounds = Config {
            recipients_max: 1_000,
            recipients_per_service_max: 500,
            reserved_percent: 10,
            batches_max: 3,
            ..Config::default()
        };
        Arc::new(Flight::new(bounds))
    }

    #[test]
    fn ordinary_campaigns_leave_a_reserve() {
        let flight = flight();
        let (pair, _) = flight.begin(&batch(1, 1, 460), held(60)).expect("new");
        let fcm = |app| (AppId(app), PushService::Fcm);
        let room = flight.room();
        assert_eq!((room.any, room.campaign), (540, 440));
        assert_eq!((room.busy_for_any, room.busy_for_campaigns), (vec![], vec![fcm(1)]));
        let (other, _) = flight.begin(&batch(2, 2, 520), held(60)).expect("new");
        let room = flight.room();
        assert_eq!((room.any, room.campaign), (20, 0));
        assert_eq!(room.busy_for_any, [fcm(2)]);
        pair.land(460);
        other.land(20);
        assert_eq!(flight.recipients(), 500);
        drop(other);
        assert_eq!(flight.room(), Room { any: 1_000, campaign: 900, ..Room::default() });
    }

    #[test]
    fn a_batch_that_is_under_way_does_not_begin_again() {
        let flight = flight();
        let (pair, first) = flight.begin(&batch(1, 1, 10), held(0)).expect("new");
        assert!(!first.is_ours(), "its lease lapsed");
        assert!(flight.begin(&batch(1, 1, 10), held(120)).is_none());
        assert!(first.is_ours(), "it was taken again by us");
        assert_eq!(flight.leases()[0].0, Lease { batch: BatchId(1), until: Timestamp(120_000) });
        first.lose();
        assert!(!first.is_ours() && flight.leases().is_empty());
        assert_eq!((flight.recipients(), flight.batch_count()), (10, 1));
        pair.land(10);
        flight.end(BatchId(1));
        assert!(flight.begin(&batch(1, 1, 10), held(60)).is_some(), "it was given up");
    }

    #[test]
    fn batches_are_bounded_too() {
        let flight = flight();
        let begin = |id| flight.begin(&batch(id, 1, 1), held(60)).expect("new");
        let _aboard: Vec<_> = (0..3).map(begin).collect();
        assert_eq!(flight.room().any, 0);
        flight.end(BatchId(1));
        assert_eq!((flight.room().any, flight.leases().len()), (997, 2));
    }
}
