//! Takes batches from the queue as there is room for their recipients, and starts each on its way.
//!
//! Lanes: what cannot wait and single notifications may fill every place, ordinary campaigns leave a reserve,
//! in all and at each push service; so a message that cannot wait starts at the next take, whatever a
//! campaign has under way. Sleeps until the exact time at which something is due, or until it is woken.
//!
//! Where several nodes share the store each takes for itself; campaigns with a rate go at the leader alone, where their
//! turns are counted. With a queue of the cluster in between, batches come from there (`puller`) and not from here.

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

use crate::delivery::Delivery;
use crate::push::batch::{Leased, Way};
use crate::push::finisher::{self, PAUSE_MAX, PAUSE_MIN};
use crate::push::flight::Held;
use crate::push::lease;
use crate::push::side::Side;
use crate::telling::subject;

/// Batches of one take: one commit each time. Smaller ones (what a campaign with variants tries again is one for each)
/// leave room, which the next take fills.
pub(super) const TAKE_MAX: usize = 64;

/// Batches of campaigns with a rate in one take: as it cannot be said how many of each, few. Of smaller ones, as
/// above, as few: their turns are of recipients, so the next take comes the sooner.
pub(super) const TAKE_LIMITED_MAX: usize = 4;

/// So far ahead the turns of a campaign with a rate are given away. A pause takes effect after it.
const AHEAD: Duration = Duration::from_millis(250);

/// Where something is due that was not taken (it is busy, or held): not sooner again.
pub(super) const SLEEP_MIN: Duration = Duration::from_millis(20);

/// A store that was away for long comes back to many whose leases have lapsed: who holds them renews or finishes first,
/// and others take after so long. Longer than a finisher's pause.
const COMEBACK: Duration = Duration::from_secs(6);

/// Finished batches that wait to be written.
const READY_MAX: usize = 256;

pub(crate) struct Sender {
    pub(super) way: Way,
    pub(super) batches: JoinSet<()>,
}

/// What a look at the queue found.
pub(super) enum Next {
    /// There may be more: look again.
    Now,
    At(Option<Timestamp>),
    /// The rate of a campaign lets something go after so long.
    After(Duration),
}

/// Runs until `drain` is true, then gives what is under way until the deadline.
pub(crate) async fn run(delivery: Arc<Delivery>, side: Arc<Side>, mut drain: watch::Receiver<bool>) {
    let (ready, waiting) = mpsc::channel(READY_MAX);
    let finisher = tokio::spawn(finisher::run(delivery.clone(), side.clone(), waiting));
    let way = Way { delivery: delivery.clone(), side: side.clone(), ready, drain: drain.clone() };
    let mut sender = Sender { way, batches: JoinSet::new() };
    let work = async {
        sender.know_plans().await;
        match side.queue.get() {
            // Ends by itself: a pull that is broken off would leave parcels to nobody for a while.
            Some(queue) => sender.pull_forever(queue.as_ref()).await,
            None => tokio::select! {
                _ = drain.wait_for(|draining| *draining) => {}
                () = sender.take_forever() => {}
            },
        }
    };
    tokio::select! {
        () = work => {}
        () = lease::keep(&delivery, &side) => {}
    }
    let deadline = tokio::time::Instant::now() + side.config.drain;
    tokio::select! {
        () = sender.end(finisher) => {}
        () = lease::keep(&delivery, &side) => {}
        () = tokio::time::sleep_until(deadline) => {
            tracing::info!(batches = side.flight.batch_count(), "batches under way are left to the next start");
            lease::return_all(&delivery, &side).await;
        }
    }
}

impl Sender {
    /// Waits for all that is under way, and for the last of it to be written.
    async fn end(self, finisher: tokio::task::JoinHandle<()>) {
        let Sender { way, mut batches } = self;
        while batches.join_next().await.is_some() {}
        // The finisher ends with the last that could send to it.
        drop(way);
        let _ = finisher.await;
    }

    /// Rates hold from the first batch on, also of campaigns that an earlier start began.
    async fn know_plans(&self) {
        let Way { delivery, side, .. } = &self.way;
        let now = delivery.clock.now();
        let active = self.way.read(|| delivery.store.active_campaigns(now)).await.unwrap_or_default();
        for campaign in active.iter().filter(|campaign| campaign.started_at.is_some()) {
            side.book.plan_of(campaign, now);
        }
    }

