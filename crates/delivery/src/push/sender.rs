//! Takes batches from the store's queue while there is room for their recipients, and starts a task for each.
//!
//! Lanes: urgent work and single notifications may fill every place; ordinary campaigns leave a reserve, in total and
//! for each push service. So an urgent message starts at the next take, whatever campaigns have in flight. The sender
//! sleeps until the exact time of the next due batch, or until it is woken.
//!
//! If several nodes share the store, each takes for itself. Campaigns with a rate are sent only by the leader, which
//! counts their turns. With a queue of the cluster, batches come from there (`puller`) instead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_store::{BATCH_RECIPIENTS_MAX, Batch, Lease, Renewal, Take, Taken, Work};
use noroshi_types::{AppId, CampaignId, Lane, PushService};
use tokio::sync::{mpsc, watch};

use super::batch::BatchRunner;
use super::batch_tasks::BatchTasks;
use super::finisher::{self, PAUSE_MAX, PAUSE_MIN};
use super::in_flight::BatchLease;
use super::pipeline::Pipeline;
use super::take::{self, Next, TAKE_LIMITED_MAX, TAKE_MAX, hold_back, repaid, soonest};
use super::{lease, puller};

/// After a long outage of the store many leases have expired. Their owners renew or finish first, and other nodes take
/// batches after this. Longer than a finisher's pause.
const OUTAGE_GRACE: Duration = Duration::from_secs(6);

/// Finished batches that wait to be written.
const READY_MAX: usize = 256;

/// Runs until `drain` is true, then gives batches in flight time until the deadline.
pub(crate) async fn run(pipeline: Arc<Pipeline>, mut drain: watch::Receiver<bool>) {
    let (ready, waiting) = mpsc::channel(READY_MAX);
    let finisher = tokio::spawn(finisher::run(pipeline.clone(), waiting));
    let runner = BatchRunner { pipeline: pipeline.clone(), ready, drain: drain.clone() };
    let mut tasks = BatchTasks::new(runner);
    let work = async {
        tasks.know_plans().await;
        match pipeline.queue.get() {
            // Ends without cancellation: a cancelled pull would leave parcels without an owner for a while.
            Some(queue) => puller::run(&mut tasks, queue.as_ref()).await,
            None => tokio::select! {
                _ = drain.wait_for(|draining| *draining) => {}
                () = tasks.take_forever() => {}
            },
        }
    };
    let mut upkeep = std::pin::pin!(async {
        tokio::join!(lease::keep(&pipeline), pipeline.unwritten.pace());
    });
    tokio::select! {
        () = work => {}
        () = &mut upkeep => {}
    }
    let deadline = tokio::time::Instant::now() + pipeline.config.drain;
    tokio::select! {
        () = tasks.finish(finisher) => {}
        () = upkeep => {}
        () = tokio::time::sleep_until(deadline) => {
            tracing::info!(batches = pipeline.in_flight.batch_count(), "unfinished batches are left to the next start");
            lease::return_all(&pipeline).await;
        }
    }
}

impl BatchTasks {
    fn pipeline(&self) -> &Arc<Pipeline> {
        &self.runner.pipeline
    }

    /// Loads the plans of running campaigns, so that their rates hold from the first batch on.
    async fn know_plans(&self) {
        let pipeline = self.pipeline();
        let now = pipeline.context.now();
        let active =
            self.runner.read(|| pipeline.context.store.active_campaigns(now)).await.unwrap_or_default();
        for campaign in active.iter().filter(|campaign| campaign.started_at.is_some()) {
            pipeline.campaigns.tracker.plan_of(campaign, now);
        }
    }

    async fn take_forever(&mut self) {
        let (mut pause, mut failing) = (PAUSE_MIN, None);
        loop {
            self.remove_finished();
            // Before the look: later work ends the wait.
            let pipeline = self.pipeline().clone();
            let woken = pipeline.work.senders.notified();
            match self.look().await {
                Ok(Next::Now) => tokio::task::yield_now().await,
                Ok(next) => {
                    let sleep = next.sleep(self.pipeline());
                    let _ = tokio::time::timeout(sleep, woken).await;
                }
                Err(noroshi_store::Error::Closed) => return std::future::pending().await,
                Err(error) => {
                    self.pipeline().metrics.store_errors.inc();
                    tracing::warn!(%error, "could not take batches; retrying");
                    let since: Instant = *failing.get_or_insert_with(Instant::now);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    self.wait_for_owners(since).await;
                    continue;
                }
            }
            (pause, failing) = (PAUSE_MIN, None);
        }
    }

