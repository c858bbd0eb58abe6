//! Starts and stops the event log. Without a sink it idles until someone opens a live tail.

use std::sync::Arc;

use noroshi_auth::Auth;
use noroshi_delivery::Delivery;
use noroshi_egress::Egress;
use noroshi_events::{Config as Log, Metrics, Names, Service};
use noroshi_supervision::Threads;
use noroshi_telemetry::Registry;
use tokio::runtime::Handle;

use crate::config::Config;

pub(crate) fn start(
    config: &Config,
    node: &str,
    (delivery, auth, egress): (&Delivery, Arc<Auth>, Arc<Egress>),
    threads: &Threads,
    registry: &mut Registry,
) -> Result<Service, noroshi_events::Error> {
    let metrics = match config.events.log.sinks.is_empty() {
        true => Metrics::default(),
        false => Metrics::new(registry),
    };
    let log = Log { node: node.to_owned(), version: env!("CARGO_PKG_VERSION"), ..config.events.log.clone() };
    let names: Names = Arc::new(move |app| auth.app_name(app).map(|name| name.to_string()));
    let service = Service::start(&log, names, Some((Handle::current(), egress)), threads, &metrics)?;
    if service.has_sinks() {
        let sinks: Vec<_> = log.sinks.iter().map(noroshi_events::config::Sink::name).collect();
        tracing::info!(?sinks, "event log started");
    }
    delivery.context.outcomes.attach_events(service.events());
    Ok(service)
}

/// Sends pending events to the sinks until the timeout. Blocks its own thread.
pub(crate) async fn end(service: Option<Service>) {
    let Some(service) = service else { return };
    let has_sinks = service.has_sinks();
    match tokio::task::spawn_blocking(move || service.drain()).await {
        Ok(drained) if drained.lost > 0 => {
            tracing::warn!(
                lost = drained.lost,
                spooled = drained.spooled,
                "some events were dropped because sinks did not accept them in time"
            );
        }
        Ok(_) if !has_sinks => {}
        Ok(drained) => tracing::info!(spooled = drained.spooled, "event log stopped"),
        Err(error) => tracing::error!(%error, "the event log failed to stop"),
    }
}