    async fn take_forever(&mut self) {
        let (mut pause, mut failing) = (PAUSE_MIN, None);
        loop {
            while self.batches.try_join_next().is_some() {}
            // Before the look: what comes after it wakes the wait.
            let side = self.way.side.clone();
            let woken = side.flight.wake.notified();
            match self.look().await {
                Ok(Next::Now) => tokio::task::yield_now().await,
                Ok(next) => {
                    let sleep = self.sleep(next);
                    let _ = tokio::time::timeout(sleep, woken).await;
                }
                Err(noroshi_store::Error::Closed) => return std::future::pending().await,
                Err(error) => {
                    self.way.delivery.metrics.push.store_errors.inc();
                    tracing::warn!(%error, "no batches could be taken; trying again");
                    let since: Instant = *failing.get_or_insert_with(Instant::now);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    self.come_back(since).await;
                    continue;
                }
            }
            (pause, failing) = (PAUSE_MIN, None);
        }
    }

    /// After the store was away for about a lease, others first do what they have to with what they hold.
    async fn come_back(&self, failing: Instant) {
        let Way { delivery, side, .. } = &self.way;
        if !side.config.shared || failing.elapsed() < side.config.lease / 2 {
            return;
        }
        let mut pause = PAUSE_MIN;
        while lease::renew(delivery, side, side.flight.leases()).await.is_err()
            || delivery.store.place().await.is_err()
        {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        tokio::time::sleep(COMEBACK).await;
    }

    pub(super) fn show(&self) {
        let (flight, metrics) = (&self.way.side.flight, &self.way.delivery.metrics.push);
        metrics.recipients_in_flight.set(i64::try_from(flight.recipients()).unwrap_or(i64::MAX));
        metrics.batches_in_flight.set(i64::try_from(flight.batch_count()).unwrap_or(i64::MAX));
    }

    fn sleep(&self, next: Next) -> Duration {
        let sleep_max = self.way.side.config.sleep_max();
        let sleep = match next {
            Next::Now => Duration::ZERO,
            Next::After(after) => after,
            Next::At(None) => sleep_max,
            Next::At(Some(at)) => at.saturating_since(self.way.delivery.clock.now()),
        };
        sleep.clamp(SLEEP_MIN, sleep_max)
    }

    /// Takes what there is room for, once.
    async fn look(&mut self) -> Result<Next, noroshi_store::Error> {
        let flight = self.way.side.flight.clone();
        // Before the look: room that is made meanwhile wakes.
        flight.want(true);
        let room = flight.room();
        let short = room.any == 0 || room.campaign == 0 || !room.busy_for_campaigns.is_empty();
        flight.want(short);
        self.show();
        if room.any == 0 {
            return Ok(Next::At(None));
        }
        let limited = self.way.side.book.limited();
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
        if !limited.is_empty() && self.way.side.lead.is_ours() {
            nexts.push(self.take_limited(limited).await?);
        }
        nexts.push(repaid(&self.way.delivery));
        Ok(soonest(nexts, self.way.delivery.clock.now()))
    }

    /// Campaigns with a rate, those whose turns are not given away too far ahead.
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
        let room = self.way.side.flight.room();
        let room_limited = room.campaign.min(TAKE_LIMITED_MAX * BATCH_RECIPIENTS_MAX);
        if room_limited == 0 {
            return Ok(wait);
        }
        let next = self.take(room_limited, room.busy_for_campaigns, held, &Lane::ALL).await?;
        Ok(soonest(vec![next, wait], self.way.delivery.clock.now()))
    }

    async fn take(
        &mut self,
        room: usize,
        busy: Vec<(AppId, PushService)>,
        held: Vec<CampaignId>,
        lanes: &[Lane],
    ) -> Result<Next, noroshi_store::Error> {
        let batches_max = (room / BATCH_RECIPIENTS_MAX).clamp(1, TAKE_MAX);
        let lease = self.way.side.config.lease;
        let now = self.way.delivery.clock.now();
        let ends = Instant::now() + lease;
        let take = Take { now, lease, batches_max, busy, held, lanes: lanes.to_vec(), sends: true };
        let Taken { batches, next_due, .. } = taken(&self.way, take).await?;
        self.way.delivery.metrics.push.count_taken(&batches);
        let full = batches.len() >= batches_max;
        for batch in batches {
            if self.is_held_back(&batch).await {
                let lease = Lease { batch: batch.id, until: batch.leased_until };
                lease::give_back(&self.way.delivery, lease, Renewal::Returned);
                continue;
            }
            let held = Held::new(batch.leased_until, ends, None);
            self.start(batch, held);
        }
        Ok(if full { Next::Now } else { Next::At(next_due) })
    }

