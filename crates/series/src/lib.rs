//! The time series of the console, so that Prometheus is optional, and live figures for its overview.
//!
//! ```text
//!   Registry (/metrics) ─┐
//!   quotas (apps) ───────┴─► Sampler ─┬─► Recorder ─ a row every 10 s ─► SeriesStore ◄─ Reader ◄─ GET /v1/series
//!                                     │      └ the leader: rows of a minute and an hour, bounds
//!                                     └─► Live ─ once a second, with viewers ─► viewers
//!                                          └◄─► figures of other nodes (delivery::figures)
//! ```
//!
//! Reading order: [`figure`] (which figures exist), [`row`] (how they are kept and added up), [`sampler`], [`recorder`],
//! [`reader`], [`live`].
//!
//! Invariants: a step is a multiple of its length on the wall clock, so rows of different nodes have the same times. Rows
//! add up: the sum of two rows is the row of both nodes, or of both times. A value that no node measured is absent, never 0.

pub mod figure;
pub mod live;
mod metrics;
pub mod reader;
pub mod recorder;
pub mod row;
pub mod sampler;

use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_telemetry::Registry;
use tokio::runtime::Handle;

pub use figure::{Kind, SHOWN, Shown};
pub use live::{Live, Scope, Viewer};
pub use metrics::Metrics;
pub use reader::{Answer, Query, Reader};
pub use recorder::{Recorder, Step};
pub use row::Row;
pub use sampler::Sampler;

/// What the API asks.
pub struct Series {
    pub reader: Reader,
    pub live: Arc<Live>,
    sampler: Arc<Sampler>,
}

impl Series {
    /// `node`: the name of this one.
    pub fn new(registry: Arc<Registry>, delivery: &Arc<Delivery>, node: &str, metrics: Metrics) -> Arc<Self> {
        let sampler = Arc::new(Sampler::new(registry, delivery.clone()));
        let live = Live::new(sampler.clone(), delivery.clone(), node.to_owned(), Handle::current(), metrics);
        Arc::new(Self { reader: Reader::new(delivery.store().clone()), live, sampler })
    }

    /// Writes the series of this node. `holder`: a number that no other process has.
    pub fn recorder(&self, delivery: &Delivery, node: &str, holder: u64, metrics: Metrics) -> Recorder {
        let (store, clock) = (delivery.store().clone(), delivery.clock().clone());
        Recorder::new(store, self.sampler.clone(), clock, node.to_owned(), holder, metrics)
    }
}
