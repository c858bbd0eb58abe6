//! Confirmations on their way to the store, coalesced.
//!
//! A device confirms one notification at a time; the store is told many at once. The queue is
//! bounded: above it confirmations are dropped and counted, and the devices hear those
//! notifications once more, with the same ids.
//!
//! A backlog that is read on an open connection waits for the confirmations that its device gave before
//! (`AckQueue::settle`): the client would get those notifications as new ones.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use noroshi_store::{Ack, Acked, Error as StoreError};
use noroshi_types::{DeviceNum, NotificationId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::delivery::{Delivery, Error};
use crate::metrics::Metrics;

/// 1 M × (16 B id + its share of a device's entry) ≈ 50 MB at worst, and as much again while they are
/// being written.
const QUEUED_IDS_MAX: usize = 1_000_000;

/// How long a confirmation waits for company; a crash within it repeats the notification.
const LINGER: Duration = Duration::from_millis(5);

/// Ids in one write: the writer is held for some tens of milliseconds at most.
const IDS_PER_WRITE: usize = 20_000;

/// Between two attempts while the store does not take them.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a read waits for confirmations at most: where the store is that slow, notifications may come again.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// Filled by shards, emptied by one task.
pub(crate) struct AckQueue {
    /// Guards only the map; nothing is awaited or called while it is held.
    queued: Mutex<Queued>,
    filled: Notify,
    /// A write is over.
    written: Notify,
}

#[derive(Default)]
struct Queued {
    ids_count: usize,
    devices: HashMap<DeviceNum, Vec<NotificationId>>,
    /// Whose confirmations are being written.
    writing: HashSet<DeviceNum>,
    is_writing: bool,
    /// Writes that are over.
    writes: u64,
}

impl Queued {
    /// How many writes are over when what a device confirmed so far has been tried; `None` if that is so.
    fn settled_at(&self, device: DeviceNum) -> Option<u64> {
        let next = self.writes + 1;
        if self.devices.contains_key(&device) {
            return Some(next + u64::from(self.is_writing));
        }
        self.writing.contains(&device).then_some(next)
    }
}

impl AckQueue {
    pub(crate) fn new() -> Self {
        Self { queued: Mutex::default(), filled: Notify::new(), written: Notify::new() }
    }

    pub(crate) fn push(&self, device: DeviceNum, ids: Vec<NotificationId>, metrics: &Metrics) {
        let count = ids.len();
        let mut queued = self.queued.lock();
        if queued.ids_count + count > QUEUED_IDS_MAX {
            drop(queued);
            metrics.acks_dropped.inc_by(count as u64);
            return;
        }
        let first = queued.ids_count == 0;
        queued.ids_count += count;
        queued.devices.entry(device).or_default().extend(ids);
        drop(queued);
        if first {
            self.filled.notify_one();
        }
    }

    /// What the store did not take; false for no room. Nobody is woken: who puts it back tries again by itself.
    fn put_back(&self, acks: Vec<Ack>) -> bool {
        let count: usize = acks.iter().map(|ack| ack.ids.len()).sum();
        let mut queued = self.queued.lock();
        if queued.ids_count + count > QUEUED_IDS_MAX {
            return false;
        }
        queued.ids_count += count;
        for Ack { device, ids } in acks {
            queued.devices.entry(device).or_default().extend(ids);
        }
        true
    }

    /// All that is queued: shards that confirm meanwhile wait for a swap, not for a walk.
    fn take(&self) -> HashMap<DeviceNum, Vec<NotificationId>> {
        let mut queued = self.queued.lock();
        let devices = std::mem::take(&mut queued.devices);
        (queued.ids_count, queued.is_writing) = (0, true);
        queued.writing = devices.keys().copied().collect();
        devices
    }

    /// What was taken has been tried.
    fn finish(&self) {
        let mut queued = self.queued.lock();
        (queued.writing, queued.is_writing) = (HashSet::new(), false);
        queued.writes += 1;
        drop(queued);
        self.written.notify_waiters();
    }

    /// Waits until what a device confirmed so far is written, or was tried in vain. Cancel-safe.
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
            tracing::warn!("confirmations are not written in time; what they are for may be heard again");
        }
    }

    /// Waits until there is something, then a little for more. Cancel-safe.
    async fn ready(&self) {
        if self.queued.lock().ids_count == 0 {
            self.filled.notified().await;
        }
        tokio::time::sleep(LINGER).await;
    }
}

impl Delivery {
    /// Writes confirmations as they come; once `drain` resolves, what is left, and returns. Not
    /// cancel-safe: what was taken from the queue and not yet handed to the store would be lost.
    pub(crate) async fn write_acks_until(&self, drain: impl Future<Output = ()>) {
        let mut drain = std::pin::pin!(drain);
        loop {
            let draining = tokio::select! {
                () = &mut drain => true,
                () = self.acks.ready() => false,
            };
            let wrote_all = self.flush_acks(draining).await;
            if draining {
                return;
            }
            if !wrote_all {
                tokio::select! {
                    () = &mut drain => {
                        self.flush_acks(true).await;
                        return;
                    }
                    () = tokio::time::sleep(PAUSE) => {}
                }
            }
        }
    }

