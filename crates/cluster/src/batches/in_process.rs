//! The queue in one process, for several nodes of a test, with tokio's clock (which a test may pause).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{BatchQueue, CLAIM_AFTER, LaneDepth, QueuedBatch, Receipt, Received};
use crate::Error;

/// A handle; clones share the queue.
#[derive(Clone)]
pub struct InProcess(Arc<Shared>);

struct Shared {
    claim_after: Duration,
    /// The lock guards only the lanes.
    lanes: Mutex<BTreeMap<u8, Lane>>,
    put: Notify,
}

#[derive(Default)]
struct Lane {
    new: VecDeque<QueuedBatch>,
    pulled: BTreeMap<u64, Pulled>,
    next: u64,
}

struct Pulled {
    parcel: QueuedBatch,
    deliveries: u32,
    /// From then on anyone may pull it.
    until: Instant,
}

impl Default for InProcess {
    fn default() -> Self {
        Self::new(CLAIM_AFTER)
    }
}

impl InProcess {
    pub fn new(claim_after: Duration) -> Self {
        Self(Arc::new(Shared { claim_after, lanes: Mutex::default(), put: Notify::new() }))
    }

    /// Loses everything, like an engine without persistence.
    pub fn wipe(&self) {
        self.0.lanes.lock().clear();
    }

    fn pull_now(&self, lanes: &[u8], max: usize) -> Vec<Received> {
        let mut all = self.0.lanes.lock();
        let now = Instant::now();
        let until = now + self.0.claim_after;
        let mut received = Vec::new();
        for code in lanes {
            let Some(lane) = all.get_mut(code) else { continue };
            let left: Vec<u64> =
                lane.pulled.iter().filter(|(_, pulled)| pulled.until <= now).map(|(id, _)| *id).collect();
            for id in left.into_iter().take(max - received.len()) {
                let Some(pulled) = lane.pulled.get_mut(&id) else { continue };
                (pulled.deliveries, pulled.until) = (pulled.deliveries + 1, until);
                received.push(received_of(*code, id, pulled));
            }
            while received.len() < max
                && let Some(parcel) = lane.new.pop_front()
            {
                lane.next += 1;
                let pulled = Pulled { parcel, deliveries: 1, until };
                received.push(received_of(*code, lane.next, &pulled));
                lane.pulled.insert(lane.next, pulled);
            }
        }
        received
    }

    fn each(&self, receipts: &[Receipt], mut change: impl FnMut(&mut Lane, u64)) {
        let mut lanes = self.0.lanes.lock();
        for receipt in receipts {
            if let (Some(lane), Ok(id)) = (lanes.get_mut(&receipt.lane), receipt.handle.parse()) {
                change(lane, id);
            }
        }
    }
}

fn received_of(lane: u8, id: u64, pulled: &Pulled) -> Received {
    let receipt = Receipt { lane, handle: id.to_string().into() };
    Received { parcel: pulled.parcel.clone(), receipt, deliveries: pulled.deliveries }
}

#[async_trait]
impl BatchQueue for InProcess {
    async fn put(&self, parcels: Vec<QueuedBatch>) -> Result<(), Error> {
        let mut lanes = self.0.lanes.lock();
        for parcel in parcels {
            lanes.entry(parcel.lane).or_default().new.push_back(parcel);
        }
        drop(lanes);
        self.0.put.notify_waiters();
        Ok(())
    }

    async fn pull(&self, lanes: &[u8], max: usize, wait: Duration) -> Result<Vec<Received>, Error> {
        let end = Instant::now() + wait;
        loop {
            let put = self.0.put.notified();
            let received = self.pull_now(lanes, max);
            if !received.is_empty() || Instant::now() >= end {
                return Ok(received);
            }
            // Leases of pulled batches expire.
            let soon = end.min(Instant::now() + self.0.claim_after / 10);
            let _ = tokio::time::timeout_at(soon, put).await;
        }
    }

    async fn extend(&self, receipts: &[Receipt], time: Duration) -> Result<(), Error> {
        let until = Instant::now() + time;
        self.each(receipts, |lane, id| {
            if let Some(pulled) = lane.pulled.get_mut(&id) {
                pulled.until = until;
            }
        });
        Ok(())
    }

    async fn done(&self, receipts: Vec<Receipt>) -> Result<(), Error> {
        self.each(&receipts, |lane, id| {
            lane.pulled.remove(&id);
        });
        Ok(())
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        let lanes = self.0.lanes.lock();
        let depth = |(code, lane): (&u8, &Lane)| LaneDepth {
            lane: *code,
            parcels: (lane.new.len() + lane.pulled.len()) as u64,
            pulled: lane.pulled.len() as u64,
        };
        Ok(lanes.iter().map(depth).collect())
    }
}
