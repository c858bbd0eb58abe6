//! Push work in flight: recipients in total and for each push service of an app, and batches with their leases.
//!
//! The sender adds a batch when it takes it, and each answer removes a recipient. The bounds are checked before a batch
//! is taken; one take may exceed them by its batches. Each batch is held under a lease ([`BatchLease`]).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use noroshi_cluster::batches::Receipt;
use noroshi_store::{Batch, Lease};
use noroshi_types::{AppId, BatchId, DeviceNum, PushService, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::config::Config;

/// An app and its push service; `None` for batches that are published as notifications.
type Pair = (AppId, Option<PushService>);

pub(crate) struct InFlight {
    config: Config,
    recipients: AtomicUsize,
    /// Guards only the map; counts are changed without it.
    pairs: Mutex<HashMap<Pair, Arc<AtomicUsize>>>,
    /// Guards only the map.
    batches: Mutex<HashMap<BatchId, Arc<BatchLease>>>,
    /// The sender found no room, and waits for it.
    sender_waits: AtomicBool,
    /// Wakes the sender.
    senders: Arc<Notify>,
}

/// The lease of a batch in flight. If nodes share a store, another node takes the batch as soon as its lease expires,
/// so the owner checks its own clock.
#[derive(Debug)]
pub(crate) struct BatchLease {
    /// The end of the lease in the store, and by the clock of this process, measured from before the request. Guards
    /// only itself.
    lease: Mutex<(Timestamp, Instant)>,
    /// Another node has the batch.
    lost: AtomicBool,
    /// Recipients whose results went to the finisher in parts. Guards only itself.
    written: Mutex<Vec<DeviceNum>>,
    /// The receipt of the queue that the batch came from.
    receipt: Option<Receipt>,
}

impl BatchLease {
    pub(crate) fn new(until: Timestamp, ends: Instant, receipt: Option<Receipt>) -> Self {
        let lease = Mutex::new((until, ends));
        Self { lease, lost: AtomicBool::new(false), written: Mutex::default(), receipt }
    }

    /// Whether no other node can have taken the batch.
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

    pub(crate) fn wrote(&self, recipients: &[DeviceNum]) {
        self.written.lock().extend_from_slice(recipients);
    }

    pub(crate) fn written_count(&self) -> usize {
        self.written.lock().len()
    }

    /// The recipients of the batch whose results no part has.
    pub(crate) fn unwritten(&self, batch: &Batch) -> Vec<DeviceNum> {
        let written: HashSet<DeviceNum> = self.written.lock().iter().copied().collect();
        batch.recipients.iter().copied().filter(|device| !written.contains(device)).collect()
    }

    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }
}

/// Room for more work.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Recipients of any lane.
    pub(crate) any: usize,
    /// Recipients of ordinary campaigns.
    pub(crate) campaign: usize,
    pub(crate) busy_for_any: Vec<(AppId, PushService)>,
    pub(crate) busy_for_campaigns: Vec<(AppId, PushService)>,
}

impl InFlight {
    pub(crate) fn new(config: Config, senders: Arc<Notify>) -> Self {
        Self {
            config,
            recipients: AtomicUsize::new(0),
            pairs: Mutex::default(),
            batches: Mutex::default(),
            sender_waits: AtomicBool::new(false),
            senders,
        }
    }

    /// Adds a batch that was taken. `None`: it is already in flight, its lease expired, and this node took it again.
    pub(crate) fn begin(
        self: &Arc<Self>,
        batch: &Batch,
        held: BatchLease,
    ) -> Option<(Arc<PendingRecipients>, Arc<BatchLease>)> {
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
        Some((Arc::new(PendingRecipients { in_flight: self.clone(), pair, left }), held))
    }

    fn removed(&self, recipients: usize) {
        let before = self.recipients.fetch_sub(recipients, Ordering::SeqCst);
        // Each wake-up reads the store: one for the room of several batches, not one for each answer.
        let step = (self.config.recipients_max / 16).max(1);
        let now = before.saturating_sub(recipients);
        if self.sender_waits.load(Ordering::SeqCst) && (before / step != now / step || now == 0) {
            self.senders.notify_one();
        }
    }

    /// Removes a batch that is finished, or left to the end of its lease. Returns the receipt of the queue it came
    /// from.
    pub(crate) fn end(&self, batch: BatchId) -> Option<Receipt> {
        let held = self.batches.lock().remove(&batch);
        if self.sender_waits.load(Ordering::SeqCst) {
            self.senders.notify_one();
        }
        held.and_then(|held| held.receipt.clone())
    }

