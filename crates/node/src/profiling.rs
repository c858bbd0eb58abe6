//! Continuous profiling: creates the pusher from the configuration.

use std::sync::Arc;

use noroshi_egress::{ConfigError, Egress};
use noroshi_profiling::push::Label;
use noroshi_profiling::{Metrics, Profiler, Pusher};
use noroshi_telemetry::Registry;

use crate::config::Config;
use crate::egress;

/// None if no server is configured.
pub(crate) fn pusher(
    config: &Config,
    node: &str,
    profiler: Profiler,
    registry: &mut Registry,
) -> Result<Option<Pusher>, ConfigError> {
    let Some(push) = config.profiling.push.clone() else { return Ok(None) };
    let own = vec![
        Label::new("node", node),
        Label::new("role", &config.node.roles.names().join("+")),
        Label::new("version", env!("CARGO_PKG_VERSION")),
    ];
    // Its own egress, so that the server is not reachable through the node's restricted egress.
    let allow = noroshi_egress::Config::anywhere().allow;
    let egress = Egress::new(noroshi_egress::Config { allow, ..egress::config(config)? })?;
    Ok(Some(Pusher::new(push, own, profiler, Arc::new(egress), Metrics::new(registry))))
}
