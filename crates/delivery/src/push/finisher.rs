//! Writes the results of batches and parts of them, several in one commit.
//!
//! A finished batch is never lost: while the store fails, the write is repeated and the lease is kept. Senders wait
//! meanwhile, so the number of waiting results is bounded.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use noroshi_events::Subject;
use noroshi_store::{Finished, Lease};
use noroshi_types::trace::TraceId;
use noroshi_types::{AppId, Lane};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;

use super::in_flight::BatchLease;
use super::lease;
use super::pipeline::Pipeline;

/// Batches in one commit: writing 64 × 500 recipients takes some tens of milliseconds.
const COMMIT_MAX: usize = 64;

/// The pause between two attempts while the store fails.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The results of one batch, or a part of them.
pub(crate) struct BatchResult {
    pub(crate) finished: Finished,
    pub(crate) app: AppId,
    /// Of a part: notified when it is written, and dropped if it never will be.
    pub(crate) written: Option<oneshot::Sender<()>>,
    /// The subject of its events, and the push service.
    pub(crate) of: Subject,
    pub(crate) service: Option<noroshi_types::PushService>,
    pub(crate) trace: Option<TraceId>,
    pub(crate) lane: Lane,
    /// The number of finished recipients, for the campaign's rate.
    pub(crate) done: Option<(noroshi_types::CampaignId, u64)>,
    pub(crate) held: Arc<BatchLease>,
}

/// Runs until no sender is left and everything is written. Not cancel-safe: dropped batches are sent again.
pub(crate) async fn run(pipeline: Arc<Pipeline>, mut ready: Receiver<BatchResult>) {
    let mut together = Vec::new();
    while ready.recv_many(&mut together, COMMIT_MAX).await > 0 {
        while !together.is_empty() {
            let rest = together.split_off(distinct(&together));
            write(&pipeline, std::mem::replace(&mut together, rest)).await;
        }
    }
}

/// How many of the first results are of different batches. A batch whose task panicked may have a part and its end here.
fn distinct(together: &[BatchResult]) -> usize {
    let mut batches = HashSet::with_capacity(together.len());
    together.iter().take_while(|ready| batches.insert(ready.finished.batch)).count()
}

async fn write(pipeline: &Pipeline, mut together: Vec<BatchResult>) {
    let mut pause = PAUSE_MIN;
    let (finished, counts) = loop {
        let written = match ours(pipeline, &mut together).await {
            Ok(finished) if finished.is_empty() => return,
            Ok(finished) => {
                let now = pipeline.context.now();
                pipeline.context.store.finish(finished.clone(), now).await.map(|counts| (finished, counts))
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(written) => break written,
            Err(noroshi_store::Error::Closed) => {
                // The node ends; the batches are sent again after its next start.
                let ended = together.iter().filter(|ready| ready.written.is_none());
                return ended.for_each(|ready| drop(pipeline.in_flight.end(ready.finished.batch)));
            }
            Err(error) => {
                pipeline.metrics.store_errors.inc();
                tracing::warn!(%error, batches = together.len(), "could not write finished batches; retrying");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    };
    let metrics = &pipeline.metrics;
    let mut receipts = Vec::new();
    // Nothing of them is written, and their batches learn it.
    together.retain(|ready| !counts.stale.contains(&ready.finished.batch));
    for ready in &mut together {
        for part in &ready.finished.parts {
            pipeline.context.outcomes.pushed((ready.app, ready.of), ready.service, part, ready.trace);
            pipeline.quotas.count_pushes(ready.app, part.outcome, part.devices.len() as u64);
        }
        metrics.count_finished(&ready.finished, ready.lane);
        if let Some((campaign, done)) = ready.done {
            pipeline.campaigns.tracker.count(campaign, done);
        }
        match ready.written.take() {
            // The batch continues, unless its task has panicked.
            Some(written) => drop(written.send(())),
            None => receipts.extend(pipeline.in_flight.end(ready.finished.batch)),
        }
    }
    lease::done(pipeline, receipts);
    if counts.tokens_removed + counts.tokens_suspected > 0 {
        let gone = finished.iter().flat_map(|finished| finished.gone.iter().map(|gone| gone.device));
        let suspects = finished.iter().flat_map(|finished| finished.suspects.iter().map(|one| one.device));
        pipeline.freshness.nums_changed(gone.chain(suspects));
    }
    pipeline.context.outcomes.departed(&counts.cancelled);
    metrics.tokens_removed.inc_by(counts.tokens_removed);
    metrics.tokens_set_aside.inc_by(counts.tokens_suspected);
    pipeline.context.outcomes.campaigns_done(&counts.done);
    if !counts.done.is_empty() {
        pipeline.work.collector.notify_one();
    }
    // A retry may be due before the next time that the sender knows.
    if finished.iter().any(|finished| !finished.again.is_empty()) {
        pipeline.work.wake_senders();
    }
}

/// The batches that this node still owns. If nodes share the store, a batch that another node took is finished there. A
/// lease that expired while the store was away is renewed if no node took the batch.
async fn ours(
    pipeline: &Pipeline,
    together: &mut Vec<BatchResult>,
) -> Result<Vec<Finished>, noroshi_store::Error> {
    if pipeline.config.shared {
        let expired = together.iter().filter(|ready| !ready.held.is_lost() && !ready.held.is_ours());
        let lease = |ready: &BatchResult| Lease { batch: ready.finished.batch, until: ready.held.until() };
        let expired = expired.map(|ready| (lease(ready), ready.held.clone())).collect();
        lease::renew(pipeline, expired).await?;
        let mut receipts = Vec::new();
        together.retain(|ready| {
            if ready.held.is_lost() && ready.written.is_none() {
                pipeline.metrics.batches_lost.inc();
                receipts.extend(pipeline.in_flight.end(ready.finished.batch));
            }
            !ready.held.is_lost()
        });
        lease::done(pipeline, receipts);
    }
    let finished = together.iter().map(|ready| {
        let mut finished = ready.finished.clone();
        // The lease may have been renewed since the part was made.
        finished.rest.iter_mut().for_each(|rest| rest.leased_until = ready.held.until());
        finished
    });
    Ok(finished.collect())
}
