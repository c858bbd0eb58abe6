//! A histogram whose observation is one relaxed addition. The library's own takes a lock, and a fan-out observes once
//! per delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds in microseconds: 100 µs to 60 s.
pub const BOUNDS_US: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Durations in seconds. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug, Default)]
struct Buckets {
    /// One more than there are bounds: the last bucket has no upper bound.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub fn observe(&self, duration: Duration) {
        self.observe_many(duration, 1);
    }

    /// `count` observations of the same duration, for a fan-out.
    pub fn observe_many(&self, duration: Duration, count: u64) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.0.counts[bucket].fetch_add(count, Relaxed);
        self.0.sum_us.fetch_add(us.saturating_mul(count), Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Relaxed)).sum()
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut buckets: Vec<(f64, u64)> = BOUNDS_US
            .iter()
            .zip(&self.0.counts)
            .map(|(bound, count)| (*bound as f64 / 1e6, count.load(Relaxed)))
            .collect();
        buckets.push((f64::INFINITY, self.0.counts[BOUNDS_US.len()].load(Relaxed)));
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.0.sum_us.load(Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    #[test]
    fn observations_count_in_their_bucket() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_micros(100));
        histogram.observe_many(Duration::from_micros(101), 3);
        histogram.observe(Duration::from_secs(3_600));
        let mut registry = Registry::default();
        registry.register("latency_seconds", "Latency", histogram.clone());
        let text = crate::encode(&registry).expect("text");
        assert!(text.contains("latency_seconds_bucket{le=\"0.0001\"} 1\n"), "{text}");
        assert!(text.contains("latency_seconds_bucket{le=\"0.00025\"} 4\n"), "{text}");
        assert!(text.contains("latency_seconds_bucket{le=\"60.0\"} 4\n"), "{text}");
        assert!(text.contains("latency_seconds_bucket{le=\"+Inf\"} 5\n"), "{text}");
        assert_eq!(histogram.count(), 5);
    }
}
