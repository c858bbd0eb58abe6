//! The metrics of the event log: emitted events, accepted events by sink, queues and their age, and losses by reason.

use noroshi_types::names;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::event::Kind;

names! {
    /// Why an event is missing in all sinks, or in this one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Loss {
        /// A thread emitted faster than the collector read.
        Ring => "ring",
        /// Memory and spool of a sink were full, or the spool's disk failed.
        SpoolFull => "spool_full",
        /// The sink rejects it permanently.
        Refused => "refused",
        /// The node stopped before the sink accepted it, and the sink has no spool.
        Ended => "ended",
        /// The spool was damaged.
        Damaged => "damaged",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    event: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SinkLabels {
    sink: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabels {
    sink: &'static str,
    why: &'static str,
}

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    written: Family<KindLabels, Counter>,
    lost: Family<LossLabels, Counter>,
    sent: Family<SinkLabels, Counter>,
    failed: Family<SinkLabels, Counter>,
    memory_bytes: Family<SinkLabels, Gauge>,
    disk_bytes: Family<SinkLabels, Gauge>,
    waiting: Family<SinkLabels, Gauge>,
    age_seconds: Family<SinkLabels, Gauge>,
}

/// The metrics of one sink, looked up once.
#[derive(Debug, Clone)]
pub(crate) struct OfSink {
    lost: [Counter; Loss::ALL.len()],
    pub(crate) sent: Counter,
    pub(crate) failed: Counter,
    pub(crate) memory_bytes: Gauge,
    pub(crate) disk_bytes: Gauge,
    pub(crate) waiting: Gauge,
    pub(crate) age_seconds: Gauge,
}

/// The label for losses before any sink.
const ALL_SINKS: &str = "all";

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("events");
        registry.register("written", "Events written, by kind", metrics.written.clone());
        registry.register(
            "lost",
            "Events that a sink did not receive, by reason; sink `all`: no sink received them",
            metrics.lost.clone(),
        );
        registry.register("sink_sent", "Events that a sink accepted", metrics.sent.clone());
        registry.register(
            "sink_failures",
            "Failed attempts of a sink, including those that it accepted in part",
            metrics.failed.clone(),
        );
        registry.register(
            "sink_memory_bytes",
            "Bytes queued for a sink in memory",
            metrics.memory_bytes.clone(),
        );
        registry.register("sink_spool_bytes", "Bytes queued for a sink on disk", metrics.disk_bytes.clone());
        registry.register("sink_backlog", "Events queued for a sink", metrics.waiting.clone());
        registry.register(
            "sink_backlog_age_seconds",
            "Age of the oldest event queued for a sink, counted from the start of the node at most",
            metrics.age_seconds.clone(),
        );
        metrics
    }

    /// Registers one series of each metric, for the documentation.
    pub fn describe(registry: &mut Registry) {
        let metrics = Self::new(registry);
        metrics.of_sink("file");
        metrics.of_kinds();
        metrics.lost_in_rings();
    }

    /// Counters in the order of [`Kind::ALL`].
    pub(crate) fn of_kinds(&self) -> [Counter; Kind::ALL.len()] {
        Kind::ALL.map(|kind| self.written.get_or_create_owned(&KindLabels { event: kind.as_str() }))
    }

    pub(crate) fn lost_in_rings(&self) -> Counter {
        self.lost.get_or_create_owned(&LossLabels { sink: ALL_SINKS, why: Loss::Ring.as_str() })
    }

    pub(crate) fn of_sink(&self, sink: &'static str) -> OfSink {
        let labels = SinkLabels { sink };
        let lost = |why: Loss| self.lost.get_or_create_owned(&LossLabels { sink, why: why.as_str() });
        OfSink {
            lost: Loss::ALL.map(lost),
            sent: self.sent.get_or_create_owned(&labels),
            failed: self.failed.get_or_create_owned(&labels),
            memory_bytes: self.memory_bytes.get_or_create_owned(&labels),
            disk_bytes: self.disk_bytes.get_or_create_owned(&labels),
            waiting: self.waiting.get_or_create_owned(&labels),
            age_seconds: self.age_seconds.get_or_create_owned(&labels),
        }
    }

    /// Events that a sink did not get, for tests and reports.
    pub fn lost(&self, sink: &'static str, why: Loss) -> u64 {
        self.lost.get_or_create_owned(&LossLabels { sink, why: why.as_str() }).get()
    }

    /// Events that no sink got because a thread emitted faster than the collector read.
    pub fn lost_by_rings(&self) -> u64 {
        self.lost_in_rings().get()
    }

    /// Events that a sink accepted.
    pub fn sent(&self, sink: &'static str) -> u64 {
        self.sent.get_or_create_owned(&SinkLabels { sink }).get()
    }

    /// Bytes queued for a sink in memory and on disk.
    pub fn waiting_bytes(&self, sink: &'static str) -> (i64, i64) {
        let labels = SinkLabels { sink };
        let memory = self.memory_bytes.get_or_create_owned(&labels).get();
        (memory, self.disk_bytes.get_or_create_owned(&labels).get())
    }
}

impl OfSink {
    pub(crate) fn lost(&self, why: Loss, count: u64) {
        self.lost[why as usize].inc_by(count);
    }
}