    /// Writes all that is queued now; false if some of it has to be tried again, which the `last` attempt is not.
    async fn flush_acks(&self, last: bool) -> bool {
        let mut wrote_all = true;
        let queued = self.acks.take();
        for acks in writes(queued) {
            let ids_count: usize = acks.iter().map(|ack| ack.ids.len()).sum();
            let Err(error) = self.write_acks(acks.clone()).await else { continue };
            // To confirm twice is the same as once, so an attempt of unknown outcome is repeated.
            let may_pass = matches!(
                error,
                Error::Store(StoreError::Engine(_) | StoreError::Overloaded | StoreError::Full)
            );
            if may_pass && !last && self.acks.put_back(acks) {
                tracing::warn!(%error, ids_count, "confirmations were not written; trying again");
                wrote_all = false;
            } else {
                self.metrics.acks_dropped.inc_by(ids_count as u64);
                tracing::warn!(%error, ids_count, "confirmations were not written; their devices will hear them again");
            }
        }
        self.acks.finish();
        wrote_all
    }

    pub(crate) async fn write_acks(&self, acks: Vec<Ack>) -> Result<u64, Error> {
        let now = self.clock.now();
        // What a device says is only counted where the store knows of it.
        let devices: Vec<DeviceNum> = acks.iter().map(|ack| ack.device).collect();
        let acked = self.store.ack(acks.clone(), now).await;
        // Also where the answer was lost, and the confirmations perhaps not.
        if acked.as_ref().is_ok_and(|acked| !acked.is_empty()) || acked.is_err() {
            self.nums_changed(devices);
        }
        let acked = acked?;
        for Acked { id, count } in &acked {
            self.metrics.acked_seconds.observe_many(now.saturating_since(accepted_at(*id)), *count);
        }
        self.became_acked(&acks, &acked);
        self.shares.confirmed();
        Ok(acked.iter().map(|acked| acked.count).sum())
    }
}

/// Parts of about [`IDS_PER_WRITE`] ids, whole devices.
fn writes(queued: HashMap<DeviceNum, Vec<NotificationId>>) -> Vec<Vec<Ack>> {
    let mut writes: Vec<Vec<Ack>> = Vec::new();
    let mut ids_count = IDS_PER_WRITE;
    for (device, ids) in queued {
        if ids_count >= IDS_PER_WRITE {
            writes.push(Vec::new());
            ids_count = 0;
        }
        ids_count += ids.len();
        if let Some(write) = writes.last_mut() {
            write.push(Ack { device, ids });
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

    #[test]
    fn the_time_of_an_id_is_its_first_48_bits() {
        let id =
            NotificationId::parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").expect("RFC 9562 appendix A.6");
        assert_eq!(accepted_at(id).to_string(), "2022-02-22T19:22:22.000Z");
    }

    #[test]
    fn the_queue_is_bounded_and_taken_in_parts() {
        let queue = AckQueue::new();
        let metrics = Metrics::unregistered();
        let id = NotificationId::from_bytes([0; 16]);
        let devices = 50;
        for device in 0..devices {
            queue.push(DeviceNum(device), vec![id; QUEUED_IDS_MAX / 50], &metrics);
        }
        queue.push(DeviceNum(devices), vec![id; 2], &metrics);
        assert_eq!(metrics.acks_dropped.get(), 2);
        let writes = writes(queue.take());
        assert_eq!(writes.len(), QUEUED_IDS_MAX / IDS_PER_WRITE);
        let taken: usize = writes.iter().flatten().map(|ack| ack.ids.len()).sum();
        assert_eq!(taken, QUEUED_IDS_MAX);
        assert!(queue.take().is_empty());
        queue.push(DeviceNum(0), vec![id], &metrics);
        assert_eq!(queue.take().len(), 1, "there is room again");
    }

    #[test]
    fn a_device_settles_with_the_write_that_takes_what_it_confirmed() {
        let (queue, metrics) = (AckQueue::new(), Metrics::unregistered());
        let settled_at = |device| queue.queued.lock().settled_at(DeviceNum(device));
        let confirm = |device| {
            queue.push(DeviceNum(device), vec![NotificationId::from_bytes([0; 16])], &metrics);
        };
        confirm(1);
        assert_eq!((settled_at(1), settled_at(2)), (Some(1), None));
        queue.take();
        // One is being written, two waits for the write behind it.
        confirm(2);
        assert_eq!((settled_at(1), settled_at(2)), (Some(1), Some(2)));
        queue.finish();
        assert_eq!((settled_at(1), settled_at(2)), (None, Some(2)));
        queue.take();
        queue.finish();
        assert_eq!((settled_at(1), settled_at(2)), (None, None));
    }
}
