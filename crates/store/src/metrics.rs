//! The store's metrics, `store_…`. All names and help texts are in this file.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Cloning shares the values.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub commits: Counter,
    pub commit_failures: Counter,
    pub commit_operations: Histogram,
    pub commit_seconds: Histogram,
    pub queue_operations: Gauge,
    pub refused: Counter,
    pub dropped_behind: Counter,
    pub read_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        // 100 µs (a commit in memory) to 6.5 s (a disk in trouble).
        let seconds = || Histogram::new(exponential_buckets(0.000_1, 2.0, 17));
        let metrics = Self {
            commits: Counter::default(),
            commit_failures: Counter::default(),
            commit_operations: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            commit_seconds: seconds(),
            queue_operations: Gauge::default(),
            refused: Counter::default(),
            dropped_behind: Counter::default(),
            read_seconds: seconds(),
        };
        let prefixed = registry.sub_registry_with_prefix("store");
        let mut counter = |name, help, counter: &Counter| prefixed.register(name, help, counter.clone());
        counter("commits", "Commits that reached stable storage", &metrics.commits);
        let help = "Commits that failed; all their operations failed too";
        counter("commit_failures", help, &metrics.commit_failures);
        counter("refused", "Operations rejected because a queue was full", &metrics.refused);
        let help = "Traces and outcomes dropped because the writer was behind";
        counter("dropped_behind", help, &metrics.dropped_behind);
        let mut histogram = |name, help, values: &Histogram| prefixed.register(name, help, values.clone());
        histogram("commit_operations", "Operations that shared one commit", &metrics.commit_operations);
        let help = "Time from the first operation of a commit to stable storage";
        histogram("commit_seconds", help, &metrics.commit_seconds);
        histogram("read_seconds", "Duration of one read", &metrics.read_seconds);
        let help = "Operations waiting for the writer";
        prefixed.register("queue_operations", help, metrics.queue_operations.clone());
        metrics
    }
}
