//! Background work of the decisions: writing confirmations, removing what has expired, push work.
//!
//! At the drain nothing new is begun: queued confirmations are written, batches under way get
//! [`crate::push::Config::drain`], and what is not finished by then is sent again by the next start.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::cluster;
use crate::delivery::Delivery;
use crate::{first_call, push, quota, share};

/// How often the store is looked through for what has expired.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);

/// The task's name in the store, and how long one node leads it without a word.
const PRUNE: &str = "prune";
const PRUNE_LEASE: Duration = Duration::from_secs(25);

/// Rows of each kind removed in one commit: some milliseconds.
const PRUNE_ROWS: usize = 2_000;

/// Runs until `drain` resolves, then writes what is queued and gives what is under way its time.
pub(crate) async fn run(delivery: Arc<Delivery>, drain: impl Future<Output = ()> + Send) {
    let (drained, draining) = watch::channel(false);
    let told = async {
        drain.await;
        // The receivers are below.
        let _ = drained.send(true);
    };
    let acks = async {
        tokio::select! {
            () = delivery.write_acks_until(wait(draining.clone())) => {}
            () = prune(&delivery) => {}
        }
    };
    let push = async {
        if let Some(side) = delivery.push.get() {
            push::run(&delivery, side, &draining).await;
        }
    };
    // Other nodes are heard until nothing is done here any more.
    tokio::select! {
        _ = async { tokio::join!(told, acks, push) } => {}
        () = cluster::run(&delivery) => {}
        () = first_call::run(&delivery) => {}
        () = quota::refresh::run(&delivery) => {}
        () = share::run(&delivery) => {}
    }
    cluster::finish(&delivery).await;
}

async fn wait(mut draining: watch::Receiver<bool>) {
    let _ = draining.wait_for(|draining| *draining).await;
}

/// Of the nodes that share a store one does it. Cancelled at the drain: another goes on when its lease is over.
async fn prune(delivery: &Delivery) {
    let holder = push::lead::draw();
    loop {
        tokio::time::sleep(PRUNE_INTERVAL).await;
        if !matches!(delivery.store.lead(PRUNE, holder, PRUNE_LEASE).await, Ok(true)) {
            continue;
        }
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
            delivery.became_departed(&pruned.expired);
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
