//! Every metric that only some nodes have or that only shows once it was counted: of the cluster, of a front, of the
//! intake, of push services, of the event log, of tracing, of profiles that are pushed. docs/metrics.md is written
//! from them and from what a node alone says.
//!
//! Nothing here is counted: a node registers its own (`build`).

/// As `/metrics` shows them, each with one of its labels at least; values mean nothing.
pub fn describe() -> Result<String, std::fmt::Error> {
    let mut registry = noroshi_telemetry::registry();
    noroshi_cluster::metrics::describe(&mut registry);
    noroshi_cells::metrics::describe(&mut registry);
    noroshi_sqs::metrics::Metrics::new(&mut registry);
    noroshi_push::metrics::describe(&mut registry);
    noroshi_delivery::metrics::describe(&mut registry);
    noroshi_events::Metrics::describe(&mut registry);
    noroshi_otel::Metrics::new(&mut registry);
    noroshi_profiling::Metrics::describe(&mut registry);
    noroshi_telemetry::encode(&registry)
}
