//! How far a campaign is: counts, rate, remaining time, and how long answers took.
//!
//! Combines what the store counts with what this process remembers (`tracker`). Built by `lifecycle` for the API. Pure.

use std::time::Duration;

use noroshi_store::{Campaign, CampaignState, Waiting, WaitingStep};
use noroshi_types::Timestamp;

use crate::campaign::done::done;
use crate::campaign::latency::quantile;
use crate::campaign::report::Report;
use crate::campaign::spec::Spec;

/// A campaign as operators see it.
#[derive(Debug, Clone)]
pub struct CampaignProgress {
    pub campaign: Campaign,
    /// Devices that were put into batches so far.
    pub recipients: u64,
    /// Devices that are done.
    pub done: u64,
    /// All devices, if they were counted.
    pub total: Option<u64>,
    /// Devices a second: over the last seconds while it runs, otherwise over its whole time.
    pub rate_per_second: f64,
    /// The remaining time: at the present rate, before the first results at the wanted one, and at least until the last
    /// known batch is due. `None` while it is unknown, and when the campaign is over.
    pub eta: Option<Duration>,
    /// Batches that wait for their time; empty if the caller does not ask for them.
    pub steps: Vec<WaitingStep>,
    /// The time from dequeue to answer.
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    /// `None`: the campaign sends no variants.
    pub report: Option<Report>,
}

/// What only this process knows about a running campaign.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recent {
    pub(crate) rate_per_second: Option<f64>,
    pub(crate) total: Option<u64>,
}

impl CampaignProgress {
    pub(crate) fn new(campaign: Campaign, spec: Option<&Spec>, recent: Recent, now: Timestamp) -> Self {
        let done = done(&campaign.counts, spec.and_then(|spec| spec.message.when));
        let report = spec.and_then(|spec| Report::of(&campaign, spec));
        let running = campaign.state == CampaignState::Running;
        let total = match campaign.walked {
            true => Some(campaign.recipients),
            false => recent.total.map(|total| total.max(campaign.recipients)),
        };
        let rate_per_second = match recent.rate_per_second.filter(|_| running) {
            Some(rate) => rate,
            None => average(&campaign, done, now),
        };
        let left = total.filter(|_| running).map(|total| total.saturating_sub(done));
        let wanted = spec.and_then(|spec| spec.rate_per_second).map_or(0.0, f64::from);
        let rate = if rate_per_second > 0.0 { rate_per_second } else { wanted };
        let eta =
            left.filter(|_| rate > 0.0).and_then(|left| Duration::try_from_secs_f64(left as f64 / rate).ok());
        let (p50, p99) = (quantile(&campaign.latencies, 0.5), quantile(&campaign.latencies, 0.99));
        Self {
            recipients: campaign.recipients,
            done,
            total,
            rate_per_second,
            eta,
            steps: Vec::new(),
            p50,
            p99,
            report,
            campaign,
        }
    }

    /// With what waits for its time.
    pub(crate) fn with_waiting(self, waiting: Waiting, now: Timestamp) -> Self {
        let is_running = self.campaign.state == CampaignState::Running;
        let until_last = waiting.last_due_at.filter(|_| is_running).map(|last| last.saturating_since(now));
        // While the audience is walked, batches with a later time may follow.
        let eta = match self.campaign.walked {
            true => self.eta.max(until_last),
            false => self.eta.map(|eta| eta.max(until_last.unwrap_or_default())),
        };
        Self { eta, steps: waiting.steps, ..self }
    }
}

fn average(campaign: &Campaign, done: u64, now: Timestamp) -> f64 {
    let Some(started_at) = campaign.started_at else { return 0.0 };
    let end = campaign.finished_at.unwrap_or(now);
    let seconds = end.saturating_since(started_at).as_secs_f64();
    if seconds > 0.0 { done as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::plan::tests::campaign;
    use crate::campaign::spec::tests::spec;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn progress(walked: bool, rate: Option<f64>, wanted: Option<u32>) -> CampaignProgress {
        let spec = Spec { rate_per_second: wanted, ..spec() };
        let (state, recipients) = (CampaignState::Running, 1_000);
        let campaign = Campaign { state, walked, recipients, started_at: None, ..campaign(&spec) };
        let recent = Recent { rate_per_second: rate, total: None };
        CampaignProgress::new(campaign, Some(&spec), recent, NOW)
    }

    fn waiting(seconds: u64) -> Waiting {
        Waiting { steps: Vec::new(), last_due_at: Some(Timestamp(NOW.0 + seconds * 1_000)) }
    }

    #[test]
    fn the_remaining_time_follows_rate_and_schedule() {
        let seconds = |eta: Option<Duration>| eta.map(|eta| eta.as_secs());
        assert_eq!(seconds(progress(true, Some(100.0), Some(500)).eta), Some(10));
        assert_eq!(seconds(progress(true, Some(0.0), Some(500)).eta), Some(2), "nothing is measured yet");
        assert_eq!(seconds(progress(true, Some(0.0), None).eta), None);
        assert_eq!(seconds(progress(false, Some(100.0), None).eta), None, "the total is unknown");
        let with = |progress: CampaignProgress, last| seconds(progress.with_waiting(waiting(last), NOW).eta);
        assert_eq!(with(progress(true, Some(100.0), None), 3_600), Some(3_600));
        assert_eq!(with(progress(true, Some(100.0), None), 5), Some(10));
        assert_eq!(with(progress(true, Some(0.0), None), 5), Some(5));
        assert_eq!(with(progress(false, Some(100.0), None), 3_600), None);
    }
}
