//! Metrics, logs and spans.
//!
//! ```text
//!   crates' metrics.rs ──► Registry ──► /metrics (Prometheus text)
//!   tracing events ──────► log::init ─► stderr, text or JSON
//!   span::Spans ─────────► span::Ended ─► the exporter (crate otel)
//! ```
//!
//! Reading order: [`histogram`] (lock-free, for hot paths), [`reading`], [`log`], [`span`]. Each crate registers its own
//! metrics with [`prometheus_client`]; names carry the prefix `noroshi_`, units last.

pub mod histogram;
pub mod log;
mod log_throttle;
pub mod reading;
pub mod span;

pub use histogram::Histogram;
pub use log_throttle::LogThrottle;
pub use prometheus_client::registry::Registry;
pub use span::Spans;

use prometheus_client::registry::Metric;

/// The labels of a metric: name and value of each.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Declares a struct of metrics and its `register`, which registers them in this order under the names of their fields.
///
/// ```
/// use prometheus_client::metrics::counter::Counter;
///
/// noroshi_telemetry::metrics! {
///     pub struct Metrics {
///         acks_dropped: Counter = "Acknowledgements that were dropped",
///     }
/// }
/// Metrics::default().register(&mut noroshi_telemetry::registry());
/// ```
#[macro_export]
macro_rules! metrics {
    (
        $(#[$attributes:meta])*
        $visibility:vis struct $Metrics:ident {
            $($(#[$doc:meta])* $field_visibility:vis $field:ident: $kind:ty = $help:literal,)*
        }
    ) => {
        $(#[$attributes])*
        #[derive(Debug, Clone, Default)]
        $visibility struct $Metrics {
            $($(#[$doc])* $field_visibility $field: $kind,)*
        }

        impl $Metrics {
            $visibility fn register(&self, registry: &mut $crate::Registry) {
                $(registry.register(stringify!($field), $help, self.$field.clone());)*
            }
        }
    };
}

/// The registry of a node: every metric is named `noroshi_…`.
pub fn registry() -> Registry {
    Registry::with_prefix("noroshi")
}

/// Creates a metric and registers it.
pub fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// The text of `/metrics` in version 0.0.4 of the format, which all scrapers and `promtool` read.
pub fn encode(registry: &Registry) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)?;
    Ok(prometheus_text(&text))
}

/// OpenMetrics names a counter's family without the `_total` of its samples. The older format has the same name for
/// both, and no `# UNIT` and `# EOF`.
fn prometheus_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + open_metrics.len() / 16);
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
            continue;
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;

    #[test]
    fn help_and_type_have_the_name_of_the_samples() {
        let mut registry = registry();
        registry.register("logins", "Log-ins", Counter::<u64>::default());
        registry.register("connections", "Open now", Gauge::<i64>::default());
        assert_eq!(
            encode(&registry).expect("text"),
            "# HELP noroshi_logins_total Log-ins.\n# TYPE noroshi_logins_total counter\nnoroshi_logins_total 0\n\
             # HELP noroshi_connections Open now.\n# TYPE noroshi_connections gauge\nnoroshi_connections 0\n"
        );
    }
}
