//! What this program tells OpenTelemetry: spans and metrics, posted to a collector as OTLP over HTTP (docs/tracing.md).
//!
//! ```text
//!   telemetry::Spans ─► Ended ──► exporter ─ batch ─► encode::spans ───┐
//!   registry as text ───────────► exporter ─ every ─► encode::metrics ─┴─► egress ─► collector
//! ```
//!
//! Exporting is one task that nobody waits for: what it is too slow for is dropped and counted. Without the feature `otlp`
//! there is no exporter, and [`AVAILABLE`] says so to whoever reads the configuration.
//!
//! Reading order: [`config`], `exporter`, `encode`, [`metrics`] (what is counted of all this).

pub mod config;
#[cfg(feature = "otlp")]
mod encode;
#[cfg(feature = "otlp")]
mod exporter;
pub mod metrics;

pub use config::Config;
#[cfg(feature = "otlp")]
pub use exporter::{Exporter, Scrape};
pub use metrics::Metrics;

/// Whether this build can export.
pub const AVAILABLE: bool = cfg!(feature = "otlp");
