//! The metrics of continuous profiling.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::upload::Kind;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pushed: Family<KindLabels, Counter>,
    replaced: Family<KindLabels, Counter>,
    failures: Counter,
    untaken: Counter,
    cpu_seconds: Counter<f64, AtomicU64>,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("profiling");
        registry.register("pushed", "Profiles that the Pyroscope server accepted", metrics.pushed.clone());
        registry.register(
            "replaced",
            "Profiles that a newer one replaced before the server accepted them",
            metrics.replaced.clone(),
        );
        registry.register(
            "push_failures",
            "Attempts to push a profile that failed or were rejected",
            metrics.failures.clone(),
        );
        registry.register(
            "cpu_seconds",
            "CPU time of writing profiles, without the time that each sample takes from its own thread",
            metrics.cpu_seconds.clone(),
        );
        registry.register("windows_failed", "Windows that could not be sampled", metrics.untaken.clone());
        metrics
    }

    /// Registers one series of each metric, for the documentation.
    pub fn describe(registry: &mut Registry) {
        let metrics = Self::new(registry);
        metrics.pushed.get_or_create_owned(&KindLabels { kind: Kind::Cpu.as_str() });
        metrics.replaced.get_or_create_owned(&KindLabels { kind: Kind::Cpu.as_str() });
    }

    pub(super) fn pushed(&self, kind: Kind) {
        self.pushed.get_or_create(&KindLabels { kind: kind.as_str() }).inc();
    }

    pub(super) fn made(&self, cost: Duration) {
        self.cpu_seconds.inc_by(cost.as_secs_f64());
    }

    pub(super) fn replaced(&self, kind: Kind) {
        self.replaced.get_or_create(&KindLabels { kind: kind.as_str() }).inc();
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    pub(super) fn untaken(&self) {
        self.untaken.inc();
    }
}
