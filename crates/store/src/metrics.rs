//! The store's metrics, `store_…`. All names and help texts are in this file.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

noroshi_types::names! {
    /// What holds SQLite's writer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Held {
        Accept => "accept",
        Sessions => "sessions",
        Devices => "devices",
        Topics => "topics",
        Traces => "traces",
        Push => "push",
        Campaigns => "campaigns",
        Cancel => "cancel",
        CleanUp => "clean_up",
        Cells => "cells",
        Other => "other",
    }
}

impl Held {
    /// By the trait of the call.
    pub(crate) fn by(name: &str) -> Self {
        match name {
            "Sessions" => Self::Sessions,
            "Devices" => Self::Devices,
            "Topics" => Self::Topics,
            "PushQueue" | "Channels" | "Activities" => Self::Push,
            "Campaigns" => Self::Campaigns,
            "Steps" => Self::CleanUp,
            "Cells" => Self::Cells,
            _ => Self::Other,
        }
    }
}

/// From 0.5 ms: most operations take some microseconds. The bucket of 100 ms is the limit that the alert watches.
const HELD_SECONDS: [f64; 13] =
    [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 20.0];

/// `work`, and its value.
type HeldLabel = [(&'static str, &'static str); 1];

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
    pub held_seconds: Family<HeldLabel, Histogram, fn() -> Histogram>,
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
            held_seconds: Family::new_with_constructor(|| Histogram::new(HELD_SECONDS)),
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
        let help = "Time for which one operation held the writer of SQLite, without the commit";
        prefixed.register("held_seconds", help, metrics.held_seconds.clone());
        let help = "Operations waiting for the writer";
        prefixed.register("queue_operations", help, metrics.queue_operations.clone());
        metrics
    }

    /// The histogram of each kind of operation, in the order of [`Held::ALL`].
    pub(crate) fn held(&self) -> Vec<Histogram> {
        let of = |held: Held| self.held_seconds.get_or_create(&[("work", held.as_str())]).clone();
        Held::ALL.into_iter().map(of).collect()
    }
}
