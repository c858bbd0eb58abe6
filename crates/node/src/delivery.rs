//! Delivery, with the quotas and topic rules of the apps.

use std::sync::Arc;

use noroshi_auth::Auth;
use noroshi_delivery::quota::{self, Configured};
use noroshi_delivery::{BackpressureConfig, Clock, Delivery, metrics::Metrics};
use noroshi_egress::Egress;
use noroshi_store::Store;
use noroshi_telemetry::Registry;
use tokio::runtime::Handle;

use crate::config::Config;

/// Follows changes of apps in `auth`.
pub(crate) async fn start(
    config: &Config,
    store: Arc<dyn Store>,
    clock: Clock,
    egress: Arc<Egress>,
    auth: &Arc<Auth>,
    registry: &mut Registry,
) -> Arc<Delivery> {
    let delivery = Delivery::new(store, clock, Metrics::new(registry), Handle::current());
    let publish = &config.publish;
    delivery.backpressure.configure(BackpressureConfig {
        wait_max: publish.wait_max,
        delay_max: publish.delay_max,
        // A quarter of all requests for each of three queues: the rest is for requests that do not publish.
        waiting_max: config.limits.requests_in_flight.div_ceil(4),
    });
    delivery.quotas.set_defaults(config.quotas);
    delivery.rules.attach_webhooks(egress);
    let follower = delivery.clone();
    auth.watch_apps(move |apps, rules| {
        follower.quotas.configure(apps.iter().map(quotas_of));
        follower.rules.set(rules);
        let essential = apps.iter().map(|app| (app.id, app.settings.essential_categories.clone()));
        follower.context.set_essential_categories(essential);
    })
    .await;
    delivery
}

/// Stored quotas were valid when they were set.
fn quotas_of(app: &noroshi_store::App) -> Configured {
    let overrides = app.settings.quotas.as_deref().map(quota::parse).transpose();
    let overrides = overrides.unwrap_or_else(|error| {
        tracing::error!(app = %app.name, %error, "cannot parse the app's quotas; the node's defaults apply");
        None
    });
    Configured { app: app.id, name: app.name.clone(), overrides: overrides.unwrap_or_default() }
}
