//! Confirmations on their way to the store, coalesced.
//!
//! A device confirms one notification at a time; the store is told many at once. The queue is
//! bounded: above it confirmations are dropped and counted, and the devices hear those
//! notifications once more, with the same ids.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use noroshi_store::{Ack, Acked};
use noroshi_types::{DeviceNum, NotificationId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::delivery::{Delivery, Error};
use crate::metrics::Metrics;

/// 1 M × (16 B id + its share of a device's entry) ≈ 50 MB at worst.
const QUEUED_IDS_MAX: usize = 1_000_000;

/// How long a confirmation waits for company; a crash within it repeats the notification.
const LINGER: Duration = Duration::from_millis(5);

/// Ids in one write: the writer is held for some tens of milliseconds at most.
const IDS_PER_WRITE: usize = 20_000;

/// Filled by shards, emptied by one task.
pub(crate) struct AckQueue {
    /// Guards only the map; nothing is awaited or called while it is held.
    queued: Mutex<Queued>,
    filled: Notify,
}

#[derive(Default)]
struct Queued {
    ids_count: usize,
    devices: HashMap<DeviceNum, Vec<NotificationId>>,
}

impl AckQueue {
    pub(crate) fn new() -> Self {
        Self { queued: Mutex::default(), filled: Notify::new() }
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

    /// At most [`IDS_PER_WRITE`] ids, whole devices.
    fn take(&self) -> Vec<Ack> {
        let mut queued = self.queued.lock();
        let mut taken = Vec::new();
        let mut ids_count = 0;
        if queued.ids_count <= IDS_PER_WRITE {
            queued.ids_count = 0;
            return queued.devices.drain().map(|(device, ids)| Ack { device, ids }).collect();
        }
        let devices: Vec<DeviceNum> = queued.devices.keys().copied().collect();
        for device in devices {
            if ids_count >= IDS_PER_WRITE {
                break;
            }
            if let Some(ids) = queued.devices.remove(&device) {
                ids_count += ids.len();
                taken.push(Ack { device, ids });
            }
        }
        queued.ids_count -= ids_count;
        taken
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
    /// Writes confirmations as they come until dropped. Cancel-safe between writes only: run it to a
    /// drain, then call [`Delivery::flush_acks`].
    pub(crate) async fn write_queued_acks(self: &Arc<Self>) {
        loop {
            self.acks.ready().await;
            self.flush_acks().await;
        }
    }

    /// Writes all that is queued now.
    pub(crate) async fn flush_acks(&self) {
        loop {
            let acks = self.acks.take();
            if acks.is_empty() {
                return;
            }
            let ids_count: usize = acks.iter().map(|ack| ack.ids.len()).sum();
            if let Err(error) = self.write_acks(acks).await {
                self.metrics.acks_dropped.inc_by(ids_count as u64);
                tracing::warn!(%error, ids_count, "confirmations were not written; their devices will hear them again");
                return;
            }
        }
    }

    pub(crate) async fn write_acks(&self, acks: Vec<Ack>) -> Result<u64, Error> {
        let now = self.clock.now();
        // What a device says is only counted where the store knows of it.
        let acked = self.store.ack(acks, now).await?;
        for Acked { id, count } in &acked {
            self.metrics.acked_seconds.observe_many(now.saturating_since(accepted_at(*id)), *count);
        }
        let count = acked.iter().map(|acked| acked.count).sum();
        self.metrics.outcome(noroshi_types::Outcome::Acked).inc_by(count);
        Ok(count)
    }
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
        queue.push(DeviceNum(0), vec![id; QUEUED_IDS_MAX - 1], &metrics);
        queue.push(DeviceNum(1), vec![id; 2], &metrics);
        assert_eq!(metrics.acks_dropped.get(), 2);
        queue.push(DeviceNum(1), vec![id; 1], &metrics);
        let taken: usize = std::iter::from_fn(|| Some(queue.take()).filter(|acks| !acks.is_empty()))
            .flatten()
            .map(|ack| ack.ids.len())
            .sum();
        assert_eq!(taken, QUEUED_IDS_MAX);
    }
}
