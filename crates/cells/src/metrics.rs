//! The metrics of a front, by cell.

use noroshi_telemetry::{Registry, register};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByCell {
    cell: String,
}

#[derive(Debug, Clone)]
pub struct Metrics {
    up: Family<ByCell, Gauge>,
    outbox_parts: Family<ByCell, Gauge>,
    outbox_oldest_seconds: Family<ByCell, Gauge>,
    forwarded: Family<ByCell, Counter>,
    refused: Family<ByCell, Counter>,
    expired: Family<ByCell, Counter>,
    failed: Family<ByCell, Counter>,
    moved: Family<ByCell, Counter>,
}

/// The metrics of one cell.
#[derive(Debug, Clone)]
pub(crate) struct CellMetrics {
    pub(crate) up: Gauge,
    pub(crate) outbox_parts: Gauge,
    pub(crate) outbox_oldest_seconds: Gauge,
    pub(crate) forwarded: Counter,
    pub(crate) refused: Counter,
    pub(crate) expired: Counter,
    pub(crate) failed: Counter,
    pub(crate) moved: Counter,
}

/// Registers one series of each metric, for the documentation.
pub fn describe(registry: &mut Registry) {
    Metrics::new(registry).of("");
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("cells");
        Self {
            up: register(registry, "up", "1 while the cell answers"),
            outbox_parts: register(registry, "outbox_parts", "Messages queued for the cell"),
            outbox_oldest_seconds: register(
                registry,
                "outbox_oldest_seconds",
                "Age of the oldest message queued for the cell",
            ),
            forwarded: register(registry, "forwarded", "Messages that the cell accepted"),
            refused: register(registry, "refused", "Messages that the cell rejected permanently"),
            expired: register(registry, "expired", "Messages that expired before the cell accepted them"),
            failed: register(registry, "failed", "Requests that the cell did not answer"),
            moved: register(registry, "moved", "Devices that moved out of the cell"),
        }
    }

    pub(crate) fn of(&self, cell: &str) -> CellMetrics {
        let labels = ByCell { cell: cell.to_owned() };
        CellMetrics {
            up: self.up.get_or_create_owned(&labels),
            outbox_parts: self.outbox_parts.get_or_create_owned(&labels),
            outbox_oldest_seconds: self.outbox_oldest_seconds.get_or_create_owned(&labels),
            forwarded: self.forwarded.get_or_create_owned(&labels),
            refused: self.refused.get_or_create_owned(&labels),
            expired: self.expired.get_or_create_owned(&labels),
            failed: self.failed.get_or_create_owned(&labels),
            moved: self.moved.get_or_create_owned(&labels),
        }
    }
}
