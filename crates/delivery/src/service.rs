//! Background work of the decisions: writing confirmations, removing what has expired.

use std::sync::Arc;
use std::time::Duration;

use crate::delivery::Delivery;

/// How often the store is looked through for what has expired.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);

/// Rows of each kind removed in one commit: some milliseconds.
const PRUNE_ROWS: usize = 2_000;

/// Runs until `drain` resolves, then writes what is queued.
pub(crate) async fn run(delivery: Arc<Delivery>, drain: impl Future<Output = ()> + Send) {
    tokio::select! {
        () = delivery.write_acks_until(drain) => {}
        () = prune(&delivery) => {}
    }
}

async fn prune(delivery: &Delivery) {
    loop {
        tokio::time::sleep(PRUNE_INTERVAL).await;
        while prune_once(delivery).await {
            // Other writes take their turn between two parts.
            tokio::task::yield_now().await;
        }
    }
}

/// True if there is more to remove.
async fn prune_once(delivery: &Delivery) -> bool {
    match delivery.store.prune(delivery.clock.now(), PRUNE_ROWS).await {
        Ok(pruned) => {
            delivery.metrics.outcome(noroshi_types::Outcome::Expired).inc_by(pruned.inbox);
            delivery
                .metrics
                .pruned
                .inc_by(pruned.inbox + pruned.topic_log + pruned.notifications + pruned.idempotency);
            pruned.more
        }
        Err(error) => {
            tracing::warn!(%error, "expired rows could not be removed; trying again later");
            false
        }
    }
}
