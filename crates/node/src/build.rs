//! Puts a node together, in the order in which data flows through it; implementations are chosen here
//! and nowhere else. Reading [`start`] from top to bottom is the architecture.
//!
//! Invariant: when `start` fails nothing is left behind: sockets and the store close, and no task runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use noroshi_api::{Http2, Pool, PoolLimits, PoolMetrics, Serving};
use noroshi_auth::Auth;
use noroshi_cells::Front;
use noroshi_delivery::quota::{self, Configured};
use noroshi_delivery::{Clock, Delivery};
use noroshi_egress::Egress;
use noroshi_gateway::{Bound, Gateway, Listener, Speaks, tls};
use noroshi_push::{Services, Vault};
use noroshi_store::Store;
use noroshi_supervision::Threads;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::admin_thread;
use crate::capacity::{self, Capacity};
use crate::cluster::{self, Nodes};
use crate::config::{self, Config, Role, TlsFiles};
use crate::data::{self, Addresses, Secrets};
use crate::descriptors::{self, Serves};
use crate::development::{self, Development, Given};
use crate::drain::Drain;
use crate::handover::{ApiConnections, bridge};
use crate::host::Host;
use crate::otel::Tracing;
use crate::reload::{Certificates, Hangups};
use crate::supervise::{self, Supervisor};
use crate::tasks::{TaskKind, Tasks};
use crate::{events, process, profiling, push_key, sqs, store};

