//! The gateway's configuration and listeners.

use std::net::SocketAddr;

use noroshi_gateway::{Listener, SocketIo, Speaks};
use noroshi_protocol::mqtt;
use noroshi_supervision::Threads;

use crate::config::{Config, Role};
use crate::development;
use crate::reload::Certificates;
use crate::request_head;
use crate::xmpp;

pub(crate) fn config(
    config: &Config,
    certificates: &Certificates,
    connections_max: usize,
    threads: &Threads,
) -> noroshi_gateway::Config {
    let Config { server, limits, gateway, .. } = config;
    let defaults = noroshi_gateway::Config::default();
    noroshi_gateway::Config {
        listeners: listeners(config, certificates),
        xmpp: xmpp::config(config, certificates),
        devices: config.node.roles.has(Role::Gateway),
        app_domain: server.app_domain.clone(),
        threads: threads.clone(),
        shards: if server.shards == 0 { defaults.shards } else { server.shards },
        conformance: server.conformance,
        socket_io: socket_io_config(config),
        connections_max,
        unauthenticated_max: gateway.unauthenticated_max,
        connections_per_client: gateway.connections_per_client,
        proxies: server.proxies.clone(),
        connects_per_second: gateway.connects_per_second,
        head: request_head::limits(config),
        head_timeout: gateway.head_timeout,
        auth_timeout: gateway.auth_timeout,
        body_first_byte_timeout: limits.timing.body_first_byte,
        body_timeout: limits.timing.body,
        ping_interval: gateway.ping_interval,
        ping_timeout: gateway.ping_timeout,
        client_message_bytes: limits.client_message_bytes,
        frames_per_second: gateway.frames_per_second,
        frames_burst: gateway.frames_burst,
        send_queue_soft_bytes: gateway.send_queue_soft_bytes,
        send_queue_bytes: gateway.send_queue_bytes,
        send_stall: gateway.send_stall,
        live_age_max: config.publish.live_age_max,
        parked_sessions_bytes: gateway.parked_sessions_bytes,
        tcp_keepalive: gateway.tcp_keepalive,
        io_uring: gateway.io_uring,
        http2: server.http2,
        websocket_deflate: gateway.websocket_deflate,
        mqtt: mqtt::Config {
            packet_bytes_max: u32::try_from(limits.client_message_bytes).unwrap_or(u32::MAX),
            ..match server.conformance {
                true => mqtt::Config::conformance(),
                false => mqtt::Config::default(),
            }
        },
        mqtt_redirect: config
            .mqtt
            .redirect
            .as_deref()
            .map(|servers| noroshi_gateway::Redirect { servers: servers.into(), moved: config.mqtt.moved }),
        publish_bytes_max: limits.data_bytes,
        anonymous_app: server.conformance.then(|| development::APP.to_owned()),
        ..defaults
    }
}

fn socket_io_config(config: &Config) -> SocketIo {
    if config.server.conformance {
        return SocketIo::conformance();
    }
    let mut it = SocketIo::default();
    it.engine.payload_bytes_max = config.limits.client_message_bytes;
    it.engine.queue_bytes_max = config.gateway.send_queue_bytes;
    it.conversation.limits.binary_bytes = config.limits.client_message_bytes;
    it
}

/// The public address first.
fn listeners(config: &Config, certificates: &Certificates) -> Vec<Listener> {
    let public =
        Listener { speaks: Speaks::Http, address: config.server.http, tls: certificates.public.clone() };
    let devices = config.node.roles.has(Role::Gateway);
    let mqtt = |address: Option<SocketAddr>, tls| {
        let address = address.filter(|_| devices)?;
        Some(Listener { speaks: Speaks::Mqtt, address, tls })
    };
    let plain = mqtt(config.mqtt.listen, None);
    let encrypted = mqtt(config.mqtt.tls_listen, certificates.public.clone());
    let xmpp = xmpp::listeners(config, certificates);
    std::iter::once(public).chain(plain).chain(encrypted).chain(xmpp).collect()
}
