//! How far a campaign is: counts, rate, what is left, and how long answers took.
//!
//! Durations are kept as counts in buckets, so that a million answers are some hundred numbers in the
//! store and sums of sums stay exact. A bucket is one of 32 equal parts of a power of two of microseconds: what
//! is read back is its middle, at most 1 part in 64 (1.6 %) from the truth; below 32 µs it is exact. Pure.

use std::time::Duration;

use noroshi_store::{Campaign, CampaignState};
use noroshi_types::{Outcome, Timestamp, When};

use crate::campaign::plan::{BAD_LINE, MISSING_VARIABLE, NO_CONTENT, NOT_UPLOADED};
use crate::campaign::report::Report;
use crate::campaign::spec::Spec;

/// Parts of a power of two, as a power of two.
const PART_BITS: u32 = 5;
const PARTS: u64 = 1 << PART_BITS;

/// A campaign as it is told to an operator.
#[derive(Debug, Clone)]
pub struct CampaignProgress {
    pub campaign: Campaign,
    /// Devices that have been packed into batches so far.
    pub recipients: u64,
    /// Devices whose fate is known.
    pub done: u64,
    /// Devices in all, where they have been counted.
    pub total: Option<u64>,
    /// Devices a second: of the last seconds while it runs, else over its whole time.
    pub rate_per_second: f64,
    /// Until the last one, at the present rate. None while nobody knows, and when it is over.
    pub eta: Option<Duration>,
    /// From dequeue to answer.
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    /// None: it sends no variants.
    pub report: Option<Report>,
}

/// What only this process knows, while a campaign runs.
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

/// Devices of the walk that were never packed, because there was no token, or one that is set aside.
pub(crate) const SET_ASIDE: &str = "set_aside";

/// Devices that had a token when they were packed, and none when it was their turn. Those without this reason were
/// never packed, or were told by an older version, which drew for them before it looked.
pub(crate) const TOKEN_LOST: &str = "token_lost";

/// Each recipient counts once: by the outcome that ends its batch's work on it, or, where batches are
/// published as notifications, by the one that every device of them gets.
pub(crate) fn done(counts: &[(Outcome, String, u64)], when: Option<When>) -> u64 {
    let ends = |outcome: Outcome, reason: &str| match when {
        _ if outcome == Outcome::HeldOut => true,
        None => is_push_end(outcome, reason),
        Some(_) if outcome == Outcome::PushRefused => {
            matches!(reason, MISSING_VARIABLE | NO_CONTENT | BAD_LINE | NOT_UPLOADED)
        }
        // Deleted since it was packed.
        Some(_) if outcome == Outcome::Unknown => true,
        Some(When::Stored) => outcome == Outcome::Kept,
        Some(When::Active | When::Connected) => {
            matches!(outcome, Outcome::Written | Outcome::Offline | Outcome::Inactive | Outcome::Slow)
        }
    };
    counts.iter().filter(|(outcome, reason, _)| ends(*outcome, reason)).map(|(_, _, count)| count).sum()
}

fn is_push_end(outcome: Outcome, reason: &str) -> bool {
    match outcome {
        Outcome::NoPushToken => reason == TOKEN_LOST,
        Outcome::PushTokenSuspect => reason != SET_ASIDE,
        Outcome::Pushed
        | Outcome::PushRefused
        | Outcome::PushTokenGone
        | Outcome::PushUnconfigured
        | Outcome::PushNotNeeded
        | Outcome::PushExpired
        | Outcome::Cancelled
        | Outcome::Unknown => true,
        _ => false,
    }
}

fn average(campaign: &Campaign, done: u64, now: Timestamp) -> f64 {
    let Some(started_at) = campaign.started_at else { return 0.0 };
    let end = campaign.finished_at.unwrap_or(now);
    let seconds = end.saturating_since(started_at).as_secs_f64();
    if seconds > 0.0 { done as f64 / seconds } else { 0.0 }
}

/// The bucket that holds a duration.
pub(crate) fn bucket(duration: Duration) -> u16 {
    let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let shift = (u64::BITS - us.leading_zeros()).saturating_sub(PART_BITS + 1);
    // 58 powers of two above the first of 32 parts: at most 60 × 32 = 1,920 buckets.
    let bucket = u64::from(shift) * PARTS + (us >> shift);
    u16::try_from(bucket).unwrap_or(u16::MAX)
}

/// The middle of a bucket.
pub(crate) fn middle(bucket: u16) -> Duration {
    let bucket = u64::from(bucket);
    let shift = (bucket / PARTS).saturating_sub(1).min(u64::from(u64::BITS - PART_BITS - 1));
    let from = (bucket - shift * PARTS) << shift;
    let half = (1_u64 << shift) / 2;
    Duration::from_micros(from.saturating_add(half))
}

/// The duration that `part` of all stay below or at.
pub(crate) fn quantile(latencies: &[(u16, u64)], part: f64) -> Option<Duration> {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let count: u64 = sorted.iter().map(|(_, count)| count).sum();
    let rank = ((count as f64 * part).ceil() as u64).max(1);
    let mut below = 0;
    sorted
        .iter()
        .find(|(_, count)| {
            below += count;
            below >= rank
        })
        .map(|(bucket, _)| middle(*bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_right_to_one_part_in_64() {
        for us in
            (0..200_u64).chain([1_000, 12_345, 300_000, 1_500_000, 10_000_000, 3_600_000_000, u64::MAX / 2])
        {
            let read = u64::try_from(middle(bucket(Duration::from_micros(us))).as_micros()).expect("fits");
            assert!(read.abs_diff(us) <= us / 64, "{us} is read as {read}");
        }
        assert!(bucket(Duration::MAX) < 1_920);
    }

    #[test]
    fn buckets_are_in_order_without_a_gap() {
        let mut last = 0;
        for us in 0..100_000 {
            let this = bucket(Duration::from_micros(us));
            assert!(this == last || this == last + 1, "{us}: {last} then {this}");
            last = this;
        }
    }

    #[test]
    fn quantiles_are_ranks() {
        let of = |ms: u64| bucket(Duration::from_millis(ms));
        let latencies = [(of(10_000), 1), (of(300), 98), (of(100), 1)];
        let near = |part: f64, ms: f64| {
            let read = quantile(&latencies, part).expect("counted").as_secs_f64() * 1e3;
            assert!((read / ms - 1.0).abs() < 0.016, "{part}: {read}");
        };
        near(0.0, 100.0);
        near(0.5, 300.0);
        near(0.99, 300.0);
        near(1.0, 10_000.0);
        assert_eq!(quantile(&[], 0.5), None);
    }
}
