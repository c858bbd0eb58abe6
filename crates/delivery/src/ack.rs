//! Coalesces acknowledgements until the store writes them.
//!
//! A device acknowledges one notification at a time; the store gets many in one write. The queue is bounded: above the
//! bound acknowledgements are dropped and counted, and the devices receive those notifications again, with the same ids.
//!
//! A backlog read on an open connection waits for the earlier acknowledgements of its device ([`Acks::settle`]): otherwise
//! the client would get those notifications as new ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use noroshi_store::{Ack, Acked, Error as StoreError};
use noroshi_telemetry::{Histogram, metrics};
use noroshi_types::{AppId, DeviceNum, NotificationId, Timestamp};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

use crate::context::Context;
use crate::error::Error;
use crate::freshness::Freshness;
use crate::share_feed::ShareFeed;

/// 1 M × (16 B id + its share of a device's entry) ≈ 50 MB at worst, and as much again while they are
/// being written.
const QUEUED_IDS_MAX: usize = 1_000_000;

/// How long an acknowledgement waits for others. A crash within this time repeats the notification.
const LINGER: Duration = Duration::from_millis(5);

/// Ids in one write, which occupies the writer for some tens of milliseconds at most.
const IDS_PER_WRITE: usize = 20_000;

/// The pause between two attempts while the store fails.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest wait of a read for acknowledgements. If the store is slower, notifications may be delivered again.
const SETTLE_MAX: Duration = Duration::from_secs(1);

metrics! {
    pub(crate) struct Metrics {
        acked_seconds: Histogram = "Time from acceptance to acknowledgement",
        acks_dropped: Counter = "Acknowledgements dropped; the devices receive those notifications again",
    }
}

/// Filled by shards, emptied by one task.
#[derive(Default)]
struct AckQueue {
    /// Guards only the map; nothing is awaited or called under it.
    queued: Mutex<Queued>,
    filled: Notify,
    /// Wakes callers of `settle` after a write.
    written: Notify,
}

/// What a device of an app acknowledged.
struct OfDevice {
    app: AppId,
    ids: Vec<NotificationId>,
}

#[derive(Default)]
struct Queued {
    ids_count: usize,
    devices: HashMap<DeviceNum, OfDevice>,
    /// Devices whose acknowledgements are being written.
    writing: HashSet<DeviceNum>,
    is_writing: bool,
    /// The number of finished writes.
    writes: u64,
}

impl Queued {
    fn add(&mut self, app: AppId, device: DeviceNum, ids: Vec<NotificationId>) {
        self.ids_count += ids.len();
        self.devices.entry(device).or_insert_with(|| OfDevice { app, ids: Vec::new() }).ids.extend(ids);
    }

    /// The number of finished writes after which the present acknowledgements of a device were attempted; `None` if all
    /// were.
    fn settled_at(&self, device: DeviceNum) -> Option<u64> {
        let next = self.writes + 1;
        if self.devices.contains_key(&device) {
            return Some(next + u64::from(self.is_writing));
        }
        self.writing.contains(&device).then_some(next)
    }
}

impl AckQueue {
    pub(crate) fn push(&self, app: AppId, device: DeviceNum, ids: Vec<NotificationId>, metrics: &Metrics) {
        let count = ids.len();
        let mut queued = self.queued.lock();
        if queued.ids_count + count > QUEUED_IDS_MAX {
            drop(queued);
            metrics.acks_dropped.inc_by(count as u64);
            return;
        }
        let first = queued.ids_count == 0;
        queued.add(app, device, ids);
        drop(queued);
        if first {
            self.filled.notify_one();
        }
    }

    /// Queues acknowledgements again after a failed write. Returns false if there is no room. Does not wake the writer:
    /// the caller retries.
    fn put_back(&self, acks: Vec<(AppId, Ack)>) -> bool {
        let count: usize = acks.iter().map(|(_, ack)| ack.ids.len()).sum();
        let mut queued = self.queued.lock();
        if queued.ids_count + count > QUEUED_IDS_MAX {
            return false;
        }
        for (app, Ack { device, ids }) in acks {
            queued.add(app, device, ids);
        }
        true
    }

    /// Takes the whole queue, by a swap, so that shards wait only briefly.
    fn take(&self) -> HashMap<DeviceNum, OfDevice> {
        let mut queued = self.queued.lock();
        let devices = std::mem::take(&mut queued.devices);
        (queued.ids_count, queued.is_writing) = (0, true);
        queued.writing = devices.keys().copied().collect();
        devices
    }

