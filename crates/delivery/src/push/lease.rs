//! Keeping batches: leases are renewed long before they lapse, given back where a batch is not sent after all, and what
//! came by a queue stays the puller's there as well.
//!
//! Whose a batch is the store alone says: each renewal names the lease as the holder knows it and moves that one or none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_cluster::batches::{CLAIM_AFTER, Receipt};
use noroshi_store::{Error, Lease, Renewal};
use noroshi_types::Timestamp;

use crate::delivery::Delivery;
use crate::push::flight::Held;
use crate::push::side::Side;

/// How long a node that leaves waits for a store to take back what was under way.
const RETURN: Duration = Duration::from_secs(2);

/// After a renewal that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Until when a sender's lease is to hold. Odd, where those of the dispatcher are even: the lease that a parcel names is
/// none that a sender ever had, so a parcel that is pulled twice claims its batch once.
pub(crate) fn until(now: Timestamp, lease: Duration) -> Timestamp {
    Timestamp(now.saturating_add(lease).0 | 1)
}

/// The time for a take whose leases are the dispatcher's; see [`until`].
pub(crate) fn even(now: Timestamp) -> Timestamp {
    Timestamp(now.0 & !1)
}

/// Runs as long as anything is under way. Cancel-safe.
pub(crate) async fn keep(delivery: &Delivery, side: &Side) {
    // What is on a queue is nobody's sooner than what is in the store.
    let often = match side.queue.get() {
        Some(_) => side.config.lease.min(CLAIM_AFTER) / 3,
        None => side.config.lease / 3,
    };
    let mut pause = often;
    loop {
        tokio::time::sleep(pause).await;
        pause = match renew(delivery, side, side.flight.leases()).await {
            Ok(()) => often,
            Err(error) => {
                tracing::warn!(%error, "leases could not be renewed; trying again");
                AGAIN.min(often)
            }
        };
        extend(side).await;
    }
}

/// Renews what is still ours; the rest is marked as lost where nodes share the store.
pub(crate) async fn renew(
    delivery: &Delivery,
    side: &Side,
    leases: Vec<(Lease, Arc<Held>)>,
) -> Result<(), Error> {
    if leases.is_empty() {
        return Ok(());
    }
    let ends = Instant::now() + side.config.lease;
    let until = until(delivery.clock.now(), side.config.lease);
    let asked = leases.iter().map(|(lease, _)| *lease).collect();
    let kept = delivery.store.renew(asked, until, side.config.lease, Renewal::Kept).await?;
    let kept: std::collections::HashSet<_> = kept.into_iter().collect();
    for (lease, held) in leases {
        match kept.contains(&lease.batch) {
            true => held.renewed(until, ends),
            // Finished just now, or renewed by another call, which knows better.
            false if held.until() != lease.until => {}
            false if side.config.shared => held.lose(),
            false => {}
        }
    }
    Ok(())
}

async fn extend(side: &Side) {
    let Some(queue) = side.queue.get() else { return };
    let leases = side.flight.leases();
    let receipts: Vec<Receipt> = leases.iter().filter_map(|(_, held)| held.receipt().cloned()).collect();
    if receipts.is_empty() {
        return;
    }
    if let Err(error) = queue.extend(&receipts, CLAIM_AFTER).await {
        // Another sender pulls them, finds that the store has given them away, and leaves them alone.
        tracing::debug!(%error, "parcels could not be extended");
    }
}

/// All that is under way when the node leaves: it is taken anew, and nothing of it ended its sender.
pub(crate) async fn return_all(delivery: &Delivery, side: &Side) {
    let leases: Vec<_> = side.flight.leases().into_iter().map(|(lease, _)| lease).collect();
    let returned = delivery.store.renew(leases, Timestamp(0), Duration::ZERO, Renewal::Returned);
    match tokio::time::timeout(RETURN, returned).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "batches could not be given back"),
        Err(_) => tracing::debug!("batches could not be given back in time"),
    }
}

/// The take of a batch does not count, and nobody takes it sooner for that.
pub(crate) fn uncount(delivery: &Arc<Delivery>, side: &Side, lease: Lease) {
    let (delivery, time) = (delivery.clone(), side.config.lease);
    tokio::spawn(async move {
        if let Err(error) = delivery.store.renew(vec![lease], lease.until, time, Renewal::Returned).await {
            tracing::debug!(%error, "a take counts that should not");
        }
    });
}

/// Others may take it at once. Where that fails, they may when the lease lapses.
pub(crate) fn give_back(delivery: &Arc<Delivery>, lease: Lease, why: Renewal) {
    let delivery = delivery.clone();
    tokio::spawn(async move {
        if let Err(error) = delivery.store.renew(vec![lease], Timestamp(0), Duration::ZERO, why).await {
            tracing::debug!(%error, "a batch could not be given back");
        }
    });
}

/// The queue forgets what is finished in the store, or left to it. Where that fails, somebody pulls it once more in vain.
pub(crate) fn done(side: &Side, receipts: Vec<Receipt>) {
    let Some(queue) = side.queue.get().filter(|_| !receipts.is_empty()).cloned() else { return };
    tokio::spawn(async move {
        if let Err(error) = queue.done(receipts).await {
            tracing::debug!(%error, "finished parcels could not be removed from the queue");
        }
    });
}
