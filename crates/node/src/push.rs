//! Connections to push services, and the push work of delivery.

use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_delivery::push::record::Recording;
use noroshi_egress::Egress;
use noroshi_push::{Services, Vault};
use noroshi_telemetry::Registry;
use tokio::runtime::Handle;

use crate::config::{self, Config, Role};

/// `vault`: decrypts the stored credentials. None: the node has no key.
pub(crate) async fn start(
    config: &Config,
    vault: Option<Vault>,
    delivery: &Arc<Delivery>,
    egress: Arc<Egress>,
    registry: &mut Registry,
) -> Result<Arc<Services>, noroshi_delivery::Error> {
    let services = Services::new(services_config(config), egress, registry, Handle::current());
    delivery.push.attach(services.clone(), vault, push_config(config));
    delivery.push.credentials()?.load().await?;
    delivery.first_calls.reload().await?;
    Ok(services)
}

fn services_config(config: &Config) -> noroshi_push::Config {
    let config::Push { connections, request_timeout, .. } = config.push;
    noroshi_push::Config { connections_max: connections, request_timeout, ..noroshi_push::Config::default() }
}

fn push_config(config: &Config) -> noroshi_delivery::push::Config {
    let defaults = noroshi_delivery::push::Config::default();
    let recipients_max = config.push.in_flight;
    noroshi_delivery::push::Config {
        recipients_max,
        sends: config.node.roles.has(Role::Sender),
        shared: config.store.url.is_some(),
        traceparent: config.tracing.push_services,
        recording: Recording { retention: config.push.record_retention, sample: config.push.record_sample },
        // Twice what its connections carry (1,000 streams each), since more would only queue. At most three quarters of all, so
        // that one unresponsive push service does not block the others.
        recipients_per_service_max: (config.push.connections * 2_000).min(recipients_max / 4 * 3).max(1),
        ..defaults
    }
}
