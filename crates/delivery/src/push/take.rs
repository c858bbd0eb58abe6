//! Takes of batches from the store, by the sender or by the dispatcher: their size, their effects, and the time of the
//! next one.

use std::time::{Duration, Instant};

use noroshi_store::{AbandonedBatch, Batch, PushPart, SENDER_ENDED, TAKES_MAX, Take, Taken, Work};
use noroshi_types::{AppId, CampaignId, Outcome, PushService, Timestamp};

use super::pipeline::Pipeline;
use crate::outcomes::subject;

/// Batches of one take, which is one commit. Small batches (a campaign with variants retries one for each) leave room
/// that the next take fills.
pub(super) const TAKE_MAX: usize = 64;

/// Batches of campaigns with a rate in one take. Few, because the store decides how many of each campaign it returns.
/// Turns count recipients, so after small batches the next take is earlier.
pub(super) const TAKE_LIMITED_MAX: usize = 4;

/// How far ahead the turns of a campaign with a rate are assigned. A pause takes effect after this.
const AHEAD: Duration = Duration::from_millis(250);

/// The shortest sleep, if something due was not taken because it is busy or held.
const SLEEP_MIN: Duration = Duration::from_millis(20);

/// When to look at the queue again.
pub(super) enum Next {
    /// At once: there may be more.
    Now,
    At(Option<Timestamp>),
    /// When the rate of a campaign allows it.
    After(Duration),
}

impl Next {
    /// The time to sleep until then, unless the task is woken.
    pub(super) fn sleep(self, pipeline: &Pipeline) -> Duration {
        let sleep_max = pipeline.config.sleep_max();
        let sleep = match self {
            Next::Now => Duration::ZERO,
            Next::After(after) => after,
            Next::At(None) => sleep_max,
            Next::At(Some(at)) => at.saturating_since(pipeline.context.now()),
        };
        sleep.clamp(SLEEP_MIN, sleep_max)
    }
}

/// Takes batches from the store, and reports what the take decided.
pub(super) async fn take(pipeline: &Pipeline, mut request: Take) -> Result<Taken, noroshi_store::Error> {
    request.busy.extend(in_debt(pipeline));
    let taken = pipeline.context.store.take(request).await?;
    for batch in taken.batches.iter().filter(|batch| batch.service.is_some()) {
        pipeline.quotas.pushed(batch.app, batch.recipients.len() as u64);
    }
    pipeline.context.outcomes.departed(&taken.departed);
    pipeline.context.outcomes.campaigns_done(&taken.done);
    if !taken.departed.is_empty() || !taken.set_aside.is_empty() {
        // Batches may be gone without a take: the collector counts again.
        pipeline.work.collector.notify_one();
    }
    for AbandonedBatch { batch, app, service, lane, work, recipients } in &taken.set_aside {
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
        pipeline.context.outcomes.pushed((*app, subject(*work)), *service, &part, None);
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
