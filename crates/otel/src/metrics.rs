//! What the exporter counts: what the collector took, and every loss with its reason.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a span did not reach the collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// More ended than the exporter was quick enough for.
    Queue,
    /// The collector will not take it.
    Refused,
    /// The collector did not answer for too long.
    Unreachable,
    /// The node ended first.
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
            "Spans that the collector took",
            metrics.exported.clone(),
        );
        registry.register(
            "tracing_spans_dropped",
            "Spans that did not reach the collector",
            metrics.dropped.clone(),
        );
        registry.register(
            "tracing_export_failures",
            "Exports that the collector did not take, or not yet",
            metrics.failures.clone(),
        );
        for loss in Loss::ALL {
            metrics.dropped(loss);
        }
        metrics
    }

    /// To be counted up by whoever loses spans for this reason.
    pub fn dropped(&self, loss: Loss) -> Counter {
        self.dropped.get_or_create_owned(&ReasonLabels { reason: loss.as_str() })
    }
}
