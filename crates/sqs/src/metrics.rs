//! The metrics of the intake. All series exist from the start, so that a rate is 0 before the first event.

use noroshi_telemetry::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// The outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Published, and deleted from the queue.
    Accepted,
    /// It can never be accepted.
    Poison,
    /// It failed too often.
    Exhausted,
    /// Left in the queue, to be received again.
    Returned,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FateLabels {
    result: &'static str,
}

impl From<Fate> for FateLabels {
    fn from(fate: Fate) -> Self {
        Self { result: fate.as_str() }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    messages: Family<FateLabels, Counter>,
    pub(crate) in_work: Gauge,
    pub(crate) retries: Counter,
    pub(crate) errors: Counter,
}

impl Fate {
    const ALL: [Self; 4] = [Self::Accepted, Self::Poison, Self::Exhausted, Self::Returned];

    fn as_str(self) -> &'static str {
        match self {
            Fate::Accepted => "accepted",
            Fate::Poison => "poison",
            Fate::Exhausted => "exhausted",
            Fate::Returned => "returned",
        }
    }
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("intake");
        registry.register("messages", "Messages of the intake queue, by outcome", metrics.messages.clone());
        registry.register("in_work", "Messages received and still in progress", metrics.in_work.clone());
        let retries = metrics.retries.clone();
        registry.register("retries", "Messages that could not be accepted yet and are retried here", retries);
        registry.register("errors", "Failed calls to the queue", metrics.errors.clone());
        for fate in Fate::ALL {
            metrics.messages.get_or_create(&fate.into()).inc_by(0);
        }
        metrics
    }

    pub fn count(&self, fate: Fate) {
        self.messages.get_or_create(&fate.into()).inc();
    }
}
