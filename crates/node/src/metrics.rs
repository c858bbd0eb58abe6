//! Metrics that only some nodes have, or that appear only once counted: of cluster, front, intake, push services, event log,
//! tracing and profiling. docs/metrics.md is generated from these and from the metrics of a single node.
//!
//! For documentation only: a node registers its own (`build`).

/// In the format of `/metrics`, each with at least one label. Values are meaningless.
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
