//! Leases of batches: renewed long before they expire, and given back if a batch is not sent. The entries
//! of batches in the queue of the cluster are extended too.
//!
//! Only the store knows the owner of a batch: each renewal names the lease that the owner knows, and moves that one or
//! none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_cluster::batches::{CLAIM_AFTER, Receipt};
use noroshi_store::{Error, Lease, Renewal};
use noroshi_types::Timestamp;

use super::in_flight::BatchLease;
use super::pipeline::Pipeline;

/// How long a node that stops waits until the store has taken back batches in flight.
const RETURN: Duration = Duration::from_secs(2);

/// The pause after a failed renewal.
const RETRY: Duration = Duration::from_secs(1);

/// The end of a sender's lease. Odd, while those of the dispatcher are even: a parcel never names the lease of a
/// sender, so a parcel that is pulled twice claims its batch once.
pub(crate) fn until(now: Timestamp, lease: Duration) -> Timestamp {
    Timestamp(now.saturating_add(lease).0 | 1)
}

/// The time of a take by the dispatcher; see [`until`].
pub(crate) fn even(now: Timestamp) -> Timestamp {
    Timestamp(now.0 & !1)
}

/// Renews the leases of batches in flight. Cancel-safe.
pub(crate) async fn keep(pipeline: &Pipeline) {
    // The claim on a parcel ends before the lease in the store.
    let often = match pipeline.queue.get() {
        Some(_) => pipeline.config.lease.min(CLAIM_AFTER) / 3,
        None => pipeline.config.lease / 3,
    };
    let mut pause = often;
    loop {
        tokio::time::sleep(pause).await;
        pause = match renew(pipeline, pipeline.in_flight.leases()).await {
            Ok(()) => often,
            Err(error) => {
                tracing::warn!(%error, "leases could not be renewed; retrying");
                RETRY.min(often)
            }
        };
        extend(pipeline).await;
    }
}

/// Renews leases that this node still has. If nodes share the store, the others are marked as lost.
pub(crate) async fn renew(pipeline: &Pipeline, leases: Vec<(Lease, Arc<BatchLease>)>) -> Result<(), Error> {
    if leases.is_empty() {
        return Ok(());
    }
    let ends = Instant::now() + pipeline.config.lease;
    let until = until(pipeline.context.now(), pipeline.config.lease);
    let asked = leases.iter().map(|(lease, _)| *lease).collect();
    let kept = pipeline.context.store.renew(asked, until, pipeline.config.lease, Renewal::Kept).await?;
    let kept: std::collections::HashSet<_> = kept.into_iter().collect();
    for (lease, held) in leases {
        match kept.contains(&lease.batch) {
            true => held.renewed(until, ends),
            // Finished just now, or renewed by another call.
            false if held.until() != lease.until => {}
            false if pipeline.config.shared => held.lose(),
            false => {}
        }
    }
    Ok(())
}

async fn extend(pipeline: &Pipeline) {
    let Some(queue) = pipeline.queue.get() else { return };
    let leases = pipeline.in_flight.leases();
    let receipts: Vec<Receipt> = leases.iter().filter_map(|(_, held)| held.receipt().cloned()).collect();
    if receipts.is_empty() {
        return;
    }
    if let Err(error) = queue.extend(&receipts, CLAIM_AFTER).await {
        // Another sender pulls them, and finds in the store that this node has them.
        tracing::debug!(%error, "parcels could not be extended");
    }
}

/// Returns all batches in flight when the node stops. They are taken again, and the takes do not count.
pub(crate) async fn return_all(pipeline: &Pipeline) {
    let leases: Vec<_> = pipeline.in_flight.leases().into_iter().map(|(lease, _)| lease).collect();
    let returned = pipeline.context.store.renew(leases, Timestamp(0), Duration::ZERO, Renewal::Returned);
    match tokio::time::timeout(RETURN, returned).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "batches could not be given back"),
        Err(_) => tracing::debug!("batches could not be given back in time"),
    }
}

/// Makes the take of a batch not count, without freeing the batch earlier.
pub(crate) fn uncount(pipeline: &Arc<Pipeline>, lease: Lease) {
    let (pipeline, time) = (pipeline.clone(), pipeline.config.lease);
    tokio::spawn(async move {
        if let Err(error) =
            pipeline.context.store.renew(vec![lease], lease.until, time, Renewal::Returned).await
        {
            tracing::debug!(%error, "a take counts that should not");
        }
    });
}

/// Frees the batch at once. If that fails, its lease expires.
pub(crate) fn give_back(pipeline: &Arc<Pipeline>, lease: Lease, why: Renewal) {
    let pipeline = pipeline.clone();
    tokio::spawn(async move {
        if let Err(error) = pipeline.context.store.renew(vec![lease], Timestamp(0), Duration::ZERO, why).await
        {
            tracing::debug!(%error, "a batch could not be given back");
        }
    });
}

/// Removes parcels from the queue that are finished in the store, or left to it. If that fails, a sender pulls them
/// again and finds nothing to send.
pub(crate) fn done(pipeline: &Pipeline, receipts: Vec<Receipt>) {
    let Some(queue) = pipeline.queue.get().filter(|_| !receipts.is_empty()).cloned() else { return };
    tokio::spawn(async move {
        if let Err(error) = queue.done(receipts).await {
            tracing::debug!(%error, "finished parcels could not be removed from the queue");
        }
    });
}