    /// Everything that was taken was attempted.
    fn finish(&self) {
        let mut queued = self.queued.lock();
        (queued.writing, queued.is_writing) = (HashSet::new(), false);
        queued.writes += 1;
        drop(queued);
        self.written.notify_waiters();
    }

    /// Waits until the present acknowledgements of a device were written, or failed. Cancel-safe.
    pub(crate) async fn settle(&self, device: DeviceNum) {
        let Some(settled_at) = self.queued.lock().settled_at(device) else { return };
        let settled = async {
            loop {
                let mut written = std::pin::pin!(self.written.notified());
                written.as_mut().enable();
                if self.queued.lock().writes >= settled_at {
                    return;
                }
                written.await;
            }
        };
        if tokio::time::timeout(SETTLE_MAX, settled).await.is_err() {
            tracing::warn!(
                "acknowledgements were not written in time; devices may receive their notifications again"
            );
        }
    }

    /// Waits for the first acknowledgement, and then briefly for more. Cancel-safe.
    async fn ready(&self) {
        if self.queued.lock().ids_count == 0 {
            self.filled.notified().await;
        }
        tokio::time::sleep(LINGER).await;
    }
}

/// Queues acknowledgements and writes them.
pub struct Acks {
    context: Arc<Context>,
    freshness: Arc<Freshness>,
    feed: Arc<ShareFeed>,
    queue: AckQueue,
    metrics: Metrics,
}

impl Acks {
    pub(crate) fn new(
        context: Arc<Context>,
        freshness: Arc<Freshness>,
        feed: Arc<ShareFeed>,
        metrics: Metrics,
    ) -> Self {
        Self { context, freshness, feed, queue: AckQueue::default(), metrics }
    }

    /// Queues the acknowledgements of an app's device, which are written together with others some milliseconds later.
    /// A crash in between repeats the notifications, with the same ids. Called on shards; never waits.
    pub fn push(&self, app: AppId, device: DeviceNum, ids: Vec<NotificationId>) {
        self.queue.push(app, device, ids, &self.metrics);
    }

    /// Waits until the present acknowledgements of a device were written, or failed. Cancel-safe.
    pub(crate) async fn settle(&self, device: DeviceNum) {
        self.queue.settle(device).await;
    }

