//! How far a campaign is: counts, rate, remaining time, and how long answers took.
//!
//! Combines what the store counts with what this process remembers (`tracker`). Built by `lifecycle` for the API. Pure.

use std::time::Duration;

use noroshi_store::{Campaign, CampaignState};
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
    /// The remaining time at the present rate. `None` while it is unknown, and when the campaign is over.
    pub eta: Option<Duration>,
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
        let eta = left
            .filter(|_| rate_per_second > 0.0)
            .and_then(|left| Duration::try_from_secs_f64(left as f64 / rate_per_second).ok());
        let (p50, p99) = (quantile(&campaign.latencies, 0.5), quantile(&campaign.latencies, 0.99));
        Self {
            recipients: campaign.recipients,
            done,
            total,
            rate_per_second,
            eta,
            p50,
            p99,
            report,
            campaign,
        }
    }
}

fn average(campaign: &Campaign, done: u64, now: Timestamp) -> f64 {
    let Some(started_at) = campaign.started_at else { return 0.0 };
    let end = campaign.finished_at.unwrap_or(now);
    let seconds = end.saturating_since(started_at).as_secs_f64();
    if seconds > 0.0 { done as f64 / seconds } else { 0.0 }
}
