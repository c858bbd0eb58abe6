//! Writes what became of batches, several in one commit.
//!
//! A finished batch is never lost: while the store does not take it, it is tried again and its lease is kept.
//! Senders wait meanwhile, so what waits here is bounded.

use std::sync::Arc;
use std::time::Duration;

use noroshi_events::Subject;
use noroshi_store::{Finished, Lease};
use noroshi_types::Lane;
use noroshi_types::trace::TraceId;
use tokio::sync::mpsc::Receiver;

use crate::delivery::Delivery;
use crate::push::flight::Held;
use crate::push::lease;
use crate::push::side::Side;

/// Batches in one commit: 64 × 500 recipients are some tens of milliseconds of writing.
const TOGETHER_MAX: usize = 64;

/// Between two attempts at a store that fails.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);

/// One batch's results on their way.
pub(crate) struct Ready {
    pub(crate) finished: Finished,
    /// What it was about, and who was asked.
    pub(crate) of: Subject,
    pub(crate) service: Option<noroshi_types::PushService>,
    pub(crate) trace: Option<TraceId>,
    pub(crate) lane: Lane,
    /// How many recipients are done, for the campaign's rate.
    pub(crate) done: Option<(noroshi_types::CampaignId, u64)>,
    pub(crate) held: Arc<Held>,
}

/// Runs until the last sender is gone and everything is written. Not cancel-safe: batches that are dropped
/// are sent again.
pub(crate) async fn run(delivery: Arc<Delivery>, side: Arc<Side>, mut ready: Receiver<Ready>) {
    let mut together = Vec::new();
    while ready.recv_many(&mut together, TOGETHER_MAX).await > 0 {
        write(&delivery, &side, std::mem::take(&mut together)).await;
    }
}

async fn write(delivery: &Delivery, side: &Side, mut together: Vec<Ready>) {
    let mut pause = PAUSE_MIN;
    let (finished, counts) = loop {
        let written = match ours(delivery, side, &mut together).await {
            Ok(finished) if finished.is_empty() => return,
            Ok(finished) => {
                let now = delivery.clock.now();
                delivery.store.finish(finished.clone(), now).await.map(|counts| (finished, counts))
            }
            Err(error) => Err(error),
        };
        match written {
            Ok(written) => break written,
            Err(noroshi_store::Error::Closed) => {
                // The node ends; the batches are sent again by the next.
                return together.iter().for_each(|ready| drop(side.flight.end(ready.finished.batch)));
            }
            Err(error) => {
                delivery.metrics.push.store_errors.inc();
                tracing::warn!(%error, batches = together.len(), "finished batches could not be written; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    };
    let metrics = &delivery.metrics;
    let mut receipts = Vec::new();
    for ready in &together {
        for part in &ready.finished.parts {
            delivery.became_pushed(ready.of, ready.service, part, ready.trace);
        }
        metrics.push.count_finished(&ready.finished, ready.lane);
        if let Some((campaign, done)) = ready.done {
            side.book.count(campaign, done);
        }
        receipts.extend(side.flight.end(ready.finished.batch));
    }
    lease::done(side, receipts);
    if counts.tokens_removed + counts.tokens_suspected > 0 {
        let gone = finished.iter().flat_map(|finished| finished.gone.iter().map(|gone| gone.device));
        let suspects = finished.iter().flat_map(|finished| finished.suspects.iter().map(|one| one.device));
        delivery.nums_changed(gone.chain(suspects));
    }
    delivery.became_departed(&counts.cancelled);
    metrics.push.tokens_removed.inc_by(counts.tokens_removed);
    metrics.push.tokens_set_aside.inc_by(counts.tokens_suspected);
    delivery.campaigns_done(&counts.done);
    if !counts.done.is_empty() {
        side.collect.notify_one();
    }
    // Retries may be due before anything the sender knows of.
    if finished.iter().any(|finished| !finished.again.is_empty()) {
        side.wake_senders();
    }
}

/// Those that are still ours: where nodes share the store, what another took meanwhile is the other's to finish. A
/// lease that lapsed while the store was away is renewed if nobody took the batch.
async fn ours(
    delivery: &Delivery,
    side: &Side,
    together: &mut Vec<Ready>,
) -> Result<Vec<Finished>, noroshi_store::Error> {
    if side.config.shared {
        let lapsed = together.iter().filter(|ready| !ready.held.is_lost() && !ready.held.is_ours());
        let lease = |ready: &Ready| Lease { batch: ready.finished.batch, until: ready.held.until() };
        let lapsed = lapsed.map(|ready| (lease(ready), ready.held.clone())).collect();
        lease::renew(delivery, side, lapsed).await?;
        let mut receipts = Vec::new();
        together.retain(|ready| {
            if ready.held.is_lost() {
                delivery.metrics.push.batches_lost.inc();
                receipts.extend(side.flight.end(ready.finished.batch));
            }
            !ready.held.is_lost()
        });
        lease::done(side, receipts);
    }
    Ok(together.iter().map(|ready| ready.finished.clone()).collect())
}
