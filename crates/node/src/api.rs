//! The API's configuration, and how its connections are served.

use std::sync::{Arc, OnceLock};

use axum::Router;
use noroshi_api::{CampaignRules, Http2, Limits, Pool, PoolLimits, PoolMetrics, Serving};
use noroshi_gateway::Gateway;
use tokio::sync::watch;

use crate::config::{Config, Role};
use crate::handover::{ApiConnections, bridge};
use crate::request_head;
use crate::tasks::Tasks;

pub(crate) fn config(config: &Config) -> noroshi_api::Config {
    noroshi_api::Config {
        limits: Limits {
            data_bytes: config.limits.data_bytes,
            body_bytes: config.limits.body_bytes,
            campaign_batch: config.push.batch,
        },
        front: config.node.roles.has(Role::Front),
        public: config.node.roles.has(Role::Api) || config.node.roles.has(Role::Front),
        public_url: config.server.public_url.clone(),
        app_domain: config.server.app_domain.clone(),
        mqtt_public_url: config.mqtt.public_url.clone(),
        xmpp_public_url: config.xmpp.public_url.clone(),
        device_token_ttl: config.auth.device_token_ttl,
        requests_max: config.limits.requests_in_flight,
        web_push: config.web_push,
        campaigns: CampaignRules {
            large: config.console.large_campaign,
            keys_need_approval: config.console.approve_keys,
        },
        ..Default::default()
    }
}

/// Serves the connections of the public addresses.
///
/// `gateway` is set after this: API and gateway pass connections to each other, so one of them starts first.
pub(crate) fn connections(
    config: &Config,
    router: Router,
    connections_max: usize,
    metrics: PoolMetrics,
    gateway: Arc<OnceLock<Arc<Gateway>>>,
    draining: watch::Receiver<bool>,
    tasks: &Tasks,
) -> ApiConnections {
    let serving = Serving {
        router,
        timing: config.limits.timing,
        head: request_head::limits(config),
        proxies: Arc::new(config.server.proxies.clone()),
        hands_off: config.node.roles.has(Role::Gateway),
        http2: http2(config).map(|http2| Http2 { bridge: Some(bridge(gateway.clone())), draining, ..http2 }),
    };
    let limits = PoolLimits { connections_max, per_client_max: config.limits.connections_per_client };
    ApiConnections::new(serving, Pool::new("public", limits, metrics), gateway, tasks)
}

/// None if HTTP/2 is disabled.
pub(crate) fn http2(config: &Config) -> Option<Http2> {
    let (gateway, limits) = (&config.gateway, &config.limits);
    config.server.http2.then(|| Http2 {
        streams_max: limits.http2_streams,
        ping_interval: gateway.ping_interval,
        // A PING goes out after the frames before it, which a slow client may still be reading.
        ping_timeout: gateway.ping_timeout.max(limits.timing.send),
        client_message_bytes: limits.client_message_bytes,
        ..Http2::default()
    })
}
