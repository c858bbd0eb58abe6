//! Puts batches that are due onto the queue of the cluster, where senders of all nodes pull them.
//!
//! Runs at the leader. The store stays what is owed: a batch is taken there under a lease that its parcel names, and
//! whatever the queue loses is taken again when that lapses. Few parcels wait at a time, so that what cannot wait is soon
//! pulled, and campaigns with a rate are put when it is their turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_cluster::batches::{BatchQueue, LaneDepth};
use noroshi_store::{BATCH_RECIPIENTS_MAX, Batch, Error, Lease, Renewal, Take};
use noroshi_types::{CampaignId, Lane};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::delivery::Delivery;
use crate::push::batch::Way;
use crate::push::config::PARCELS_MAX;
use crate::push::finisher::{PAUSE_MAX, PAUSE_MIN};
use crate::push::metrics::ParcelFate;
use crate::push::sender::{
    Next, SLEEP_MIN, TAKE_LIMITED_MAX, TAKE_MAX, hold_back, repaid, soonest, taken, turn,
};
use crate::push::side::Side;
use crate::push::{lease, parcel};

/// What is known of the queue's depth holds for so long.
const DEPTH_AGE: Duration = Duration::from_millis(250);

/// A queue that is full is looked at again after so long.
const FULL: Duration = Duration::from_millis(50);

struct Dispatcher {
    way: Way,
    queue: Arc<dyn BatchQueue>,
    /// Batches of campaigns with a rate that wait for their turn, some [`TAKE_LIMITED_MAX`] of each take.
    turns: JoinSet<()>,
    depth: Depth,
}

/// Parcels of each lane that nobody has pulled.
struct Depth {
    at: Option<Instant>,
    waiting: [u64; Lane::ALL.len()],
}

impl Depth {
    fn read(&mut self, depths: &[LaneDepth]) {
        self.at = Some(Instant::now());
        for (lane, waiting) in Lane::ALL.into_iter().zip(&mut self.waiting) {
            let of = depths.iter().filter(|depth| depth.lane == lane as u8);
            *waiting = of.map(|depth| depth.parcels.saturating_sub(depth.pulled)).sum();
        }
    }

    fn add(&mut self, batches: &[Batch]) {
        for (lane, waiting) in Lane::ALL.into_iter().zip(&mut self.waiting) {
            *waiting += batches.iter().filter(|batch| batch.lane == lane).count() as u64;
        }
    }

    /// Lanes with room for more.
    fn lanes(&self) -> Vec<Lane> {
        let lanes = Lane::ALL.into_iter().zip(self.waiting);
        lanes.filter(|(_, waiting)| *waiting < PARCELS_MAX).map(|(lane, _)| lane).collect()
    }
}

