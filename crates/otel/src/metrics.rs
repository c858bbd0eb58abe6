//! The exporter's own metrics: accepted spans, and losses by reason.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a span did not reach the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The queue was full.
    Queue,
    /// The collector rejected it.
    Refused,
    /// The collector did not accept it in time.
    Unreachable,
    /// The node stopped first.
    Ended,
}

impl Loss {
    const ALL: [Self; 4] = [Self::Queue, Self::Refused, Self::Unreachable, Self::Ended];

    fn as_str(self) -> &'static str {
        match self {
            Loss::Queue => "queue",
            Loss::Refused => "refused",
            Loss::Unreachable => "unreachable",
            Loss::Ended => "ended",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub(crate) exported: Counter,
    dropped: Family<ReasonLabels, Counter>,
    pub(crate) failures: Counter,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "tracing_spans_exported",
            "Spans that the collector accepted",
            metrics.exported.clone(),
        );
        registry.register(
            "tracing_spans_dropped",
            "Spans that did not reach the collector",
            metrics.dropped.clone(),
        );
        registry.register(
            "tracing_export_failures",
            "Failed exports, including those that are retried",
            metrics.failures.clone(),
        );
        for loss in Loss::ALL {
            metrics.dropped(loss);
        }
        metrics
    }

    /// The counter of a loss.
    pub fn dropped(&self, loss: Loss) -> Counter {
        self.dropped.get_or_create_owned(&ReasonLabels { reason: loss.as_str() })
    }
}
