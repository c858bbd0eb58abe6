//! What the intake counts.

use noroshi_telemetry::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Published, and removed from the queue.
    Accepted,
    /// It can never be accepted.
    Poison,
    /// It was tried too often.
    Exhausted,
    /// Left to the queue, to be received again.
    Returned,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FateLabels {
    result: &'static str,
}

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    messages: Family<FateLabels, Counter>,
    pub(crate) in_work: Gauge,
    pub(crate) retries: Counter,
    pub(crate) errors: Counter,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("intake");
        registry.register(
            "messages",
            "Messages of the intake queue, by what became of them",
            metrics.messages.clone(),
        );
        registry.register("in_work", "Messages received and not answered", metrics.in_work.clone());
        let retries = metrics.retries.clone();
        registry.register(
            "retries",
            "Messages that could not be accepted yet and are tried again here",
            retries,
        );
        registry.register("errors", "Calls of the queue that failed", metrics.errors.clone());
        metrics
    }

    pub fn count(&self, fate: Fate) {
        let result = match fate {
            Fate::Accepted => "accepted",
            Fate::Poison => "poison",
            Fate::Exhausted => "exhausted",
            Fate::Returned => "returned",
        };
        self.messages.get_or_create(&FateLabels { result }).inc();
    }
}
