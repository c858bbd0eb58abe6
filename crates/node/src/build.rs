//! Assembles a node in the order in which data flows through it. [`start`] is the architecture, read from top to bottom:
//! each step is one component, which is given the handles of those before it.
//!
//! Implementations are chosen by configuration in the components' own modules (`store`, `cluster`, `sqs`); none of them knows
//! this module.
//!
//! Invariant: when `start` fails nothing is left behind: sockets and the store close, and no task runs.

mod address;
mod error;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use noroshi_api::inspection::Inspector;
use noroshi_api::{PoolMetrics, State};
use noroshi_auth::Auth;
use noroshi_cells::Front;
use noroshi_console::Console;
use noroshi_delivery::{Clock, Delivery};
use noroshi_egress::Egress;
use noroshi_gateway::{Bound, Gateway};
use noroshi_profiling::{Profiler, Pusher};
use noroshi_push::{Services, Vault};
use noroshi_series::Series;
use noroshi_store::Store;
use noroshi_store::cells::Cells;
use noroshi_supervision::Threads;
use noroshi_tail::Tails;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;
use crate::capacity::{self, Capacity};
use crate::cluster::Membership;
use crate::config::{Config, Role};
use crate::data::{self, Addresses, Secrets};
use crate::descriptors::{self, Serves, Shares};
use crate::development::{self, Development, Given};
use crate::drain::Drain;
use crate::host::Host;
use crate::inspection::Inspect;
use crate::otel::Tracing;
use crate::reload::{Certificates, Hangups};
use crate::supervise::{self, Supervisor};
use crate::tasks::{TaskKind, Tasks};
use crate::{
    admin_thread, api, cluster, console, delivery, egress, events, front, gateway, process, profiling, push,
    push_key, sqs, store,
};

pub use error::Error;

/// Shorter than the scrape interval of any collector.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);

/// A node that accepts traffic.
pub struct Node {
    pub config: Config,
    pub addresses: Addresses,
    /// The capacity of the machine at start.
    pub capacity: Capacity,
    /// The development app; none if an operator manages the apps.
    pub development: Option<Development>,
    /// Path and fragment at the admin address that log the developer in, once.
    pub console_link: Option<String>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) gateway: Arc<Gateway>,
    /// Tells HTTP/2 connections that the gateway drains. Set before the gateway starts to.
    pub(crate) draining: watch::Sender<bool>,
    pub(crate) services: Arc<Services>,
    pub(crate) ready: Arc<AtomicBool>,
    pub(crate) tasks: Tasks,
    pub(crate) supervisor: Supervisor,
    /// None after it ended.
    pub(crate) events: Option<noroshi_events::Service>,
    /// Held until the node is dropped.
    _lock: Option<std::fs::File>,
}