    /// Whether it is of a campaign with a rate that was not known when the batch was asked for, and only the leader
    /// knows whose turn it is. From now on its batches are left alone.
    async fn is_held_back(&self, batch: &Batch) -> bool {
        let Way { side, .. } = &self.way;
        let Work::Campaign(id) = batch.work else { return false };
        if !side.config.shared || side.book.plan(id).is_some() || side.lead.is_ours() {
            return false;
        }
        self.way.plan(batch.app, id).await.is_some_and(|plan| plan.ahead().is_some())
    }

    pub(super) fn start(&mut self, batch: Batch, held: Held) {
        let side = &self.way.side;
        let receipt: Option<Receipt> = held.receipt().cloned();
        let lease = Lease { batch: batch.id, until: batch.leased_until };
        let Some((aboard, held)) = side.flight.begin(&batch, held) else {
            lease::uncount(&self.way.delivery, side, lease);
            return lease::done(side, receipt.into_iter().collect());
        };
        let turn = match side.queue.get() {
            // The dispatcher let it go when it was its turn.
            Some(_) => None,
            None => turn(side, &batch),
        };
        let leased = Leased { batch, aboard, held, taken: Instant::now(), turn };
        self.batches.spawn(self.way.clone().go(leased));
    }
}

/// Takes from the store, and tells what that decided.
pub(super) async fn taken(way: &Way, mut take: Take) -> Result<Taken, noroshi_store::Error> {
    let Way { delivery, side, .. } = way;
    take.busy.extend(owing(delivery));
    let taken = delivery.store.take(take).await?;
    for batch in taken.batches.iter().filter(|batch| batch.service.is_some()) {
        delivery.quotas.pushed(batch.app, batch.recipients.len() as u64);
    }
    delivery.became_departed(&taken.departed);
    delivery.campaigns_done(&taken.done);
    if !taken.departed.is_empty() || !taken.set_aside.is_empty() {
        // Batches may have gone without being taken: the collector counts anew.
        side.collect.notify_one();
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
        delivery.became_pushed(subject(*work), *service, &part, None);
        delivery.metrics.push.count(outcome, reason, *lane, count);
        delivery.metrics.push.batches_set_aside.inc();
    }
    for batch in &taken.batches {
        if side.ahead.taken(batch.campaign.map_or(batch.work, Work::Campaign)) {
            side.collect.notify_one();
        }
    }
    Ok(taken)
}

/// Apps that were pushed for more than their quota allows leave their work in the store until the rest is repaid.
fn owing(delivery: &Delivery) -> impl Iterator<Item = (AppId, PushService)> {
    let debts = delivery.quotas.push_debts();
    debts.into_iter().flat_map(|(app, _)| PushService::ALL.map(|service| (app, service)))
}

/// When the first of them may go on.
pub(super) fn repaid(delivery: &Delivery) -> Next {
    let first = delivery.quotas.push_debts().into_iter().map(|(_, debt)| debt).min();
    first.map_or(Next::At(None), Next::After)
}

/// When its campaign's rate lets it go.
pub(super) fn turn(side: &Side, batch: &Batch) -> Option<Instant> {
    match batch.work {
        Work::Campaign(id) => side.book.plan(id).and_then(|plan| plan.turn(batch.recipients.len())),
        Work::Notification(_) => None,
    }
}

/// Of campaigns with how far ahead their turns are given away: those that have to wait, and for how long the
/// first of them.
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
    fn a_campaign_that_rests_makes_no_other_wait_longer() {
        let [fast, resting, slow] = [1, 2, 3].map(|n| CampaignId::from_bytes([n; 16]));
        let ms = Duration::from_millis;
        let (held, wait) = hold_back(vec![(fast, ms(400)), (resting, ms(0)), (slow, ms(9_000))]);
        assert_eq!((held, wait), (vec![fast, slow], Some(ms(150))));
        assert_eq!(hold_back(vec![(resting, AHEAD)]), (vec![], None));
        let next = soonest(vec![Next::At(None), Next::After(ms(150))], Timestamp(0));
        assert!(matches!(next, Next::After(wait) if wait == ms(150)));
    }
}
