//! Pulls batches from the queue of the cluster as there is room for their recipients.
//!
//! A parcel says what the dispatcher took and under which lease. Before anything is sent the sender makes the lease its
//! own in the store; that works once for each parcel, so one that the queue hands out twice, or that came after its batch
//! was given to another, is sent by nobody else.

use std::time::{Duration, Instant};

use noroshi_cluster::batches::{BatchQueue, CLAIM_AFTER, Receipt, Received};
use noroshi_store::{BATCH_RECIPIENTS_MAX, Batch, Error, Lease, Renewal};
use noroshi_types::{AppId, BatchId, Lane, PushService, Timestamp};

use crate::push::finisher::{PAUSE_MAX, PAUSE_MIN};
use crate::push::flight::{Held, Room};
use crate::push::metrics::ParcelFate;
use crate::push::sender::{Sender, TAKE_MAX};
use crate::push::{lease, parcel};

/// One look at the queue waits so long for something to come.
const WAIT: Duration = Duration::from_secs(1);

/// The same where a lane is left out for want of room, which may be there any moment.
const WAIT_SHORT: Duration = Duration::from_millis(100);

/// So often a parcel is pulled at most without that its batch became its puller's, for want of a store perhaps; then the
/// store has it again. What fails while it is sent is counted where it is sent ([`crate::push::batch`]).
const DELIVERIES_MAX: u32 = 5;

/// A batch whose push service has enough under way goes back to the store for so long.
const BUSY: Duration = Duration::from_secs(5);

/// A parcel that was read.
struct Pulled {
    batch: Batch,
    receipt: Receipt,
}

impl Sender {
    /// Until the node drains.
    pub(super) async fn pull_forever(&mut self, queue: &dyn BatchQueue) {
        let mut pause = PAUSE_MIN;
        while !*self.way.drain.borrow() {
            while self.batches.try_join_next().is_some() {}
            let side = self.way.side.clone();
            let woken = side.flight.wake.notified();
            side.flight.want(true);
            let room = side.flight.room();
            self.show();
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
                    self.received(received, &room).await;
                }
                Err(error) => {
                    self.way.delivery.metrics.push.store_errors.inc();
                    tracing::warn!(%error, "no batches could be pulled; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn received(&mut self, received: Vec<Received>, room: &Room) {
        if received.is_empty() {
            return;
        }
        let (pulled, poison) = read(received);
        let metrics = self.way.delivery.metrics.push.clone();
        if !poison.is_empty() {
            tracing::warn!(parcels = poison.len(), "parcels that cannot be sent are left to the store");
            metrics.parcels(ParcelFate::Poison, poison.len());
        }
        let (busy, pulled): (Vec<_>, Vec<_>) =
            pulled.into_iter().partition(|one| is_busy(&one.batch, &room.busy_for_any));
        let mut done = poison;
        if !busy.is_empty() {
            metrics.parcels(ParcelFate::Busy, busy.len());
            self.claim(&busy, BUSY, Renewal::Kept).await;
            done.extend(busy.into_iter().map(|one| one.receipt));
        }
        let lease = self.way.side.config.lease;
        // None: the store is away; others pull them, or it gives them out anew.
        if let Some((kept, until, ends)) = self.claim(&pulled, lease, Renewal::Claimed).await {
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
                self.start(batch, Held::new(until, ends, Some(receipt)));
            }
        }
        lease::done(&self.way.side, done);
    }

    /// Makes the leases ours for so long; of which batches, and until when, by the store's clock and by ours.
    async fn claim(
        &self,
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
            let until = lease::until(self.way.delivery.clock.now(), lease);
            match self.way.delivery.store.renew(leases.clone(), until, lease, why).await {
                Ok(kept) => return Some((kept, until, ends)),
                Err(Error::Closed) => return None,
                Err(error) => {
                    self.way.delivery.metrics.push.store_errors.inc();
                    tracing::warn!(%error, "batches could not be claimed; trying again");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        None
    }
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

/// What can be sent, and what is left to the store.
fn read(received: Vec<Received>) -> (Vec<Pulled>, Vec<Receipt>) {
    let (mut pulled, mut poison) = (Vec::new(), Vec::new());
    for Received { parcel, receipt, deliveries } in received {
        match parcel::decode(&parcel).filter(|_| deliveries <= DELIVERIES_MAX) {
            Some(batch) => pulled.push(Pulled { batch, receipt }),
            None => poison.push(receipt),
        }
    }
    (pulled, poison)
}
