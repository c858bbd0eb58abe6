//! Pulls batches from the queue of the cluster while there is room for their recipients.
//!
//! A parcel contains the batch that the dispatcher took, and its lease. Before the sender sends anything it claims that
//! lease in the store. The claim works once for each parcel, so a parcel that the queue returns twice, or whose batch
//! went to another node, is not sent twice.

use std::time::{Duration, Instant};

use noroshi_cluster::batches::{BatchQueue, CLAIM_AFTER, Receipt, Received};
use noroshi_store::{BATCH_RECIPIENTS_MAX, Batch, Error, Lease, Renewal};
use noroshi_types::{AppId, BatchId, Lane, PushService, Timestamp};

use super::batch_tasks::BatchTasks;
use super::finisher::{PAUSE_MAX, PAUSE_MIN};
use super::in_flight::{BatchLease, Room};
use super::metrics::ParcelFate;
use super::pipeline::Pipeline;
use super::take::TAKE_MAX;
use super::{batch_codec, lease};

/// How long one pull waits for a parcel.
const WAIT: Duration = Duration::from_secs(1);

/// The same while a lane has no room, which may change at any moment.
const WAIT_SHORT: Duration = Duration::from_millis(100);

/// Pulls of a parcel without a successful claim, for example because the store was away. Then the batch is left to the
/// store. Failures while sending are counted elsewhere ([`crate::push::batch`]).
const DELIVERIES_MAX: u32 = 5;

/// How long a batch goes back to the store if its push service has too much in flight.
const BUSY: Duration = Duration::from_secs(5);

/// A decoded parcel.
struct Pulled {
    batch: Batch,
    receipt: Receipt,
}

/// Pulls until the node drains.
pub(super) async fn run(tasks: &mut BatchTasks, queue: &dyn BatchQueue) {
    let mut pause = PAUSE_MIN;
    let pipeline = tasks.runner.pipeline.clone();
    while !*tasks.runner.drain.borrow() {
        tasks.remove_finished();
        let woken = pipeline.work.senders.notified();
        pipeline.in_flight.set_sender_waits(true);
        let room = pipeline.in_flight.room();
        tasks.report();
        let lanes: Vec<u8> = lanes(&room).into_iter().map(|lane| lane as u8).collect();
        if lanes.is_empty() {
            let _ = tokio::time::timeout(WAIT, woken).await;
            continue;
        }
        let wait = if lanes.len() == Lane::ALL.len() { WAIT } else { WAIT_SHORT };
        let max = (room.any / BATCH_RECIPIENTS_MAX).clamp(1, TAKE_MAX);
        match queue.pull(&lanes, max, wait).await {
            Ok(received) => {
                pause = PAUSE_MIN;
                start(tasks, received, &room).await;
            }
            Err(error) => {
                pipeline.metrics.store_errors.inc();
                tracing::warn!(%error, "could not pull batches; retrying");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Starts the batches of parcels that this node can claim.
async fn start(tasks: &mut BatchTasks, received: Vec<Received>, room: &Room) {
    if received.is_empty() {
        return;
    }
    let (pulled, poison) = read(received);
    let pipeline = tasks.runner.pipeline.clone();
    let metrics = &pipeline.metrics;
    if !poison.is_empty() {
        tracing::warn!(parcels = poison.len(), "parcels that cannot be read are left to the store");
        metrics.parcels(ParcelFate::Poison, poison.len());
    }
    let (busy, pulled): (Vec<_>, Vec<_>) =
        pulled.into_iter().partition(|one| is_busy(&one.batch, &room.busy_for_any));
    let mut done = poison;
    if !busy.is_empty() {
        metrics.parcels(ParcelFate::Busy, busy.len());
        claim(&pipeline, &busy, BUSY, Renewal::Kept).await;
        done.extend(busy.into_iter().map(|one| one.receipt));
    }
    let lease = pipeline.config.lease;
    // `None`: the store is away. Other nodes pull the parcels, or take the batches from the store.
    if let Some((kept, until, ends)) = claim(&pipeline, &pulled, lease, Renewal::Claimed).await {
        let (mut ours, mut stale) = (Vec::new(), 0);
        for one in pulled {
            match kept.contains(&one.batch.id) {
                true => ours.push(one),
                false => {
                    stale += 1;
                    done.push(one.receipt);
                }
            }
        }
        metrics.parcels(ParcelFate::Claimed, ours.len());
        metrics.parcels(ParcelFate::Stale, stale);
        let batches: Vec<_> = ours.iter().map(|one| one.batch.clone()).collect();
        metrics.count_taken(&batches);
        for Pulled { batch, receipt } in ours {
            tasks.start(batch, BatchLease::new(until, ends, Some(receipt)));
        }
    }
    lease::done(&pipeline, done);
}

/// Claims leases for `lease`. Returns the batches, and the end of the leases by the store's clock and by that of this
/// process.
async fn claim(
    pipeline: &Pipeline,
    pulled: &[Pulled],
    lease: Duration,
    why: Renewal,
) -> Option<(Vec<BatchId>, Timestamp, Instant)> {
    if pulled.is_empty() {
        return Some((Vec::new(), Timestamp(0), Instant::now()));
    }
    let lease_of = |one: &Pulled| Lease { batch: one.batch.id, until: one.batch.leased_until };
    let leases: Vec<_> = pulled.iter().map(lease_of).collect();
    let began = Instant::now();
    let mut pause = PAUSE_MIN;
    while began.elapsed() < CLAIM_AFTER / 2 {
        let ends = Instant::now() + lease;
        let until = lease::until(pipeline.context.now(), lease);
        match pipeline.context.store.renew(leases.clone(), until, lease, why).await {
            Ok(kept) => return Some((kept, until, ends)),
            Err(Error::Closed) => return None,
            Err(error) => {
                pipeline.metrics.store_errors.inc();
                tracing::warn!(%error, "could not claim batches; retrying");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    None
}

fn lanes(room: &Room) -> Vec<Lane> {
    match (room.any, room.campaign) {
        (0, _) => Vec::new(),
        (_, 0) => vec![Lane::Extra, Lane::Direct],
        _ => Lane::ALL.to_vec(),
    }
}

fn is_busy(batch: &Batch, busy: &[(AppId, PushService)]) -> bool {
    busy.iter().any(|(app, service)| batch.app == *app && batch.service == Some(*service))
}

/// Separates parcels that can be sent from those left to the store.
fn read(received: Vec<Received>) -> (Vec<Pulled>, Vec<Receipt>) {
    let (mut pulled, mut poison) = (Vec::new(), Vec::new());
    for Received { parcel, receipt, deliveries } in received {
        match batch_codec::decode(&parcel).filter(|_| deliveries <= DELIVERIES_MAX) {
            Some(batch) => pulled.push(Pulled { batch, receipt }),
            None => poison.push(receipt),
        }
    }
    (pulled, poison)
}
