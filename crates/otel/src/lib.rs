//! Exports spans and metrics to an OpenTelemetry collector, as OTLP over HTTP (docs/tracing.md).
//!
//! ```text
//!   telemetry::Spans ─► Ended ──► exporter ─ batch ─► encode::spans ───┐
//!   registry as text ───────────► exporter ─ every ─► encode::metrics ─┴─► egress ─► collector
//! ```
//!
//! Exporting is one task that no other task waits for: spans that exceed its speed are dropped and counted. Without the
//! feature `otlp` there is no exporter, and [`AVAILABLE`] reports this to the configuration.
//!
//! Reading order: [`config`], `exporter`, `encode`, [`metrics`] (the exporter's own).

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
