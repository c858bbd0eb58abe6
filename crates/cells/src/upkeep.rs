//! Periodic work of a front: expires messages, deletes old ones, measures the outbox, and reads changes that other
//! fronts on the same store made to cells, apps and keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use noroshi_store::Error;
use noroshi_types::Timestamp;

use crate::cell_set::CellSet;

const INTERVAL: Duration = Duration::from_secs(5);
/// A ttl of 0 allows one attempt, and the clocks of cells differ.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// Rows per commit.
const ROWS_MAX: usize = 1_000;

pub(crate) async fn run(cells: Arc<CellSet>) {
    loop {
        if let Err(error) = prune(&cells).await {
            tracing::warn!(%error, "failed to clean up the outbox");
        }
        if let Err(error) = measure(&cells).await {
            tracing::warn!(%error, "failed to measure the outbox");
        }
        // Another front on the same store may have made or revoked keys.
        if let Err(error) = cells.state.auth.follow().await {
            tracing::warn!(%error, "failed to reload apps and keys");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn prune(cells: &CellSet) -> Result<(), Error> {
    let now = cells.state.now();
    let before = |age: Duration| Timestamp(now.0.saturating_sub(age.as_millis() as u64));
    while cells.store.prune_relayed(now, before(GRACE), before(cells.config.retention), ROWS_MAX).await? {
        // Leaves room for other writers.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

pub(crate) async fn measure(cells: &CellSet) -> Result<(), Error> {
    let now = cells.state.now();
    let depths: HashMap<_, _> =
        cells.store.depths().await?.into_iter().map(|depth| (depth.cell, depth)).collect();
    let records = cells.store.enrol(Vec::new()).await?;
    for cell in cells.iter() {
        let depth = depths.get(&cell.num);
        let parts = depth.map_or(0, |depth| depth.parts);
        cell.waiting.store(parts, Ordering::Relaxed);
        cell.metrics.outbox_parts.set(parts as i64);
        let oldest = depth.and_then(|depth| depth.oldest).map(|oldest| now.saturating_since(oldest));
        cell.metrics.outbox_oldest_seconds.set(oldest.unwrap_or_default().as_secs() as i64);
        if let Some(record) = records.iter().find(|record| record.num == cell.num) {
            cell.apply(record);
        }
    }
    Ok(())
}
