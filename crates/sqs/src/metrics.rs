//! What the intake counts. Each fate is there from the start: a rate over what was never counted would be nothing
//! instead of zero.

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
        for fate in Fate::ALL {
            metrics.messages.get_or_create(&fate.into()).inc_by(0);
        }
        metrics
    }

    pub fn count(&self, fate: Fate) {
        self.messages.get_or_create(&fate.into()).inc();
    }
}
