//! What a front does from time to time: ends what expired, forgets what is old, measures the outbox, and hears what
//! other fronts on the same store did to cells, apps and keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use noroshi_store::Error;
use noroshi_types::Timestamp;

use crate::front::Front;

const INTERVAL: Duration = Duration::from_secs(5);
/// A ttl of 0 is worth one try, and clocks of cells differ.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// In one commit.
const ROWS_MAX: usize = 1_000;

pub(crate) async fn run(front: Arc<Front>) {
    loop {
        if let Err(error) = prune(&front).await {
            tracing::warn!(%error, "the outbox could not be cleaned up");
        }
        if let Err(error) = measure(&front).await {
            tracing::warn!(%error, "the outbox could not be measured");
        }
        // Another front on the same store may have made or revoked keys.
        if let Err(error) = front.state.auth.follow().await {
            tracing::warn!(%error, "apps and keys could not be read again");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn prune(front: &Front) -> Result<(), Error> {
    let now = front.state.now();
    let before = |age: Duration| Timestamp(now.0.saturating_sub(age.as_millis() as u64));
    while front.store.prune_relayed(now, before(GRACE), before(front.config.retention), ROWS_MAX).await? {
        // Others write too.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

pub(crate) async fn measure(front: &Front) -> Result<(), Error> {
    let now = front.state.now();
    let depths: HashMap<_, _> =
        front.store.depths().await?.into_iter().map(|depth| (depth.cell, depth)).collect();
    let records = front.store.enrol(Vec::new()).await?;
    for cell in &front.cells {
        let depth = depths.get(&cell.num);
        let parts = depth.map_or(0, |depth| depth.parts);
        cell.waiting.store(parts, Ordering::Relaxed);
        cell.metrics.outbox_parts.set(parts as i64);
        let oldest = depth.and_then(|depth| depth.oldest).map(|oldest| now.saturating_since(oldest));
        cell.metrics.outbox_oldest_seconds.set(oldest.unwrap_or_default().as_secs() as i64);
        if let Some(record) = records.iter().find(|record| record.num == cell.num) {
            cell.said(record);
        }
    }
    Ok(())
}