/// Starts a node. Must be called inside a multi-threaded tokio runtime.
pub async fn start(config: Config, given: &Given) -> Result<Node, Error> {
    noroshi_types::topic::set_bytes_max(config.limits.topic_bytes);
    let (shares, capacity) = measure(&config);
    let mut registry = noroshi_telemetry::registry();
    process::register(&mut registry);
    let threads = Threads::default();
    Supervisor::register(&threads, &mut registry);
    let clock = Clock::system();
    let mut tasks = Tasks::default();

    // Durable data. Opening the store locks the data folder.
    let folder = config.server.data.clone();
    let opened = store::open(&config, &threads, &mut registry).await?;
    let secrets = Secrets::new(&folder, opened.postgres.as_ref().map(|_| opened.store.clone()));
    data::remove_addresses(&folder); // left by a node that was killed

    // Addresses, before the node promises anything.
    let listening = Listening::bind(&config, &shares, &threads).await?;

    // Outgoing connections.
    let egress = Arc::new(Egress::new(egress::config(&config)?)?);

    // Credentials and the first app.
    let auth = Auth::open_with(opened.store.clone(), egress.clone(), config.auth.failures, &threads).await?;
    auth.register_metrics(&mut registry);
    let operator_token = secrets.get(data::OPERATOR_TOKEN, "no_").await?;
    let development = development::prepare(&auth, &secrets, given, config.server.dev, clock.now()).await?;
    listening.warn_if_exposed(&config)?;

    // Decisions, and push services.
    let delivery =
        delivery::start(&config, opened.store.clone(), clock, egress.clone(), &auth, &mut registry).await;
    let vault = push_key::open(config.push.key_file.as_deref(), config.server.dev, &secrets).await?;
    let services =
        push::start(&config, vault.map(Vault::new), &delivery, egress.clone(), &mut registry).await?;

    let console = console::open(&config, opened.store.clone(), vault).await?;
    let console_link = match config.server.dev {
        true => console::development_link(&console, delivery.clock().now()).await.ok(),
        false => None,
    };

    // Other nodes.
    let info = cluster::first_info(&config, &listening.addresses, listening.http, delivery.clock().now());
    let inspector = Inspector::new(Arc::new(Inspect::new(info.name.clone(), config.clone())));
    let profiler = Profiler::new(folder.join("profiles"));
    let pusher = profiling::pusher(&config, &info.name, profiler.clone(), &mut registry)?;
    let events =
        events::start(&config, &info.name, (&delivery, auth.clone(), egress), &threads, &mut registry)?;
    let tracing = Tracing::open(&config, &info.name, &delivery, &mut registry)?;
    let (name, series_metrics) = (info.name.clone(), noroshi_series::Metrics::default());
    series_metrics.register(&mut registry);
    let tail_metrics = noroshi_tail::Metrics::default();
    tail_metrics.register(&mut registry);
    let tails =
        Tails::new(delivery.clone(), events.events(), info.name.clone(), Handle::current(), tail_metrics);
    let cluster = Membership::join(&config, &*opened.store, info, &delivery, &auth, &mut registry).await?;
    if let Some(postgres) = &opened.postgres {
        cluster::hand_over(postgres, &delivery);
    }
    let sqs = sqs::Parts::open(&config, &delivery, &mut registry).await.map_err(Error::Sqs)?;

    // The API and the gateway. They pass connections to each other, so the API gets the gateway later.
    let gateway_metrics = noroshi_gateway::Metrics::new(&mut registry);
    let pool_metrics = PoolMetrics::new(&mut registry);
    let front_metrics =
        config.node.roles.has(Role::Front).then(|| noroshi_cells::Metrics::new(&mut registry));
    let gateway_later: Arc<OnceLock<Arc<Gateway>>> = Arc::default();
    let draining = watch::Sender::new(false);
    let drain = Drain::new(gateway_later.clone(), draining.clone(), config.gateway.drain.clone());
    let metrics = noroshi_api::Metrics::new(&mut registry);
    let registry = Arc::new(registry);
    let series = Series::new(registry.clone(), &delivery, &name, series_metrics.clone());
    let recorder = series.recorder(&delivery, &name, process::random(), series_metrics);
    let state = Arc::new(State {
        auth: auth.clone(),
        delivery: delivery.clone(),
        console: console.clone(),
        config: api::config(&config),
        metrics,
        registry,
        ready: Arc::default(),
        threads: threads.clone(),
        operator_token: Some(operator_token),
        drain: Some(Arc::new(drain)),
        nodes: Some(cluster.nodes.clone()),
        series: series.clone(),
        tails: tails.clone(),
        inspector: Some(Arc::new(inspector)),
        profiler,
        first_calls: noroshi_api::FirstCalls::default(),
        load: noroshi_api::Load::default(),
    });
    let (front, router, admin_router) = routers(&config, &state, opened.cells, front_metrics).await?;
    let (router, admin_router) = console::serve(&config, (&state, front.as_ref()), router, admin_router);
    let connections = api::connections(
        &config,
        router,
        shares.api,
        pool_metrics.clone(),
        gateway_later.clone(),
        draining.subscribe(),
        &tasks,
    );
    let Listening { bound, admin, certificates, addresses, .. } = listening;
    let gateway = bound.start(&delivery, auth.clone(), gateway_metrics, connections.handover())?;
    delivery.context.attach_edge(gateway.clone());
    // Set here and nowhere else.
    let _ = gateway_later.set(gateway.clone());

    // Background work. The node gains its lease now that it can hold sessions. The admin address runs until the very end.
    cluster.spawn(&mut tasks, &delivery, &gateway);
    if let Some(front) = front {
        tasks.spawn(TaskKind::Front, |end| front.run(end.cancelled_owned()));
    }
    sqs.spawn(&mut tasks, &state);
    tracing.spawn(&mut tasks, &state.registry)?;
    let admin = AdminTask { admin, router: admin_router, metrics: pool_metrics, threads: threads.clone() };
    let background =
        Background { admin, certificates, delivery, auth, gateway: gateway.clone(), pusher, console };
    background.spawn(&mut tasks)?;
    if !config.node.roles.has(Role::Front) {
        tasks.spawn(TaskKind::Series, |end| recorder.run(end));
    }
    tasks.spawn(TaskKind::Console, |end| end_tails(tails, draining.subscribe(), end));
    // Streams end when the node begins to stop: their connections close with their current request.
    tasks.spawn(TaskKind::Console, |end| async move {
        end.cancelled().await;
        series.live.close();
    });
    let limits =
        supervise::Limits { stall: config.server.stall_timeout, drain: supervise::drain_max(&config) };
    let supervisor = Supervisor::start(threads, limits)?;

    data::write_addresses(&folder, &addresses)?;
    state.ready.store(true, Ordering::Release);
    tracing::info!(http = addresses.http, admin = addresses.admin, data = %folder.display(), "ready");
    Ok(Node {
        config,
        addresses,
        capacity,
        development,
        console_link,
        store: opened.store,
        gateway,
        draining,
        services,
        ready: state.ready.clone(),
        tasks,
        supervisor,
        events: Some(events),
        _lock: opened.lock,
    })
}

