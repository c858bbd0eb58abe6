//! A node with a store, and a clock that tests move.

use std::sync::Arc;
use std::time::Duration;

use noroshi_delivery::Clock;
use noroshi_delivery::Delivery;
use noroshi_series::{Metrics, Recorder, Sampler};
use noroshi_store::{Sqlite, Store, sqlite};
use noroshi_telemetry::Registry;
use noroshi_types::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::runtime::Handle;

/// The begin of an hour.
pub(crate) const BEGIN: u64 = 1_800_000_000_000;
const _: () = assert!(BEGIN.is_multiple_of(3_600_000));

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut registry = noroshi_telemetry::registry();
        let store = Sqlite::open(folder.path(), sqlite::Options::default(), &mut registry).expect("a store");
        Self { store: Arc::new(store), clock: Clock::fixed(Timestamp(BEGIN)), folder }
    }

    pub(crate) fn node(&self, name: &str) -> Node {
        let mut registry = noroshi_telemetry::registry();
        let publishes = Counter::<u64>::default();
        registry.register("notifications_accepted", "Accepted", publishes.clone());
        let connections = Gauge::<i64>::default();
        registry.register("connections", "Open", connections.clone());
        let mut own = Registry::default();
        let delivery = Delivery::new(
            self.store.clone(),
            self.clock.clone(),
            noroshi_delivery::metrics::Metrics::new(&mut own),
            Handle::current(),
        );
        let sampler = Arc::new(Sampler::new(Arc::new(registry), delivery.clone()));
        let holder = name.bytes().map(u64::from).sum();
        let recorder = Recorder::new(
            self.store.clone(),
            sampler.clone(),
            self.clock.clone(),
            name.to_owned(),
            holder,
            Metrics::default(),
        );
        Node { recorder, sampler, delivery, publishes, connections }
    }

    pub(crate) fn at(&self, seconds: u64) -> Timestamp {
        Timestamp(BEGIN + seconds * 1_000)
    }

    pub(crate) fn set(&self, seconds: u64) {
        self.clock.set(self.at(seconds));
    }
}

pub(crate) struct Node {
    pub(crate) recorder: Recorder,
    pub(crate) sampler: Arc<Sampler>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) publishes: Counter,
    pub(crate) connections: Gauge,
}

impl Node {
    /// Counts publishes during a step, and ends it.
    pub(crate) async fn step(&mut self, publishes: u64) {
        self.publishes.inc_by(publishes);
        self.recorder.record(Duration::from_secs(10)).await;
    }
}
