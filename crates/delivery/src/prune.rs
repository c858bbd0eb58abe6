//! Removes expired rows from the store.
//!
//! One of the nodes that share a store does it: the holder of the task's lease. Other writes run between two commits.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use crate::context::Context;
use crate::holder;

/// The pause between two rounds.
const INTERVAL: Duration = Duration::from_secs(10);

/// The task's name in the store, and the time of its lease.
const TASK: &str = "prune";
const LEASE: Duration = Duration::from_secs(25);

/// Rows of each kind removed in one commit, which takes some milliseconds.
const ROWS: usize = 2_000;

pub(crate) struct Pruner {
    pub(crate) context: Arc<Context>,
    pub(crate) pruned: Counter,
}

impl Pruner {
    /// Never ends. Cancelled at the drain: another node continues when its lease expires.
    pub(crate) async fn run(&self) {
        let holder = holder::draw();
        loop {
            tokio::time::sleep(INTERVAL).await;
            if !matches!(self.context.store.lead(TASK, holder, LEASE).await, Ok(true)) {
                continue;
            }
            while self.prune().await {
                // Other writes run between two parts.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns true if there is more to remove.
    async fn prune(&self) -> bool {
        match self.context.store.prune(self.context.now(), ROWS).await {
            Ok(pruned) => {
                self.context.outcomes.departed(&pruned.departed);
                let rows = pruned.inbox + pruned.topic_log + pruned.notifications + pruned.idempotency;
                self.pruned.inc_by(rows + pruned.items + pruned.deleted_devices + pruned.topics);
                pruned.more
            }
            Err(error) => {
                tracing::warn!(%error, "could not remove expired rows; retrying");
                false
            }
        }
    }
}
