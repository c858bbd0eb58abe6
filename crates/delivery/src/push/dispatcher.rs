//! Puts due batches onto the queue of the cluster, where senders of all nodes pull them. Runs on the leader.
//!
//! The store remains the source of truth. A batch is taken there under a lease that its parcel names, and whatever the
//! queue loses is taken again when the lease expires. Few parcels wait at a time, so that urgent batches are pulled
//! soon. Batches of campaigns with a rate are put when their turn comes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_cluster::batches::{BatchQueue, LaneDepth};
use noroshi_store::{BATCH_RECIPIENTS_MAX, Batch, Error, Lease, Renewal, Take};
use noroshi_types::{CampaignId, Lane};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::batch::BatchRunner;
use super::config::PARCELS_MAX;
use super::finisher::{PAUSE_MAX, PAUSE_MIN};
use super::metrics::ParcelFate;
use super::pipeline::Pipeline;
use super::take::{self, Next, TAKE_LIMITED_MAX, TAKE_MAX, hold_back, repaid, soonest, turn};
use super::{batch_codec, lease};

/// How long a measured depth of the queue is valid.
const DEPTH_AGE: Duration = Duration::from_millis(250);

/// When a full queue is checked again.
const FULL: Duration = Duration::from_millis(50);

struct Dispatcher {
    runner: BatchRunner,
    queue: Arc<dyn BatchQueue>,
    /// Batches of campaigns with a rate that wait for their turn, up to [`TAKE_LIMITED_MAX`] from each take.
    turns: JoinSet<()>,
    depth: Depth,
}

/// The number of waiting parcels in each lane.
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

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Queue(#[from] noroshi_cluster::Error),
}

/// Runs until `drain` is true. Then batches that wait for their turn are given back.
pub(crate) async fn run(pipeline: Arc<Pipeline>, mut drain: watch::Receiver<bool>) {
    let Some(queue) = pipeline.queue.get().cloned() else { return };
    // The dispatcher finishes no batches.
    let (ready, _) = mpsc::channel(1);
    let runner = BatchRunner { pipeline, ready, drain: drain.clone() };
    let depth = Depth { at: None, waiting: [0; Lane::ALL.len()] };
    let mut dispatcher = Dispatcher { runner, queue, turns: JoinSet::new(), depth };
    tokio::select! {
        _ = drain.wait_for(|draining| *draining) => {}
        () = dispatcher.dispatch_forever() => {}
    }
    while dispatcher.turns.join_next().await.is_some() {}
}

impl Dispatcher {
    async fn dispatch_forever(&mut self) {
        let mut pause = PAUSE_MIN;
        let pipeline = self.runner.pipeline.clone();
        loop {
            while self.turns.try_join_next().is_some() {}
            if !pipeline.leadership.is_ours() {
                pipeline.leadership.wait(pipeline.config.sleep_max()).await;
                continue;
            }
            let woken = pipeline.work.dispatcher.notified();
            match self.round().await {
                Ok(Next::Now) => tokio::task::yield_now().await,
                Ok(next) => {
                    let _ = tokio::time::timeout(next.sleep(&pipeline), woken).await;
                }
                Err(Failed::Store(Error::Closed)) => return std::future::pending().await,
                Err(failed) => {
                    self.runner.pipeline.metrics.store_errors.inc();
                    let what = match failed {
                        Failed::Store(_) => "could not take batches",
                        Failed::Queue(_) => "could not put batches onto the queue",
                    };
                    tracing::warn!(error = %failed, "{what}; retrying");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
            }
            pause = PAUSE_MIN;
        }
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
        let limited = self.runner.pipeline.campaigns.tracker.limited();
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
        nexts.push(repaid(&self.runner.pipeline));
        Ok(soonest(nexts, self.runner.pipeline.context.now()))
    }

    async fn take(
        &mut self,
        held: Vec<CampaignId>,
        lanes: &[Lane],
        batches_max: usize,
    ) -> Result<Next, Failed> {
        let pipeline = &self.runner.pipeline;
        let (now, lease) = (lease::even(pipeline.context.now()), pipeline.config.queue_lease);
        let request =
            Take { now, lease, batches_max, busy: Vec::new(), held, lanes: lanes.to_vec(), sends: false };
        let taken = take::take(pipeline, request).await?;
        let full = taken.batches.len() >= batches_max;
        self.depth.add(&taken.batches);
        let mut at_once = Vec::new();
        for batch in taken.batches {
            if let noroshi_store::Work::Campaign(id) = batch.work {
                // Known from here on: its rate holds from the first batch.
                self.runner.plan(batch.app, id).await;
            }
            match turn(&self.runner.pipeline, &batch) {
                Some(turn) if turn > Instant::now() => self.put_at(turn, batch),
                _ => at_once.push(batch),
            }
        }
        put(&self.runner, &self.queue, at_once).await?;
        Ok(if full { Next::Now } else { Next::At(taken.next_due) })
    }

    /// Puts the batch when its turn comes, or gives it back if the node stops first.
    fn put_at(&mut self, turn: Instant, batch: Batch) {
        let (mut runner, queue) = (self.runner.clone(), self.queue.clone());
        self.turns.spawn(async move {
            let waited = tokio::select! {
                () = tokio::time::sleep_until(turn.into()) => true,
                () = drained(&mut runner.drain) => false,
            };
            match waited {
                true => {
                    if let Err(error) = put(&runner, &queue, vec![batch]).await {
                        tracing::warn!(%error, "could not put a batch of a campaign onto the queue; retrying");
                    }
                }
                false => {
                    let lease = Lease { batch: batch.id, until: batch.leased_until };
                    lease::give_back(&runner.pipeline, lease, Renewal::Kept);
                }
            }
        });
    }
}

async fn drained(drain: &mut watch::Receiver<bool>) {
    // An error means that the node is already gone.
    let _ = drain.wait_for(|draining| *draining).await;
}

/// Puts batches onto the queue. Returns them to the store if that fails.
async fn put(
    runner: &BatchRunner,
    queue: &Arc<dyn BatchQueue>,
    batches: Vec<Batch>,
) -> Result<(), noroshi_cluster::Error> {
    if batches.is_empty() {
        return Ok(());
    }
    let parcels: Vec<_> = batches.iter().map(batch_codec::encode).collect();
    let count = parcels.len();
    if let Err(error) = queue.put(parcels).await {
        // Parcels that the queue has anyway name a lease that is over.
        for batch in batches {
            let lease = Lease { batch: batch.id, until: batch.leased_until };
            lease::give_back(&runner.pipeline, lease, Renewal::Kept);
        }
        return Err(error);
    }
    runner.pipeline.metrics.parcels(ParcelFate::Put, count);
    Ok(())
}

const _: () = assert!(PARCELS_MAX as usize * BATCH_RECIPIENTS_MAX > 100_000, "enough for a second of a node");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_delays_no_other() {
        let mut depth = Depth { at: None, waiting: [0; Lane::ALL.len()] };
        let of = |lane: Lane, parcels, pulled| LaneDepth { lane: lane as u8, parcels, pulled };
        depth.read(&[of(Lane::Campaign, PARCELS_MAX + 9, 9), of(Lane::Extra, PARCELS_MAX, 1)]);
        assert_eq!(depth.lanes(), [Lane::Extra, Lane::Direct]);
    }
}