    /// Sets whether the sender waits for free capacity. Sequentially consistent with the counts: either the sender
    /// sees the freed capacity, or the answer that freed it sees that the sender waits.
    pub(crate) fn set_sender_waits(&self, waits: bool) {
        self.sender_waits.store(waits, Ordering::SeqCst);
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

    /// The leases of all batches in flight that are not lost.
    pub(crate) fn leases(&self) -> Vec<(Lease, Arc<BatchLease>)> {
        let batches = self.batches.lock();
        let ours = batches.iter().filter(|(_, held)| !held.is_lost());
        ours.map(|(batch, held)| (Lease { batch: *batch, until: held.until() }, held.clone())).collect()
    }

    pub(crate) fn batch_count(&self) -> usize {
        self.batches.lock().len()
    }
}

/// The recipients of one batch that are in flight. The last drop removes all of them, regardless of the outcome
/// of the batch.
pub(crate) struct PendingRecipients {
    in_flight: Arc<InFlight>,
    /// The count of their push service.
    pair: Arc<AtomicUsize>,
    left: AtomicUsize,
}

impl PendingRecipients {
    /// This many recipients are done.
    pub(crate) fn remove(&self, recipients: usize) {
        let rest = |left: usize| Some(left.saturating_sub(recipients));
        let before = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, rest).unwrap_or(0);
        let removed = before.min(recipients);
        self.pair.fetch_sub(removed, Ordering::SeqCst);
        self.in_flight.removed(removed);
    }
}

impl Drop for PendingRecipients {
    fn drop(&mut self) {
        if *self.left.get_mut() > 0 {
            self.remove(usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_store::Work;
    use noroshi_types::{Lane, NotificationId};

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
            token: None,
            leased_until: Timestamp(60_000),
            recipients: (0..recipients).map(DeviceNum).collect(),
        }
    }

    fn held(seconds: u64) -> BatchLease {
        let lease = std::time::Duration::from_secs(seconds);
        BatchLease::new(Timestamp(seconds * 1_000), Instant::now() + lease, None)
    }

    fn in_flight() -> Arc<InFlight> {
        let bounds = Config {
            recipients_max: 1_000,
            recipients_per_service_max: 500,
            reserved_percent: 10,
            batches_max: 3,
            ..Config::default()
        };
        Arc::new(InFlight::new(bounds, Arc::default()))
    }

    #[test]
    fn ordinary_campaigns_leave_a_reserve() {
        let in_flight = in_flight();
        let (pair, _) = in_flight.begin(&batch(1, 1, 460), held(60)).expect("new");
        let fcm = |app| (AppId(app), PushService::Fcm);
        let room = in_flight.room();
        assert_eq!((room.any, room.campaign), (540, 440));
        assert_eq!((room.busy_for_any, room.busy_for_campaigns), (vec![], vec![fcm(1)]));
        let (other, _) = in_flight.begin(&batch(2, 2, 520), held(60)).expect("new");
        let room = in_flight.room();
        assert_eq!((room.any, room.campaign), (20, 0));
        assert_eq!(room.busy_for_any, [fcm(2)]);
        pair.remove(460);
        other.remove(20);
        assert_eq!(in_flight.recipients(), 500);
        drop(other);
        assert_eq!(in_flight.room(), Room { any: 1_000, campaign: 900, ..Room::default() });
    }

    #[test]
    fn a_batch_in_flight_does_not_begin_again() {
        let in_flight = in_flight();
        let (pair, first) = in_flight.begin(&batch(1, 1, 10), held(0)).expect("new");
        assert!(!first.is_ours(), "its lease expired");
        assert!(in_flight.begin(&batch(1, 1, 10), held(120)).is_none());
        assert!(first.is_ours(), "this node took it again");
        assert_eq!(in_flight.leases()[0].0, Lease { batch: BatchId(1), until: Timestamp(120_000) });
        first.lose();
        assert!(!first.is_ours() && in_flight.leases().is_empty());
        assert_eq!((in_flight.recipients(), in_flight.batch_count()), (10, 1));
        pair.remove(10);
        in_flight.end(BatchId(1));
        assert!(in_flight.begin(&batch(1, 1, 10), held(60)).is_some(), "it ended");
    }

    #[test]
    fn the_number_of_batches_is_bounded() {
        let in_flight = in_flight();
        let begin = |id| in_flight.begin(&batch(id, 1, 1), held(60)).expect("new");
        let _pending: Vec<_> = (0..3).map(begin).collect();
        assert_eq!(in_flight.room().any, 0);
        in_flight.end(BatchId(1));
        assert_eq!((in_flight.room().any, in_flight.leases().len()), (997, 2));
    }
}