/// Why a round came to nothing.
enum Failed {
    Store(Error),
    Queue(noroshi_cluster::Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<noroshi_cluster::Error> for Failed {
    fn from(error: noroshi_cluster::Error) -> Self {
        Self::Queue(error)
    }
}

/// Runs until `drain` is true. What waits for its turn is given back then.
pub(crate) async fn run(delivery: Arc<Delivery>, side: Arc<Side>, mut drain: watch::Receiver<bool>) {
    let Some(queue) = side.queue.get().cloned() else { return };
    // Nothing is finished here.
    let (ready, _) = mpsc::channel(1);
    let way = Way { delivery, side, ready, drain: drain.clone() };
    let depth = Depth { at: None, waiting: [0; Lane::ALL.len()] };
    let mut dispatcher = Dispatcher { way, queue, turns: JoinSet::new(), depth };
    tokio::select! {
        _ = drain.wait_for(|draining| *draining) => {}
        () = dispatcher.dispatch_forever() => {}
    }
    while dispatcher.turns.join_next().await.is_some() {}
}

impl Dispatcher {
    async fn dispatch_forever(&mut self) {
        let mut pause = PAUSE_MIN;
        let side = self.way.side.clone();
        loop {
            while self.turns.try_join_next().is_some() {}
            if !side.lead.is_ours() {
                side.lead.wait(side.config.sleep_max()).await;
                continue;
            }
            let woken = side.dispatch.notified();
            match self.round().await {
                Ok(Next::Now) => tokio::task::yield_now().await,
                Ok(next) => {
                    let _ = tokio::time::timeout(self.sleep(next), woken).await;
                }
                Err(Failed::Store(Error::Closed)) => return std::future::pending().await,
                Err(failed) => {
                    self.way.delivery.metrics.push.store_errors.inc();
                    match failed {
                        Failed::Store(error) => {
                            tracing::warn!(%error, "no batches could be taken; trying again")
                        }
                        Failed::Queue(error) => {
                            tracing::warn!(%error, "the queue takes no batches; trying again");
                        }
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
            }
            pause = PAUSE_MIN;
        }
    }

    fn sleep(&self, next: Next) -> Duration {
        let sleep_max = self.way.side.config.sleep_max();
        let sleep = match next {
            Next::Now => Duration::ZERO,
            Next::After(after) => after,
            Next::At(None) => sleep_max,
            Next::At(Some(at)) => at.saturating_since(self.way.delivery.clock.now()),
        };
        sleep.clamp(SLEEP_MIN, sleep_max)
    }

    async fn round(&mut self) -> Result<Next, Failed> {
        if self.depth.at.is_none_or(|at| at.elapsed() > DEPTH_AGE) {
            self.depth.read(&self.queue.depth().await?);
        }
        let lanes = self.depth.lanes();
        if lanes.is_empty() {
            self.depth.at = None;
            return Ok(Next::After(FULL));
        }
        let limited = self.way.side.book.limited();
        let held: Vec<CampaignId> = limited.iter().map(|(id, _)| *id).collect();
        let mut nexts = vec![self.take(held, &lanes, TAKE_MAX).await?];
        if lanes.len() < Lane::ALL.len() {
            self.depth.at = None;
            nexts.push(Next::After(FULL));
        }
        if !limited.is_empty() {
            let count = limited.len();
            let (held, wait) = hold_back(limited);
            nexts.push(wait.map_or(Next::At(None), Next::After));
            if held.len() < count {
                nexts.push(self.take(held, &lanes, TAKE_LIMITED_MAX).await?);
            }
        }
        nexts.push(repaid(&self.way.delivery));
        Ok(soonest(nexts, self.way.delivery.clock.now()))
    }

    async fn take(
        &mut self,
        held: Vec<CampaignId>,
        lanes: &[Lane],
        batches_max: usize,
    ) -> Result<Next, Failed> {
        let Way { delivery, side, .. } = &self.way;
        let (now, lease) = (lease::even(delivery.clock.now()), side.config.queue_lease);
        let take =
            Take { now, lease, batches_max, busy: Vec::new(), held, lanes: lanes.to_vec(), sends: false };
        let taken = taken(&self.way, take).await?;
        let full = taken.batches.len() >= batches_max;
        self.depth.add(&taken.batches);
        let mut at_once = Vec::new();
        for batch in taken.batches {
            if let noroshi_store::Work::Campaign(id) = batch.work {
                // Known from here on: its rate holds from the first batch.
                self.way.plan(batch.app, id).await;
            }
            match turn(&self.way.side, &batch) {
                Some(turn) if turn > Instant::now() => self.put_at(turn, batch),
                _ => at_once.push(batch),
            }
        }
        put(&self.way, &self.queue, at_once).await?;
        Ok(if full { Next::Now } else { Next::At(taken.next_due) })
    }

    /// Puts it when it is its turn, or gives it back if the node stops before.
    fn put_at(&mut self, turn: Instant, batch: Batch) {
        let (mut way, queue) = (self.way.clone(), self.queue.clone());
        self.turns.spawn(async move {
            let waited = tokio::select! {
                () = tokio::time::sleep_until(turn.into()) => true,
                () = drained(&mut way.drain) => false,
            };
            match waited {
                true => {
                    if let Err(error) = put(&way, &queue, vec![batch]).await {
                        tracing::warn!(%error, "the queue took no batch of a campaign; it is tried again");
                    }
                }
                false => {
                    let lease = Lease { batch: batch.id, until: batch.leased_until };
                    lease::give_back(&way.delivery, lease, Renewal::Kept);
                }
            }
        });
    }
}

async fn drained(drain: &mut watch::Receiver<bool>) {
    // An error: the node is gone already.
    let _ = drain.wait_for(|draining| *draining).await;
}

/// What the queue does not take is given back to the store.
async fn put(
    way: &Way,
    queue: &Arc<dyn BatchQueue>,
    batches: Vec<Batch>,
) -> Result<(), noroshi_cluster::Error> {
    if batches.is_empty() {
        return Ok(());
    }
    let parcels: Vec<_> = batches.iter().map(parcel::encode).collect();
    let count = parcels.len();
    if let Err(error) = queue.put(parcels).await {
        // Those that it has all the same name a lease that is over.
        for batch in batches {
            let lease = Lease { batch: batch.id, until: batch.leased_until };
            lease::give_back(&way.delivery, lease, Renewal::Kept);
        }
        return Err(error);
    }
    way.delivery.metrics.push.parcels(ParcelFate::Put, count);
    Ok(())
}

const _: () = assert!(PARCELS_MAX as usize * BATCH_RECIPIENTS_MAX > 100_000, "enough for a second of a node");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_is_full_holds_up_no_other() {
        let mut depth = Depth { at: None, waiting: [0; Lane::ALL.len()] };
        let of = |lane: Lane, parcels, pulled| LaneDepth { lane: lane as u8, parcels, pulled };
        depth.read(&[of(Lane::Campaign, PARCELS_MAX + 9, 9), of(Lane::Extra, PARCELS_MAX, 1)]);
        assert_eq!(depth.lanes(), [Lane::Extra, Lane::Direct]);
    }
}