    /// After an outage of about a lease, other nodes renew or finish their batches first.
    async fn wait_for_owners(&self, failing: Instant) {
        let pipeline = self.pipeline();
        if !pipeline.config.shared || failing.elapsed() < pipeline.config.lease / 2 {
            return;
        }
        let mut pause = PAUSE_MIN;
        while lease::renew(pipeline, pipeline.in_flight.leases()).await.is_err()
            || pipeline.context.store.place().await.is_err()
        {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        tokio::time::sleep(OUTAGE_GRACE).await;
    }

    /// Takes as many batches as there is room for, once.
    async fn look(&mut self) -> Result<Next, noroshi_store::Error> {
        let flight = self.pipeline().in_flight.clone();
        // Before the look: new room wakes the sender.
        flight.set_sender_waits(true);
        let room = flight.room();
        let short = room.any == 0 || room.campaign == 0 || !room.busy_for_campaigns.is_empty();
        flight.set_sender_waits(short);
        self.report();
        if room.any == 0 {
            return Ok(Next::At(None));
        }
        let limited = self.pipeline().campaigns.tracker.limited();
        let held: Vec<CampaignId> = limited.iter().map(|(id, _)| *id).collect();
        let urgent = [Lane::Extra, Lane::Direct];
        let one_look = room.campaign >= TAKE_MAX * BATCH_RECIPIENTS_MAX / 4
            && room.busy_for_any.len() == room.busy_for_campaigns.len();
        let mut nexts = Vec::new();
        if one_look {
            nexts.push(self.take(room.campaign, room.busy_for_any, held, &Lane::ALL).await?);
        } else {
            nexts.push(self.take(room.any, room.busy_for_any, held.clone(), &urgent).await?);
            if room.campaign > 0 {
                nexts.push(self.take(room.campaign, room.busy_for_campaigns, held, &[Lane::Campaign]).await?);
            }
        }
        if !limited.is_empty() && self.pipeline().leadership.is_ours() {
            nexts.push(self.take_limited(limited).await?);
        }
        nexts.push(repaid(self.pipeline()));
        Ok(soonest(nexts, self.pipeline().context.now()))
    }

    /// Takes batches of campaigns with a rate whose turns are not assigned too far ahead.
    async fn take_limited(
        &mut self,
        limited: Vec<(CampaignId, Duration)>,
    ) -> Result<Next, noroshi_store::Error> {
        let count = limited.len();
        let (held, wait) = hold_back(limited);
        let wait = wait.map_or(Next::At(None), Next::After);
        if held.len() == count {
            return Ok(wait);
        }
        let room = self.pipeline().in_flight.room();
        let room_limited = room.campaign.min(TAKE_LIMITED_MAX * BATCH_RECIPIENTS_MAX);
        if room_limited == 0 {
            return Ok(wait);
        }
        let next = self.take(room_limited, room.busy_for_campaigns, held, &Lane::ALL).await?;
        Ok(soonest(vec![next, wait], self.pipeline().context.now()))
    }

    async fn take(
        &mut self,
        room: usize,
        busy: Vec<(AppId, PushService)>,
        held: Vec<CampaignId>,
        lanes: &[Lane],
    ) -> Result<Next, noroshi_store::Error> {
        let batches_max = (room / BATCH_RECIPIENTS_MAX).clamp(1, TAKE_MAX);
        let lease = self.pipeline().config.lease;
        let now = self.pipeline().context.now();
        let ends = Instant::now() + lease;
        let request = Take { now, lease, batches_max, busy, held, lanes: lanes.to_vec(), sends: true };
        let Taken { batches, next_due, .. } = take::take(self.pipeline(), request).await?;
        self.pipeline().metrics.count_taken(&batches);
        let full = batches.len() >= batches_max;
        for batch in batches {
            if self.is_held_back(&batch).await {
                let lease = Lease { batch: batch.id, until: batch.leased_until };
                lease::give_back(self.pipeline(), lease, Renewal::Returned);
                continue;
            }
            let held = BatchLease::new(batch.leased_until, ends, None);
            self.start(batch, held);
        }
        Ok(if full { Next::Now } else { Next::At(next_due) })
    }

    /// Whether the batch belongs to a campaign with a rate that was unknown when the batch was taken. Only the leader
    /// knows its turns; from now on this node leaves its batches alone.
    async fn is_held_back(&self, batch: &Batch) -> bool {
        let pipeline = self.pipeline();
        let Work::Campaign(id) = batch.work else { return false };
        if !pipeline.config.shared
            || pipeline.campaigns.tracker.plan(id).is_some()
            || pipeline.leadership.is_ours()
        {
            return false;
        }
        self.runner.plan(batch.app, id).await.is_some_and(|plan| plan.ahead().is_some())
    }
}
