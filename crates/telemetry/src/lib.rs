//! Metrics and logs.
//!
//! ```text
//!   crates' metrics.rs ──► Registry ──► /metrics (OpenMetrics text)
//!   tracing events ──────► log::init ─► stderr, text or JSON
//! ```
//!
//! Reading order: [`histogram`] (lock-free, for hot paths), [`log`]. Each crate registers its own
//! metrics with [`prometheus_client`]; names carry the prefix `noroshi_`, units last.

pub mod histogram;
pub mod log;

pub use histogram::Histogram;
pub use prometheus_client::registry::Registry;

/// The registry of a node: every metric is named `noroshi_…`.
pub fn registry() -> Registry {
    Registry::with_prefix("noroshi")
}

/// The text of `/metrics`.
pub fn encode(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)?;
    Ok(text)
}