/// Raises the limit of file descriptors, divides it, and estimates the capacity of the machine.
fn measure(config: &Config) -> (Shares, Capacity) {
    let connections_max = config.gateway.connections_max;
    let serves = match config.node.roles.has(Role::Api) || config.node.roles.has(Role::Front) {
        true => Serves::DevicesAndApi,
        false => Serves::Devices,
    };
    let shares = descriptors::raise().share(connections_max, serves);
    let capacity = capacity::estimate(&Host::read(), serves, config.server.tls.is_some(), connections_max);
    tracing::info!(devices = capacity.devices, api = shares.api, "{capacity}");
    (shares, capacity)
}

/// The bound addresses, which serve nothing yet.
struct Listening {
    bound: Bound,
    admin: Admin,
    certificates: Certificates,
    /// The first public address.
    http: SocketAddr,
    addresses: Addresses,
}

impl Listening {
    async fn bind(config: &Config, shares: &Shares, threads: &Threads) -> Result<Self, Error> {
        let certificates = Certificates::open(&config.server)?;
        let bound = Gateway::bind(gateway::config(config, &certificates, shares.gateway, threads))?;
        let admin = Admin::bind(config, certificates.admin.clone(), api::http2(config))
            .await
            .map_err(|error| Error::address("server.admin", config.server.admin, &error))?;
        let http = bound.local_addrs().first().copied().unwrap_or(config.server.http);
        let addresses = address::addresses(config, http, admin.local_addr()?);
        Ok(Self { bound, admin, certificates, http, addresses })
    }

    /// `--dev` is for one machine: its app has a key with all scopes, and egress reaches this machine.
    fn warn_if_exposed(&self, config: &Config) -> Result<(), Error> {
        let admin = self.admin.local_addr()?;
        let exposed = development::exposed(self.bound.local_addrs().iter().chain([&admin]));
        if let Some(address) = exposed.filter(|_| config.server.dev) {
            tracing::warn!(
                %address,
                "a development node (--dev) is reachable from other machines: anyone who reaches it can use the development app, whose requests can reach servers on this machine; start without --dev, or listen on 127.0.0.1"
            );
        }
        Ok(())
    }
}

/// The routers of the public and the admin address, and the front they belong to if the node is one.
async fn routers(
    config: &Config,
    state: &Arc<State>,
    cells: Arc<dyn Cells>,
    front_metrics: Option<noroshi_cells::Metrics>,
) -> Result<(Option<Arc<Front>>, Router, Router), Error> {
    let Some(metrics) = front_metrics else {
        return Ok((None, noroshi_api::router(state.clone()), noroshi_api::admin_router(state.clone())));
    };
    let front = Front::new(front::config(config)?, state.clone(), cells, metrics).await?;
    let (router, admin_router) = (front.router(), front.admin_router());
    Ok((Some(front), router, admin_router))
}

struct AdminTask {
    admin: Admin,
    router: Router,
    metrics: PoolMetrics,
    threads: Threads,
}

/// What the tasks of every node need.
struct Background {
    admin: AdminTask,
    certificates: Certificates,
    delivery: Arc<Delivery>,
    auth: Arc<Auth>,
    gateway: Arc<Gateway>,
    pusher: Option<Pusher>,
    console: Arc<Console>,
}

impl Background {
    fn spawn(self, tasks: &mut Tasks) -> Result<(), Error> {
        let Self { admin, certificates, delivery, auth, gateway, pusher, console } = self;
        let clock = delivery.clone();
        let AdminTask { admin, router, metrics, threads } = admin;
        let hangups = Hangups::listen()?;
        tasks.spawn(TaskKind::Reload, |end| hangups.run(certificates, delivery.clone(), end));
        tasks.spawn(TaskKind::Delivery, |end| delivery.run(end.cancelled_owned()));
        tasks.spawn(TaskKind::Auth, |end| auth.run(end.cancelled_owned()));
        tasks.spawn(TaskKind::Admin, |end| admin_thread::run(admin, router, metrics, threads, end));
        tasks.spawn(TaskKind::Console, |end| {
            console::prune_forever(console, move || clock.clock().now(), end)
        });
        tasks.spawn(TaskKind::Gauges, |end| update_gauges(gateway, end));
        if let Some(pusher) = pusher {
            tasks.spawn(TaskKind::Profiling, |end| pusher.run(end));
        }
        Ok(())
    }
}

/// Tails end when the node stops, and when it drains: people look at the nodes that devices move to.
async fn end_tails(tails: Arc<Tails>, mut draining: watch::Receiver<bool>, end: CancellationToken) {
    loop {
        tails.set_closed(*draining.borrow_and_update());
        match end.run_until_cancelled(draining.changed()).await {
            Some(Ok(())) => {}
            Some(Err(_)) | None => break,
        }
    }
    tails.set_closed(true);
}

/// Updates the gauges that need a look at every shard.
async fn update_gauges(gateway: Arc<Gateway>, end: CancellationToken) {
    while end.run_until_cancelled(tokio::time::sleep(GAUGE_INTERVAL)).await.is_some() {
        gateway.observe();
    }
}
