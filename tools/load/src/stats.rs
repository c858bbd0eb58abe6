//! The arithmetic of results: latency histograms, medians over repetitions, and the slope that gives memory
//! per connection.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Ten minutes; longer latencies are recorded as this.
const LATENCY_US_MAX: u64 = 600_000_000;

/// Latencies from 1 µs to 10 minutes with three significant digits. Between processes they are transferred as
/// values with counts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub(crate) struct Latency(Histogram<u64>);

impl From<Vec<(u64, u64)>> for Latency {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        let mut latency = Self::default();
        counts.into_iter().for_each(|(us, count)| latency.0.saturating_record_n(us, count));
        latency
    }
}

impl From<Latency> for Vec<(u64, u64)> {
    fn from(latency: Latency) -> Self {
        let recorded = latency.0.iter_recorded();
        recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }
}

/// The displayed percentiles with their names.
pub(crate) const PERCENTILES: [(&str, f64); 4] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("1 and 3 digits are valid bounds"))
    }
}

impl Latency {
    /// Records the time between two values of [`crate::clock::now_ns`].
    pub(crate) fn record(&mut self, from_ns: u64, to_ns: u64) {
        self.0.saturating_record((to_ns.saturating_sub(from_ns) / 1_000).max(1));
    }

    pub(crate) fn merge(&mut self, other: &Latency) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn percentile_ms(&self, percentile: f64) -> f64 {
        self.0.value_at_percentile(percentile) as f64 / 1e3
    }

    pub(crate) fn min_ms(&self) -> f64 {
        self.0.min() as f64 / 1e3
    }

    pub(crate) fn max_ms(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }
}

/// The middle value; for an even number of values, the mean of the two middle ones.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// Least squares: the growth of `y` per `x`. `None` for fewer than two different `x`.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>();
    let shared = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>();
    (spread > 0.0).then(|| shared / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_cover_merged_histograms() {
        let (mut a, mut b) = (Latency::default(), Latency::default());
        (1..=50).for_each(|ms| a.record(0, ms * 1_000_000));
        (51..=100).for_each(|ms| b.record(0, ms * 1_000_000));
        a.merge(&b);
        for (percentile, expected) in [(50.0, 50.0), (99.0, 99.0)] {
            let value = a.percentile_ms(percentile);
            assert!((value - expected).abs() / expected < 0.002, "p{percentile} = {value}");
        }
        assert!((a.max_ms() - 100.0).abs() < 0.2);
    }

    #[test]
    fn histogram_survives_the_transfer_between_processes() {
        let mut latency = Latency::default();
        (1..=5_000).for_each(|number: u64| latency.record(0, number * number * 1_000));
        let text = serde_json::to_string(&latency).unwrap();
        let read: Latency = serde_json::from_str(&text).unwrap();
        assert_eq!(read.0, latency.0);
        assert_eq!((read.max_ms(), read.0.len()), (latency.max_ms(), 5_000));
        let empty: Latency = serde_json::from_str("[]").unwrap();
        assert!(empty.is_empty());
    }

    #[test]
    fn latency_beyond_the_scale_is_clamped() {
        let mut latency = Latency::default();
        latency.record(0, u64::MAX);
        latency.record(10, 0);
        assert!(latency.max_ms() >= 599_000.0);
        assert!(latency.percentile_ms(50.0) <= 0.001);
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn slope_ignores_the_offset() {
        let line: Vec<_> = [1_000.0, 5_000.0, 10_000.0].map(|n| (n, 1_100.0f64.mul_add(n, 20e6))).to_vec();
        assert!((slope(&line).unwrap() - 1_100.0).abs() < 1e-6);
        assert_eq!(slope(&[(5.0, 1.0)]), None);
        assert_eq!(slope(&[(5.0, 1.0), (5.0, 2.0)]), None);
        assert_eq!(slope(&[]), None);
    }
}