/// Finer than any collector asks.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// Why a node could not start: one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("tls: {0}")]
    Tls(#[from] tls::Error),
    #[error("the address {address} ({key}) cannot be used: {reason}")]
    Address { key: &'static str, address: SocketAddr, reason: String },
    #[error(transparent)]
    Gateway(noroshi_gateway::Error),
    #[error("push credentials: {0}")]
    Push(#[from] noroshi_delivery::Error),
    #[error("egress: {0}")]
    Egress(#[from] noroshi_egress::ConfigError),
    #[error(transparent)]
    Data(#[from] data::Error),
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    #[error("front: {0}")]
    Front(#[from] noroshi_cells::Error),
    #[error("events: {0}")]
    Events(#[from] noroshi_events::Error),
    #[error("sqs: {0}")]
    Sqs(noroshi_cluster::Error),
    #[error(transparent)]
    Development(#[from] development::Error),
    #[error("the database does not answer: {0}")]
    Query(#[from] noroshi_store::Error),
    #[error(transparent)]
    Log(#[from] noroshi_telemetry::log::Error),
    #[error("the system refuses: {0}")]
    System(#[from] std::io::Error),
}

/// A node that takes traffic.
pub struct Node {
    pub config: Config,
    pub addresses: Addresses,
    /// What the machine has room for, as it was at the start.
    pub capacity: Capacity,
    /// What was made for development; none where an operator looks after apps.
    pub development: Option<Development>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) gateway: Arc<Gateway>,
    /// Tells HTTP/2 connections that the gateway drains: set before it does.
    pub(crate) draining: watch::Sender<bool>,
    pub(crate) services: Arc<Services>,
    pub(crate) ready: Arc<AtomicBool>,
    pub(crate) tasks: Tasks,
    pub(crate) supervisor: Supervisor,
    /// None where no sink is configured.
    pub(crate) events: Option<noroshi_events::Service>,
    /// Held until the node is dropped.
    _lock: Option<std::fs::File>,
}

/// Starts everything. Must be called inside a multi-threaded tokio runtime.
pub async fn start(config: Config, given: &Given) -> Result<Node, Error> {
    noroshi_types::topic::set_bytes_max(config.limits.topic_bytes);
    let connections_max = config.gateway.connections_max;
    let serves = match config.node.roles.has(Role::Api) || config.node.roles.has(Role::Front) {
        true => Serves::DevicesAndApi,
        false => Serves::Devices,
    };
    let shares = descriptors::raise().share(connections_max, serves);
    let capacity = capacity::estimate(&Host::here(), serves, config.server.tls.is_some(), connections_max);
    tracing::info!(devices = capacity.devices, api = shares.api, "{capacity}");
    let mut registry = noroshi_telemetry::registry();
    process::register(&mut registry);
    let threads = Threads::default();
    Supervisor::register(&threads, &mut registry);
    let clock = Clock::system();
    let mut tasks = Tasks::default();

    // What must survive. Opening it locks the data folder.
    let folder = config.server.data.clone();
    let opened = store::open(&config, &threads, &mut registry).await?;
    let store = opened.store.clone();
    let secrets = Secrets::new(&folder, opened.postgres.as_ref().map(|_| store.clone()));

    data::remove_addresses(&folder); // of a node that was killed

    // Addresses are taken before anything is promised to anyone.
    let certificates = Certificates::open(&config.server)?;
    let bound = Gateway::bind(gateway_config(&config, &certificates, shares.gateway, &threads))?;
    let admin = Admin::bind(&config, certificates.admin.clone(), http2(&config))
        .await
        .map_err(|error| address_error("server.admin", config.server.admin, &error))?;
    let addresses = addresses(&config, &bound, &admin)?;

    // The one way out.
    let egress = Arc::new(Egress::new(egress_config(&config)?)?);

    // Who may do what, and the first app.
    let auth = Auth::open_with(store.clone(), egress.clone(), config.auth.failures, &threads).await?;
    auth.register_metrics(&mut registry);
    let operator_token = secrets.get(data::OPERATOR_TOKEN, "no_").await?;
    let development = development::prepare(&auth, &secrets, given, config.server.dev, clock.now()).await?;
    warn_if_exposed(&config, &bound, &admin)?;

    // The decisions.
    let metrics = noroshi_delivery::metrics::Metrics::new(&mut registry);
    let delivery = Delivery::new(store.clone(), clock, metrics, Handle::current());
    delivery.quotas().set_defaults(config.quotas);
    delivery.attach_webhooks(egress.clone());
    let decides = delivery.clone();
    auth.watch_apps(move |apps, rules| {
        decides.quotas().configure(apps.iter().map(quotas_of));
        decides.set_topic_rules(rules);
    })
    .await;

    // The push services, with the credentials that the store keeps sealed.
    let services = Services::new(services_config(&config), egress.clone(), &mut registry, Handle::current());
    let vault = push_key::open(&config, &secrets).await?.map(Vault::new);
    delivery.attach_push(services.clone(), vault, push_config(&config));
    delivery.load_credentials().await?;
    delivery.reload_definitions().await?;

    // Who else is there.
    let http = bound.local_addrs().first().copied().unwrap_or(config.server.http);
    let info = cluster::first_info(&config, &addresses, http, delivery.clock().now());
    let profiler = noroshi_profiling::Profiler::new(folder.join("profiles"));
    let pusher = profiling::pusher(&config, &info.name, profiler.clone(), &mut registry)?;
    let parts = (&*delivery, auth.clone(), egress);
    let events = events::start(&config, &info.name, parts, &threads, &mut registry)?;
    let tracing = Tracing::open(&config, &info.name, &delivery, &mut registry)?;
    let joined = cluster::join(&config, &*store, &info, &mut registry).await?;
    let nodes = Arc::new(match &joined {
        Some(redis) => Nodes::Cluster(redis.cluster().members),
        None => Nodes::alone(info.clone()),
    });
    if let Some(redis) = &joined {
        cluster::attach(redis, &config, &delivery, &auth);
    }
    if let Some(postgres) = &opened.postgres {
        cluster::hand_over(postgres, &delivery);
    }
    let sqs = sqs::Parts::open(&config, &delivery, &mut registry).await?;

    // The API and the connections. Each hands on what is the other's, so one is known to the other late.
    let gateway_metrics = noroshi_gateway::Metrics::new(&mut registry);
    let pool_metrics = PoolMetrics::new(&mut registry);
    let front_metrics =
        config.node.roles.has(Role::Front).then(|| noroshi_cells::Metrics::new(&mut registry));
    let gateway_later: Arc<OnceLock<Arc<Gateway>>> = Arc::default();
    let draining = watch::Sender::new(false);
    let drain = Drain::new(gateway_later.clone(), draining.clone(), config.gateway.drain.clone());
    let state = Arc::new(noroshi_api::State {
        auth: auth.clone(),
        delivery: delivery.clone(),
        config: api_config(&config),
        metrics: noroshi_api::Metrics::new(&mut registry),
        registry: Arc::new(registry),
        ready: Arc::default(),
        threads: threads.clone(),
        operator_token: Some(operator_token),
        drain: Some(Arc::new(drain)),
        nodes: Some(nodes.clone()),
        profiler,
        first_calls: noroshi_api::FirstCalls::default(),
        load: noroshi_api::Load::default(),
    });
    let front = match front_metrics {
        Some(metrics) => {
            Some(Front::new(front_config(&config)?, state.clone(), opened.cells, metrics).await?)
        }
        None => None,
    };
    let (router, admin_router) = match &front {
        Some(front) => (front.router(), front.admin_router()),
        None => (noroshi_api::router(state.clone()), noroshi_api::admin_router(state.clone())),
    };
    let serving = Serving {
        router,
        timing: config.limits.timing,
        head: head_limits(&config),
        proxies: Arc::new(config.server.proxies.clone()),
        hands_off: config.node.roles.has(Role::Gateway),
        http2: http2(&config).map(|http2| Http2 {
            bridge: Some(bridge(gateway_later.clone())),
            draining: draining.subscribe(),
            ..http2
        }),
    };
    let limits =
        PoolLimits { connections_max: shares.api, per_client_max: config.limits.connections_per_client };
    let pool = Pool::new("public", limits, pool_metrics.clone());
    let api = ApiConnections::new(serving, pool, gateway_later.clone(), &tasks);
    let gateway = bound.start(&delivery, auth.clone(), gateway_metrics, api.handover())?;
    delivery.attach(gateway.clone());
    // Set here and nowhere else.
    let _ = gateway_later.set(gateway.clone());

    // The lease is gained when there is someone to hold it.
    if let Some(redis) = joined {
        let receiver = delivery.receiver();
        tasks.spawn(TaskKind::Cluster, |end| redis.run(receiver, end));
    }

    if let Some(front) = front {
        tasks.spawn(TaskKind::Front, |end| front.run(end.cancelled_owned()));
    }
    sqs.spawn(&mut tasks, &state);
    tracing.spawn(&mut tasks, &state.registry)?;

    // Background work. The admin address says what is going on from now to the very end.
    let hangups = Hangups::listen()?;
    tasks.spawn(TaskKind::Reload, |end| hangups.run(certificates, delivery.clone(), end));
    tasks.spawn(TaskKind::Delivery, |end| delivery.run(end.cancelled_owned()));
    tasks.spawn(TaskKind::Auth, |end| auth.run(end.cancelled_owned()));
    tasks.spawn(TaskKind::Admin, |end| {
        admin_thread::run(admin, admin_router, pool_metrics, threads.clone(), end)
    });
    tasks.spawn(TaskKind::Gauges, |end| observe(gateway.clone(), end));
    if let Some(pusher) = pusher {
        tasks.spawn(TaskKind::Profiling, |end| pusher.run(end));
    }
    tasks.spawn(TaskKind::Nodes, |end| cluster::describe(nodes, gateway.clone(), info, end));

    let limits =
        supervise::Limits { stall: config.server.stall_timeout, drain: supervise::drain_max(&config) };
    let supervisor = Supervisor::start(threads, limits)?;

    data::write_addresses(&folder, &addresses)?;
    state.ready.store(true, Ordering::Release);
    tracing::info!(http = addresses.http, admin = addresses.admin, data = %folder.display(), "taking traffic");
    let ready = state.ready.clone();
    let _lock = opened.lock;
    Ok(Node {
        config,
        addresses,
        capacity,
        development,
        store,
        gateway,
        draining,
        services,
        ready,
        tasks,
        supervisor,
        events,
        _lock,
    })
}

/// What is kept was checked when it was set.
fn quotas_of(app: &noroshi_store::App) -> Configured {
    let overrides = app.settings.quotas.as_deref().map(quota::parse).transpose();
    let overrides = overrides.unwrap_or_else(|error| {
        tracing::error!(app = %app.name, %error, "the app's quotas cannot be read; the node's defaults apply");
        None
    });
    Configured { app: app.id, name: app.name.clone(), overrides: overrides.unwrap_or_default() }
}

fn head_limits(config: &Config) -> noroshi_protocol::http::Limits {
    let limits = &config.limits;
    noroshi_protocol::http::Limits { head_bytes: limits.head_bytes, headers: limits.headers }
}

/// None where it is turned off.
fn http2(config: &Config) -> Option<Http2> {
    let (gateway, limits) = (&config.gateway, &config.limits);
    config.server.http2.then(|| Http2 {
        streams_max: limits.http2_streams,
        ping_interval: gateway.ping_interval,
        // Frames that a slow client still takes come before the PING.
        ping_timeout: gateway.ping_timeout.max(limits.timing.send),
        client_message_bytes: limits.client_message_bytes,
        ..Http2::default()
    })
}

/// `--dev` is for one machine: its app has a key with all scopes, and egress reaches this machine.
fn warn_if_exposed(config: &Config, bound: &Bound, admin: &Admin) -> Result<(), Error> {
    let admin = admin.local_addr()?;
    let exposed = development::exposed(bound.local_addrs().iter().chain([&admin]));
    if let Some(address) = exposed.filter(|_| config.server.dev) {
        tracing::warn!(
            %address,
            "a development node (--dev) listens beyond loopback: whoever reaches it can use the development app, and its apps can reach servers of this machine; start without --dev, or listen on 127.0.0.1"
        );
    }
    Ok(())
}

/// Keeps gauges current that cost a look at every shard.
async fn observe(gateway: Arc<Gateway>, end: CancellationToken) {
    while end.run_until_cancelled(tokio::time::sleep(GAUGE_INTERVAL)).await.is_some() {
        gateway.observe();
    }
}

fn gateway_config(
    config: &Config,
    certificates: &Certificates,
    connections_max: usize,
    threads: &Threads,
) -> noroshi_gateway::Config {
    let Config { server, limits, gateway, .. } = config;
    let defaults = noroshi_gateway::Config::default();
    noroshi_gateway::Config {
        listeners: listeners(config, certificates),
        xmpp: crate::xmpp::config(config, certificates),
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
        head: head_limits(config),
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
        parked_sessions_bytes: gateway.parked_sessions_bytes,
        tcp_keepalive: gateway.tcp_keepalive,
        io_uring: gateway.io_uring,
        http2: server.http2,
        websocket_deflate: gateway.websocket_deflate,
        mqtt: noroshi_protocol::mqtt::Config {
            packet_bytes_max: u32::try_from(limits.client_message_bytes).unwrap_or(u32::MAX),
            ..match server.conformance {
                true => noroshi_protocol::mqtt::Config::conformance(),
                false => noroshi_protocol::mqtt::Config::default(),
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

fn socket_io_config(config: &Config) -> noroshi_gateway::SocketIo {
    if config.server.conformance {
        return noroshi_gateway::SocketIo::conformance();
    }
    let mut it = noroshi_gateway::SocketIo::default();
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
    let xmpp = crate::xmpp::listeners(config, certificates);
    std::iter::once(public).chain(plain).chain(encrypted).chain(xmpp).collect()
}

pub(crate) fn egress_config(config: &Config) -> Result<noroshi_egress::Config, noroshi_egress::ConfigError> {
    let config::Egress { allow, proxies, ca_file, .. } = &config.egress;
    Ok(noroshi_egress::Config {
        allow: allow.clone(),
        proxies: proxies.clone(),
        ca: ca_file.as_deref().map(noroshi_egress::read_ca_file).transpose()?.unwrap_or_default(),
        ..noroshi_egress::Config::default()
    })
}

fn front_config(config: &Config) -> Result<noroshi_cells::Config, noroshi_egress::ConfigError> {
    let ca = config.egress.ca_file.as_deref().map(noroshi_egress::read_ca_file).transpose()?;
    Ok(noroshi_cells::Config {
        cells: config.front.cells.clone(),
        ca: ca.unwrap_or_default(),
        outbox_parts_max: config.front.outbox_parts_max,
        request_timeout: config.front.request_timeout,
        retention: config.store.trace_retention,
        ..Default::default()
    })
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
        // Twice what its connections carry at once (1,000 streams each): more would only wait. A service that
        // does not answer leaves a quarter to the others.
        recipients_per_service_max: (config.push.connections * 2_000).min(recipients_max / 4 * 3).max(1),
        ..defaults
    }
}

fn api_config(config: &Config) -> noroshi_api::Config {
    noroshi_api::Config {
        limits: noroshi_api::Limits {
            data_bytes: config.limits.data_bytes,
            body_bytes: config.limits.body_bytes,
            campaign_batch: config.push.batch,
        },
        public: config.node.roles.has(Role::Api) || config.node.roles.has(Role::Front),
        public_url: config.server.public_url.clone(),
        app_domain: config.server.app_domain.clone(),
        mqtt_public_url: config.mqtt.public_url.clone(),
        xmpp_public_url: config.xmpp.public_url.clone(),
        device_token_ttl: config.auth.device_token_ttl,
        requests_max: config.limits.requests_in_flight,
        web_push: noroshi_api::RateLimits {
            endpoint_per_minute: config.web_push.endpoint_per_minute,
            app_per_second: config.web_push.app_per_second,
        },
        ..Default::default()
    }
}

/// Where to reach the node from this machine.
fn addresses(config: &Config, bound: &Bound, admin: &Admin) -> Result<Addresses, Error> {
    let http = bound.local_addrs().first().copied().unwrap_or(config.server.http);
    Ok(Addresses {
        http: base_url(http, config.server.tls.as_ref()),
        admin: base_url(admin.local_addr()?, config.server.admin_tls.as_ref()),
    })
}

fn base_url(address: SocketAddr, tls: Option<&TlsFiles>) -> String {
    let port = address.port();
    match (tls, address.ip()) {
        // Certificates name hosts, and `localhost` is the one that is right on every machine.
        (Some(_), ip) if ip.is_unspecified() || ip.is_loopback() => format!("https://localhost:{port}"),
        (Some(_), _) => format!("https://{address}"),
        (None, IpAddr::V4(ip)) if ip.is_unspecified() => format!("http://{}:{port}", Ipv4Addr::LOCALHOST),
        (None, IpAddr::V6(ip)) if ip.is_unspecified() => format!("http://[{}]:{port}", Ipv6Addr::LOCALHOST),
        (None, _) => format!("http://{address}"),
    }
}

impl From<noroshi_gateway::Error> for Error {
    fn from(error: noroshi_gateway::Error) -> Self {
        match error {
            noroshi_gateway::Error::Listen { speaks, address, source } => {
                let key = match speaks {
                    Speaks::Http => "server.http",
                    Speaks::Mqtt => "mqtt.listen",
                    Speaks::Xmpp => "xmpp.listen",
                };
                address_error(key, address, &source)
            }
            error @ noroshi_gateway::Error::Start(_) => Error::Gateway(error),
        }
    }
}

fn address_error(key: &'static str, address: SocketAddr, error: &std::io::Error) -> Error {
    let reason = match error.kind() {
        std::io::ErrorKind::AddrInUse => "another process listens there".to_owned(),
        std::io::ErrorKind::AddrNotAvailable => "this machine does not have it".to_owned(),
        std::io::ErrorKind::PermissionDenied => "not permitted; ports below 1024 need a privilege".to_owned(),
        _ => error.to_string(),
    };
    Error::Address { key, address, reason }
}
