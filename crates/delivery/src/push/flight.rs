//! What is under way: recipients in all and for each push service of an app, and batches.
//!
//! Counted up by the sender when it takes a batch, down by each answer. The bounds are looked at before a
//! batch is taken; a take may pass them by the batches of one take.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use noroshi_store::Batch;
use noroshi_types::{AppId, BatchId, CampaignId, PushService};
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
    /// Guards only the map. Each with the campaign that it belongs to.
    batches: Mutex<HashMap<BatchId, Option<CampaignId>>>,
    /// The sender found no room and wants to be told.
    wanted: AtomicBool,
    /// Wakes the sender.
    pub(crate) wake: Notify,
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

    /// A batch was taken. The count is that of its push service. None: it is under way already, and its lease
    /// lapsed only because the clock was set forward.
    pub(crate) fn begin(&self, batch: &Batch) -> Option<Arc<AtomicUsize>> {
        match self.batches.lock().entry(batch.id) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(vacant) => vacant.insert(batch.campaign),
        };
        self.recipients.fetch_add(batch.recipients.len(), Ordering::SeqCst);
        let pair = self.pairs.lock().entry((batch.app, batch.service)).or_default().clone();
        pair.fetch_add(batch.recipients.len(), Ordering::SeqCst);
        Some(pair)
    }

    /// The fate of recipients is known.
    pub(crate) fn land(&self, pair: &AtomicUsize, recipients: usize) {
        pair.fetch_sub(recipients, Ordering::SeqCst);
        let before = self.recipients.fetch_sub(recipients, Ordering::SeqCst);
        // Each wake-up is a look at the store: one for some batches of room, not one for each answer.
        let step = (self.config.recipients_max / 16).max(1);
        let now = before.saturating_sub(recipients);
        if self.wanted.load(Ordering::SeqCst) && (before / step != now / step || now == 0) {
            self.wake();
        }
    }

    /// A batch is finished, or given up to its lease.
    pub(crate) fn end(&self, batch: BatchId) {
        self.batches.lock().remove(&batch);
        if self.wanted.load(Ordering::SeqCst) {
            self.wake();
        }
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

    /// Every batch under way: their leases are kept.
    pub(crate) fn batches(&self) -> Vec<BatchId> {
        self.batches.lock().keys().copied().collect()
    }

    pub(crate) fn batch_count(&self) -> usize {
        self.batches.lock().len()
    }

    /// Those of a campaign, with what it published.
    pub(crate) fn batches_of(&self, campaign: CampaignId) -> usize {
        self.batches.lock().values().filter(|of| **of == Some(campaign)).count()
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
            recipients: (0..recipients).map(DeviceNum).collect(),
        }
    }

    fn flight() -> Flight {
        let bounds = Config {
            recipients_max: 1_000,
            recipients_per_service_max: 500,
            reserved_percent: 10,
            batches_max: 3,
            ..Config::default()
        };
        Flight::new(bounds)
    }

    #[test]
    fn ordinary_campaigns_leave_a_reserve() {
        let flight = flight();
        let pair = flight.begin(&batch(1, 1, 460)).expect("new");
        let fcm = |app| (AppId(app), PushService::Fcm);
        let room = flight.room();
        assert_eq!((room.any, room.campaign), (540, 440));
        assert_eq!((room.busy_for_any, room.busy_for_campaigns), (vec![], vec![fcm(1)]));
        let other = flight.begin(&batch(2, 2, 520)).expect("new");
        let room = flight.room();
        assert_eq!((room.any, room.campaign), (20, 0));
        assert_eq!(room.busy_for_any, [fcm(2)]);
        flight.land(&pair, 460);
        flight.land(&other, 520);
        assert_eq!(flight.room(), Room { any: 1_000, campaign: 900, ..Room::default() });
    }

    #[test]
    fn a_batch_that_is_under_way_does_not_begin_again() {
        let flight = flight();
        let pair = flight.begin(&batch(1, 1, 10)).expect("new");
        assert!(flight.begin(&batch(1, 1, 10)).is_none());
        assert_eq!((flight.recipients(), flight.batch_count()), (10, 1));
        flight.land(&pair, 10);
        flight.end(BatchId(1));
        assert!(flight.begin(&batch(1, 1, 10)).is_some(), "it was given up");
    }

    #[test]
    fn what_a_campaign_published_is_its_own() {
        let flight = flight();
        let id = CampaignId::from_bytes([1; 16]);
        flight.begin(&Batch { campaign: Some(id), ..batch(1, 1, 1) }).expect("new");
        flight.begin(&batch(2, 1, 1)).expect("new");
        assert_eq!(flight.batches_of(id), 1);
    }

    #[test]
    fn batches_are_bounded_too() {
        let flight = flight();
        for id in 0..3 {
            flight.begin(&batch(id, 1, 1)).expect("new");
        }
        assert_eq!(flight.room().any, 0);
        flight.end(BatchId(1));
        assert_eq!((flight.room().any, flight.batches().len()), (997, 2));
    }
}