    /// Writes acknowledgements as they arrive. When `drain` resolves, writes the rest and returns. Not cancel-safe:
    /// acknowledgements that were taken from the queue and not yet handed to the store would be lost.
    pub(crate) async fn write_until(&self, drain: impl Future<Output = ()>) {
        let mut drain = std::pin::pin!(drain);
        loop {
            let draining = tokio::select! {
                () = &mut drain => true,
                () = self.queue.ready() => false,
            };
            let wrote_all = self.flush(draining).await;
            if draining {
                return;
            }
            if !wrote_all {
                tokio::select! {
                    () = &mut drain => {
                        self.flush(true).await;
                        return;
                    }
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }

    /// Writes the queue. Returns false if some acknowledgements must be retried; the `last` attempt drops them instead.
    async fn flush(&self, last: bool) -> bool {
        let mut wrote_all = true;
        let queued = self.queue.take();
        for acks in writes(queued) {
            let ids_count: usize = acks.iter().map(|(_, ack)| ack.ids.len()).sum();
            let Err(error) = self.write(&acks).await else { continue };
            // Acknowledging twice is the same as once, so an attempt with an unknown result is repeated.
            let may_succeed = matches!(
                error,
                Error::Store(StoreError::Engine(_) | StoreError::Overloaded | StoreError::Full)
            );
            if may_succeed && !last && self.queue.put_back(acks) {
                tracing::warn!(%error, ids_count, "could not write acknowledgements; retrying");
                wrote_all = false;
            } else {
                self.metrics.acks_dropped.inc_by(ids_count as u64);
                tracing::warn!(%error, ids_count, "could not write acknowledgements; devices receive their notifications again");
            }
        }
        self.queue.finish();
        wrote_all
    }

    /// Writes acknowledgements of an app's device at once: durable when this returns. Returns how many of the
    /// notifications were outstanding.
    pub async fn ack_now(
        &self,
        app: AppId,
        device: DeviceNum,
        ids: Vec<NotificationId>,
    ) -> Result<u64, Error> {
        self.write(&[(app, Ack { device, ids })]).await
    }

    /// Writes acknowledgements now. Returns how many of the notifications were outstanding.
    async fn write(&self, acks: &[(AppId, Ack)]) -> Result<u64, Error> {
        let now = self.context.now();
        let devices: Vec<DeviceNum> = acks.iter().map(|(_, ack)| ack.device).collect();
        let acked = self.context.store.ack(acks.iter().map(|(_, ack)| ack.clone()).collect(), now).await;
        // Also after an error, since the acknowledgements may have been written.
        if acked.as_ref().is_ok_and(|acked| !acked.is_empty()) || acked.is_err() {
            self.freshness.nums_changed(devices);
        }
        let acked = acked?;
        for Acked { id, count } in &acked {
            self.metrics.acked_seconds.observe_many(now.saturating_since(accepted_at(*id)), *count);
        }
        self.context.outcomes.acked(acks, &acked);
        self.feed.acknowledged();
        Ok(acked.iter().map(|acked| acked.count).sum())
    }
}

/// Splits the queue into writes of about [`IDS_PER_WRITE`] ids, without splitting a device.
fn writes(queued: HashMap<DeviceNum, OfDevice>) -> Vec<Vec<(AppId, Ack)>> {
    let mut writes: Vec<Vec<(AppId, Ack)>> = Vec::new();
    let mut ids_count = IDS_PER_WRITE;
    for (device, OfDevice { app, ids }) in queued {
        if ids_count >= IDS_PER_WRITE {
            writes.push(Vec::new());
            ids_count = 0;
        }
        ids_count += ids.len();
        if let Some(write) = writes.last_mut() {
            write.push((app, Ack { device, ids }));
        }
    }
    writes
}

/// A UUIDv7 begins with its time in milliseconds (RFC 9562 §5.7).
fn accepted_at(id: NotificationId) -> Timestamp {
    let bytes = id.as_bytes();
    Timestamp(bytes[..6].iter().fold(0, |ms, byte| ms << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: AppId = AppId(1);

    #[test]
    fn the_time_of_an_id_is_its_first_48_bits() {
        let id =
            NotificationId::parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").expect("RFC 9562 appendix A.6");
        assert_eq!(accepted_at(id).to_string(), "2022-02-22T19:22:22.000Z");
    }

    #[test]
    fn the_queue_is_bounded_and_taken_in_parts() {
        let queue = AckQueue::default();
        let metrics = Metrics::default();
        let id = NotificationId::from_bytes([0; 16]);
        let devices = 50;
        for device in 0..devices {
            queue.push(APP, DeviceNum(device), vec![id; QUEUED_IDS_MAX / 50], &metrics);
        }
        queue.push(APP, DeviceNum(devices), vec![id; 2], &metrics);
        assert_eq!(metrics.acks_dropped.get(), 2);
        let writes = writes(queue.take());
        assert_eq!(writes.len(), QUEUED_IDS_MAX / IDS_PER_WRITE);
        let taken: usize = writes.iter().flatten().map(|(_, ack)| ack.ids.len()).sum();
        assert_eq!(taken, QUEUED_IDS_MAX);
        assert!(queue.take().is_empty());
        queue.push(APP, DeviceNum(0), vec![id], &metrics);
        assert_eq!(queue.take().len(), 1, "there is room again");
    }

    #[test]
    fn a_device_settles_with_the_write_that_takes_what_it_acknowledged() {
        let (queue, metrics) = (AckQueue::default(), Metrics::default());
        let settled_at = |device| queue.queued.lock().settled_at(DeviceNum(device));
        let acknowledge = |device| {
            queue.push(APP, DeviceNum(device), vec![NotificationId::from_bytes([0; 16])], &metrics);
        };
        acknowledge(1);
        assert_eq!((settled_at(1), settled_at(2)), (Some(1), None));
        queue.take();
        // One is being written, two waits for the write behind it.
        acknowledge(2);
        assert_eq!((settled_at(1), settled_at(2)), (Some(1), Some(2)));
        queue.finish();
        assert_eq!((settled_at(1), settled_at(2)), (None, Some(2)));
        queue.take();
        queue.finish();
        assert_eq!((settled_at(1), settled_at(2)), (None, None));
    }
}
