//! The event log of a node: from configuration to a running one, and its end.

use std::sync::Arc;

use noroshi_auth::Auth;
use noroshi_delivery::Delivery;
use noroshi_egress::Egress;
use noroshi_events::{Config as Log, Metrics, Names, Service};
use noroshi_supervision::Threads;
use noroshi_telemetry::Registry;
use tokio::runtime::Handle;

use crate::config::Config;

/// None where no sink is configured.
pub(crate) fn start(
    config: &Config,
    node: &str,
    (delivery, auth, egress): (&Delivery, Arc<Auth>, Arc<Egress>),
    threads: &Threads,
    registry: &mut Registry,
) -> Result<Option<Service>, noroshi_events::Error> {
    if config.events.log.sinks.is_empty() {
        return Ok(None);
    }
    let metrics = Metrics::new(registry);
    let log = Log { node: node.to_owned(), version: env!("CARGO_PKG_VERSION"), ..config.events.log.clone() };
    let names: Names = Arc::new(move |app| auth.app_name(app).map(|name| name.to_string()));
    let service = Service::start(&log, names, Some((Handle::current(), egress)), threads, &metrics)?;
    let sinks: Vec<_> = log.sinks.iter().map(noroshi_events::config::Sink::name).collect();
    tracing::info!(?sinks, "events are told");
    delivery.attach_events(service.events());
    Ok(Some(service))
}

/// Gives sinks what is left, for as long as they have. Blocks a thread of its own.
pub(crate) async fn end(service: Option<Service>) {
    let Some(service) = service else { return };
    match tokio::task::spawn_blocking(move || service.drain()).await {
        Ok(drained) if drained.lost > 0 => {
            tracing::warn!(
                lost = drained.lost,
                spooled = drained.spooled,
                "some events were not taken in time"
            );
        }
        Ok(drained) => tracing::info!(spooled = drained.spooled, "the event log ended"),
        Err(error) => tracing::error!(%error, "the event log could not end"),
    }
}
