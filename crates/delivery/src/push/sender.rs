//! Takes batches from the store's queue while there is room for their recipients, and starts a task for each.
//!
//! Lanes: urgent work and single notifications may fill every place; ordinary campaigns leave a reserve, in total and for
//! each push service. So an urgent message starts at the next take, whatever campaigns have in flight. The sender sleeps
//! until the exact time of the next due batch, or until it is woken.
//!
//! If several nodes share the store, each takes for itself. Campaigns with a rate are sent only by the leader, which counts
//! their turns. With a queue of the cluster, batches come from there (`puller`) instead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_cluster::batches::Receipt;
use noroshi_store::{
    BATCH_RECIPIENTS_MAX, Batch, Lease, PushPart, Renewal, SENDER_ENDED, SetAside, TAKES_MAX, Take, Taken,
    Work,
};
use noroshi_types::{AppId, CampaignId, Lane, Outcome, PushService, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::batch::{BatchRunner, LeasedBatch};
use super::finisher::{self, PAUSE_MAX, PAUSE_MIN};
use super::in_flight::Held;
use super::lease;
use super::pipeline::Pipeline;
use crate::outcomes::subject;

/// Batches of one take, which is one commit. Small batches (a campaign with variants retries one for each) leave room that
/// the next take fills.
pub(super) const TAKE_MAX: usize = 64;

/// Batches of campaigns with a rate in one take. Few, because the store decides how many of each campaign it returns. Turns
/// count recipients, so after small batches the next take is earlier.
pub(super) const TAKE_LIMITED_MAX: usize = 4;

/// How far ahead the turns of a campaign with a rate are assigned. A pause takes effect after this.
const AHEAD: Duration = Duration::from_millis(250);

/// The shortest sleep, if something due was not taken because it is busy or held.
pub(super) const SLEEP_MIN: Duration = Duration::from_millis(20);

/// After a long outage of the store many leases have expired. Their owners renew or finish first, and other nodes take
/// batches after this. Longer than a finisher's pause.
const OUTAGE_GRACE: Duration = Duration::from_secs(6);

/// Finished batches that wait to be written.
const READY_MAX: usize = 256;

pub(crate) struct Sender {
    pub(super) runner: BatchRunner,
    pub(super) batches: JoinSet<()>,
}

/// When to look at the queue again.
pub(super) enum Next {
    /// At once: there may be more.
    Now,
    At(Option<Timestamp>),
    /// When the rate of a campaign allows it.
    After(Duration),
}

/// Runs until `drain` is true, then gives batches in flight time until the deadline.
pub(crate) async fn run(pipeline: Arc<Pipeline>, mut drain: watch::Receiver<bool>) {
    let (ready, waiting) = mpsc::channel(READY_MAX);
    let finisher = tokio::spawn(finisher::run(pipeline.clone(), waiting));
    let runner = BatchRunner { pipeline: pipeline.clone(), ready, drain: drain.clone() };
    let mut sender = Sender { runner, batches: JoinSet::new() };
    let work = async {
        sender.know_plans().await;
        match pipeline.queue.get() {
            // Ends without cancellation: a cancelled pull would leave parcels without an owner for a while.
            Some(queue) => sender.pull_forever(queue.as_ref()).await,
            None => tokio::select! {
                _ = drain.wait_for(|draining| *draining) => {}
                () = sender.take_forever() => {}
            },
        }
    };
    tokio::select! {
        () = work => {}
        () = lease::keep(&pipeline) => {}
    }
    let deadline = tokio::time::Instant::now() + pipeline.config.drain;
    tokio::select! {
        () = sender.end(finisher) => {}
        () = lease::keep(&pipeline) => {}
        () = tokio::time::sleep_until(deadline) => {
            tracing::info!(batches = pipeline.in_flight.batch_count(), "unfinished batches are left to the next start");
            lease::return_all(&pipeline).await;
        }
    }
}

impl Sender {
    /// Waits for all batches in flight, and until their results are written.
    async fn end(self, finisher: tokio::task::JoinHandle<()>) {
        let Sender { runner, mut batches } = self;
        while batches.join_next().await.is_some() {}
        // The finisher ends when nothing can send to it.
        drop(runner);
        let _ = finisher.await;
    }

    /// Loads the plans of running campaigns, so that their rates hold from the first batch on.
    async fn know_plans(&self) {
        let pipeline = &self.runner.pipeline;
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
            while self.batches.try_join_next().is_some() {}
            // Before the look: later work ends the wait.
            let pipeline = self.runner.pipeline.clone();
            let woken = pipeline.work.senders.notified();
            match self.look().await {
                Ok(Next::Now) => tokio::task::yield_now().await,
                Ok(next) => {
                    let sleep = self.sleep(next);
                    let _ = tokio::time::timeout(sleep, woken).await;
                }
                Err(noroshi_store::Error::Closed) => return std::future::pending().await,
                Err(error) => {
                    self.runner.pipeline.metrics.store_errors.inc();
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
        let pipeline = &self.runner.pipeline;
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

    pub(super) fn show(&self) {
        let (flight, metrics) = (&self.runner.pipeline.in_flight, &self.runner.pipeline.metrics);
        metrics.recipients_in_flight.set(i64::try_from(flight.recipients()).unwrap_or(i64::MAX));
        metrics.batches_in_flight.set(i64::try_from(flight.batch_count()).unwrap_or(i64::MAX));
    }

    fn sleep(&self, next: Next) -> Duration {
        let sleep_max = self.runner.pipeline.config.sleep_max();
        let sleep = match next {
            Next::Now => Duration::ZERO,
            Next::After(after) => after,
            Next::At(None) => sleep_max,
            Next::At(Some(at)) => at.saturating_since(self.runner.pipeline.context.now()),
        };
        sleep.clamp(SLEEP_MIN, sleep_max)
    }

    /// Takes what there is room for, once.
    async fn look(&mut self) -> Result<Next, noroshi_store::Error> {
        let flight = self.runner.pipeline.in_flight.clone();
        // Before the look: new room wakes the sender.
        flight.set_sender_waits(true);
        let room = flight.room();
        let short = room.any == 0 || room.campaign == 0 || !room.busy_for_campaigns.is_empty();
        flight.set_sender_waits(short);
        self.show();
        if room.any == 0 {
            return Ok(Next::At(None));
        }
        let limited = self.runner.pipeline.campaigns.tracker.limited();
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
        if !limited.is_empty() && self.runner.pipeline.leadership.is_ours() {
            nexts.push(self.take_limited(limited).await?);
        }
        nexts.push(repaid(&self.runner.pipeline));
        Ok(soonest(nexts, self.runner.pipeline.context.now()))
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
        let room = self.runner.pipeline.in_flight.room();
        let room_limited = room.campaign.min(TAKE_LIMITED_MAX * BATCH_RECIPIENTS_MAX);
        if room_limited == 0 {
            return Ok(wait);
        }
        let next = self.take(room_limited, room.busy_for_campaigns, held, &Lane::ALL).await?;
        Ok(soonest(vec![next, wait], self.runner.pipeline.context.now()))
    }

    async fn take(
        &mut self,
        room: usize,
        busy: Vec<(AppId, PushService)>,
        held: Vec<CampaignId>,
        lanes: &[Lane],
    ) -> Result<Next, noroshi_store::Error> {
        let batches_max = (room / BATCH_RECIPIENTS_MAX).clamp(1, TAKE_MAX);
        let lease = self.runner.pipeline.config.lease;
        let now = self.runner.pipeline.context.now();
        let ends = Instant::now() + lease;
        let take = Take { now, lease, batches_max, busy, held, lanes: lanes.to_vec(), sends: true };
        let Taken { batches, next_due, .. } = taken(&self.runner, take).await?;
        self.runner.pipeline.metrics.count_taken(&batches);
        let full = batches.len() >= batches_max;
        for batch in batches {
            if self.is_held_back(&batch).await {
                let lease = Lease { batch: batch.id, until: batch.leased_until };
                lease::give_back(&self.runner.pipeline, lease, Renewal::Returned);
                continue;
            }
            let held = Held::new(batch.leased_until, ends, None);
            self.start(batch, held);
        }
        Ok(if full { Next::Now } else { Next::At(next_due) })
    }

    /// Whether the batch belongs to a campaign with a rate that was unknown when the batch was taken. Only the leader knows
    /// its turns; from now on this node leaves its batches alone.
    async fn is_held_back(&self, batch: &Batch) -> bool {
        let pipeline = &self.runner.pipeline;
        let Work::Campaign(id) = batch.work else { return false };
        if !pipeline.config.shared
            || pipeline.campaigns.tracker.plan(id).is_some()
            || pipeline.leadership.is_ours()
        {
            return false;
        }
        self.runner.plan(batch.app, id).await.is_some_and(|plan| plan.ahead().is_some())
    }

    /// Starts the task of a batch.
    pub(super) fn start(&mut self, batch: Batch, held: Held) {
        let pipeline = &self.runner.pipeline;
        let receipt: Option<Receipt> = held.receipt().cloned();
        let lease = Lease { batch: batch.id, until: batch.leased_until };
        let Some((recipients, held)) = pipeline.in_flight.begin(&batch, held) else {
            lease::uncount(&self.runner.pipeline, lease);
            return lease::done(pipeline, receipt.into_iter().collect());
        };
        let turn = match pipeline.queue.get() {
            // The dispatcher waited for its turn.
            Some(_) => None,
            None => turn(pipeline, &batch),
        };
        let leased = LeasedBatch { batch, recipients, held, taken: Instant::now(), turn };
        self.batches.spawn(self.runner.clone().run(leased));
    }
}

/// Takes batches from the store, and reports what the take decided.
pub(super) async fn taken(runner: &BatchRunner, mut take: Take) -> Result<Taken, noroshi_store::Error> {
    let pipeline = &runner.pipeline;
    take.busy.extend(in_debt(pipeline));
    let taken = pipeline.context.store.take(take).await?;
    for batch in taken.batches.iter().filter(|batch| batch.service.is_some()) {
        pipeline.quotas.pushed(batch.app, batch.recipients.len() as u64);
    }
    pipeline.context.outcomes.departed(&taken.departed);
    pipeline.context.outcomes.campaigns_done(&taken.done);
    if !taken.departed.is_empty() || !taken.set_aside.is_empty() {
        // Batches may be gone without a take: the collector counts again.
        pipeline.work.collector.notify_one();
    }
    for SetAside { batch, app, service, lane, work, recipients } in &taken.set_aside {
        let count = recipients.len() as u64;
        tracing::warn!(
            batch = batch.0,
            app = app.0,
            recipients = count,
            takes = TAKES_MAX,
            "a batch was set aside: every process that sent it ended before it was done"
        );
        let (outcome, reason) = (Outcome::PushRefused, Some(SENDER_ENDED));
        let part = PushPart { outcome, reason, variant: None, devices: recipients.clone() };
        pipeline.context.outcomes.pushed(subject(*work), *service, &part, None);
        pipeline.metrics.count(outcome, reason, *lane, count);
        pipeline.metrics.batches_set_aside.inc();
    }
    for batch in &taken.batches {
        if pipeline.walk_depth.taken(batch.campaign.map_or(batch.work, Work::Campaign)) {
            pipeline.work.collector.notify_one();
        }
    }
    Ok(taken)
}

/// Push services of apps that exceeded their quota: their work stays in the store until the debt is repaid.
fn in_debt(pipeline: &Pipeline) -> impl Iterator<Item = (AppId, PushService)> {
    let debts = pipeline.quotas.push_debts();
    debts.into_iter().flat_map(|(app, _)| PushService::ALL.map(|service| (app, service)))
}

/// When the first app in debt may continue.
pub(super) fn repaid(pipeline: &Pipeline) -> Next {
    let first = pipeline.quotas.push_debts().into_iter().map(|(_, debt)| debt).min();
    first.map_or(Next::At(None), Next::After)
}

/// When the rate of its campaign allows the batch.
pub(super) fn turn(pipeline: &Pipeline, batch: &Batch) -> Option<Instant> {
    match batch.work {
        Work::Campaign(id) => {
            pipeline.campaigns.tracker.plan(id).and_then(|plan| plan.turn(batch.recipients.len()))
        }
        Work::Notification(_) => None,
    }
}

/// Of campaigns, with how far ahead their turns are assigned: those that must wait, and the shortest wait.
pub(super) fn hold_back(limited: Vec<(CampaignId, Duration)>) -> (Vec<CampaignId>, Option<Duration>) {
    let held: Vec<_> = limited.into_iter().filter(|(_, ahead)| *ahead > AHEAD).collect();
    let wait = held.iter().map(|(_, ahead)| ahead.saturating_sub(AHEAD)).min();
    (held.into_iter().map(|(id, _)| id).collect(), wait)
}

pub(super) fn soonest(nexts: Vec<Next>, now: Timestamp) -> Next {
    let mut soonest: Option<Duration> = None;
    for next in nexts {
        let wait = match next {
            Next::Now => return Next::Now,
            Next::After(after) => Some(after),
            Next::At(at) => at.map(|at| at.saturating_since(now)),
        };
        soonest = match (soonest, wait) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    soonest.map_or(Next::At(None), Next::After)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_campaign_delays_no_other() {
        let [fast, resting, slow] = [1, 2, 3].map(|n| CampaignId::from_bytes([n; 16]));
        let ms = Duration::from_millis;
        let (held, wait) = hold_back(vec![(fast, ms(400)), (resting, ms(0)), (slow, ms(9_000))]);
        assert_eq!((held, wait), (vec![fast, slow], Some(ms(150))));
        assert_eq!(hold_back(vec![(resting, AHEAD)]), (vec![], None));
        let next = soonest(vec![Next::At(None), Next::After(ms(150))], Timestamp(0));
        assert!(matches!(next, Next::After(wait) if wait == ms(150)));
    }
}
