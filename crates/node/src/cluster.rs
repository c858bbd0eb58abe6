//! The cluster: joining it, describing this node to the others, and listing them for the API.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_api::nodes::Node;
use noroshi_auth::Auth;
use noroshi_cluster::links;
use noroshi_cluster::redis::address::Servers;
use noroshi_cluster::redis::{self, Address, Redis};
use noroshi_cluster::{Members, NodeInfo, NodeView, Roles};
use noroshi_delivery::Delivery;
use noroshi_delivery::cluster::{self as delivery, Reload};
use noroshi_gateway::Gateway;
use noroshi_gateway::drain::State;
use noroshi_store::{Postgres, Store};
use noroshi_telemetry::Registry;
use noroshi_types::{Invalid, PushService, Timestamp};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio_util::sync::CancellationToken;

use crate::config::{Bus, Config, Queue, Role};
use crate::data::Addresses;
use crate::process;
use crate::tasks::{TaskKind, Tasks};

/// Name of the secret that hashes the directory's keys. The same on all nodes.
const SECRET: &str = "cluster-key";
const SECRET_BYTES: usize = 16;
/// Name of the secret from which nodes authenticate each other on direct connections. The same on all nodes.
const LINKS_SECRET: &str = "links-key";
const LINKS_SECRET_BYTES: usize = 32;
/// For the name of Redis, to find this machine's own address.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cluster.redis: {0}")]
    Redis(Invalid),
    #[error("cluster.redis_ca_file: {0}")]
    AuthorityFile(std::io::Error),
    #[error("the operating system returned no random bytes")]
    Randomness,
    #[error("the cluster key in the database has an unexpected length; a different version wrote it")]
    Secret,
    #[error(
        "the key of direct connections in the database has an unexpected length; a different version wrote it"
    )]
    LinksSecret,
    #[error("cluster.links.listen: cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    #[error("cluster.links.advertise: {0}")]
    Advertise(Invalid),
    #[error(transparent)]
    Store(#[from] noroshi_store::Error),
}

/// How often a node updates its description.
const INTERVAL: Duration = Duration::from_secs(1);

/// The nodes, for the API.
pub(crate) enum Nodes {
    /// No cluster: only this node, as last described.
    Alone(Box<Mutex<NodeInfo>>),
    Cluster(Arc<dyn Members>),
}

impl Nodes {
    fn single(info: NodeInfo) -> Self {
        Self::Alone(Box::new(Mutex::new(info)))
    }

    fn describe(&self, info: NodeInfo) {
        match self {
            Nodes::Alone(this) => *this.lock() = info,
            Nodes::Cluster(members) => members.set_info(info),
        }
    }
}

impl noroshi_api::nodes::Nodes for Nodes {
    fn nodes(&self) -> Vec<Node> {
        match self {
            Nodes::Alone(this) => vec![Node { epoch: None, lease: None, this: true, ..node(&this.lock()) }],
            Nodes::Cluster(members) => members
                .nodes()
                .iter()
                .map(|view| Node {
                    epoch: Some(view.epoch.to_string()),
                    lease: Some(view.lease_remaining),
                    this: view.is_self,
                    ..node(&view.info)
                })
                .collect(),
        }
    }

    fn gateway(&self) -> Option<String> {
        match self {
            Nodes::Alone(_) => None,
            Nodes::Cluster(members) => gateway(&members.nodes(), process::random()),
        }
    }

    fn gateway_again(&self, before: &str) -> Option<String> {
        let Nodes::Cluster(members) = self else { return None };
        let nodes = members.nodes();
        match nodes.iter().any(|node| is_open(node) && node.info.http == before) {
            true => Some(before.to_owned()),
            false => gateway(&nodes, process::random()),
        }
    }
}

/// Chooses two random gateways and returns the one with fewer connections. The result is nearly even, without a rush to the one
/// that had the fewest a second ago (Mitzenmacher, "The power of two choices in randomized load balancing", 2001).
fn gateway(nodes: &[NodeView], random: u64) -> Option<String> {
    let open: Vec<&NodeView> = nodes.iter().filter(|node| is_open(node)).collect();
    let one = |random: u64| open.get(usize::try_from(random % open.len().max(1) as u64).unwrap_or(0));
    let (first, second) = (one(random >> 32)?, one(random & 0xFFFF_FFFF)?);
    let fewer = if second.info.connections < first.info.connections { second } else { first };
    Some(fewer.info.http.clone())
}

/// Whether it accepts devices.
fn is_open(node: &NodeView) -> bool {
    node.info.roles.gateway && !node.info.http.is_empty() && node.info.drain == drain_name(State::Serving)
}

fn node(info: &NodeInfo) -> Node {
    let roles = [("api", info.roles.api), ("gateway", info.roles.gateway), ("sender", info.roles.sender)];
    Node {
        name: info.name.clone(),
        epoch: None,
        roles: roles.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect(),
        http: info.http.clone(),
        admin: info.admin.clone(),
        version: info.version.clone(),
        started_at: Timestamp(u64::try_from(info.started_at_ms).unwrap_or(0)),
        lease: None,
        connections: info.connections,
        deliveries_per_second: info.deliveries_per_second,
        cpu: info.cpu,
        drain: info.drain.clone(),
        this: false,
    }
}

/// This node among the others.
pub(crate) struct Membership {
    pub(crate) nodes: Arc<Nodes>,
    /// None: the node has no cluster.
    redis: Option<Redis>,
    info: NodeInfo,
}

impl Membership {
    /// Connects to the cluster, if one is configured. Delivery, apps and keys then span all nodes.
    pub(crate) async fn join(
        config: &Config,
        store: &dyn Store,
        info: NodeInfo,
        delivery: &Arc<Delivery>,
        auth: &Arc<Auth>,
        registry: &mut Registry,
    ) -> Result<Self, Error> {
        let redis = connect(config, store, &info, registry).await?;
        if let Some(redis) = &redis {
            attach(redis, config, delivery, auth);
        }
        let nodes = Arc::new(match &redis {
            Some(redis) => Nodes::Cluster(redis.cluster().members),
            None => Nodes::single(info.clone()),
        });
        Ok(Self { nodes, redis, info })
    }

    /// Gains the lease and keeps the node's description current.
    pub(crate) fn spawn(self, tasks: &mut Tasks, delivery: &Arc<Delivery>, gateway: &Arc<Gateway>) {
        let Self { nodes, redis, info } = self;
        if let Some(redis) = redis {
            let receiver = delivery.nodes.receiver();
            tasks.spawn(TaskKind::Cluster, |end| redis.run(receiver, end));
        }
        let gateway = gateway.clone();
        tasks.spawn(TaskKind::Nodes, |end| describe(nodes, gateway, info, end));
    }
}

/// None if no cluster is configured.
async fn connect(
    config: &Config,
    store: &dyn Store,
    info: &NodeInfo,
    registry: &mut Registry,
) -> Result<Option<Redis>, Error> {
    let Some(url) = &config.cluster.redis else { return Ok(None) };
    let address = Address::parse(url.secret()).map_err(Error::Redis)?;
    let mut fresh = vec![0; SECRET_BYTES];
    SystemRandom::new().fill(&mut fresh).map_err(|_| Error::Randomness)?;
    let secret = store.secret(SECRET, fresh).await?;
    let secret: [u8; SECRET_BYTES] = secret.try_into().map_err(|_| Error::Secret)?;
    let authorities = config.cluster.redis_ca_file.as_deref().map(std::fs::read).transpose();
    let links = links(config, store, &address).await?;
    let redis = redis::Config {
        root_certificate_pem: authorities.map_err(Error::AuthorityFile)?,
        prefix: config.cluster.prefix.clone(),
        lease_ttl: config.cluster.lease,
        response_timeout: patience(config),
        ..redis::Config::new(address, secret)
    };
    Redis::open(redis, links, info.clone(), registry).map(Some).map_err(Error::Redis)
}

/// How long Redis may take to answer. A Redis that is slower counts as unreachable: messages on their way are lost, and
/// sweeps find them. An operator with a longer lease accepts a slower one.
fn patience(config: &Config) -> Duration {
    (config.cluster.lease / 10).max(Duration::from_secs(1))
}

/// Where this node accepts direct connections. None if it uses Redis only.
async fn links(config: &Config, store: &dyn Store, redis: &Address) -> Result<Option<links::Config>, Error> {
    if config.cluster.bus == Bus::Redis {
        return Ok(None);
    }
    let listen = config.cluster.links_listen;
    let listener = TcpListener::bind(listen).map_err(|error| Error::Listen(listen, error))?;
    let bound = listener.local_addr().map_err(|error| Error::Listen(listen, error))?;
    let advertise = match &config.cluster.links_advertise {
        Some(advertise) => advertise.clone(),
        None if bound.ip().is_unspecified() => match address_towards(redis).await {
            Some(ip) => SocketAddr::new(ip, bound.port()).to_string(),
            None => format!("{}:{}", process::host_name(), bound.port()),
        },
        None => bound.to_string(),
    };
    links::check_advertise(&advertise).map_err(Error::Advertise)?;
    let mut fresh = vec![0; LINKS_SECRET_BYTES];
    SystemRandom::new().fill(&mut fresh).map_err(|_| Error::Randomness)?;
    let secret = store.secret(LINKS_SECRET, fresh).await?;
    let secret: [u8; LINKS_SECRET_BYTES] = secret.try_into().map_err(|_| Error::LinksSecret)?;
    tracing::info!(listen = %bound, advertise, "accepting direct connections of other nodes");
    Ok(Some(links::Config { listener, advertise, secret }))
}

/// The address of this machine on the way to Redis, which is likely the one on the way to other nodes. Sends nothing.
async fn address_towards(redis: &Address) -> Option<IpAddr> {
    let host = match &redis.servers {
        Servers::Standalone(host) => host,
        Servers::Cluster(hosts) | Servers::Sentinel { sentinels: hosts, .. } => hosts.first()?,
    };
    let found =
        tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host.name.as_str(), host.port)));
    let target = found.await.ok()?.ok()?.next()?;
    let any: IpAddr =
        if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(target).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Attaches delivery and auth to the cluster.
fn attach(redis: &Redis, config: &Config, delivery: &Arc<Delivery>, auth: &Arc<Auth>) {
    if config.push.queue == Queue::Redis {
        delivery.push.attach_batches(Arc::new(redis.batches()));
    }
    let delivered = delivery::Config {
        keep_per_second: config.cluster.rejoin_rate,
        patience: patience(config),
        sweep_interval: config.cluster.sweep_interval,
        audit_soon: config.cluster.sweep_interval,
        ..Default::default()
    };
    delivery.nodes.attach(redis.cluster(), delivered, Arc::new(Follow(auth.clone())));
    let notified = delivery.clone();
    auth.notify_changes(move || notified.nodes.apps_changed());
}

/// Accepted messages reach the bus before another node commits, so all gateways receive them in the same order.
pub(crate) fn hand_over(postgres: &Postgres, delivery: &Arc<Delivery>) {
    // Weak, since delivery owns the store.
    let delivery = Arc::downgrade(delivery);
    postgres.hand_over(Arc::new(move || {
        let delivery = delivery.upgrade();
        Box::pin(async move {
            if let Some(delivery) = delivery {
                delivery.nodes.flush().await;
            }
        })
    }));
}

/// Reloads apps and keys that another node changed.
struct Follow(Arc<Auth>);

#[async_trait::async_trait]
impl Reload for Follow {
    async fn reload(&self) {
        if let Err(error) = self.0.follow().await {
            tracing::warn!(%error, "failed to reload apps and keys; retrying later");
        }
    }
}

/// The description of a node at its start.
pub(crate) fn first_info(
    config: &Config,
    addresses: &Addresses,
    http: SocketAddr,
    now: Timestamp,
) -> NodeInfo {
    let has = |role| config.node.roles.has(role);
    let host = process::host_name();
    // An unspecified address is replaced by the host name, which other machines may resolve.
    let reached = match http.ip().is_unspecified() {
        true => {
            addresses.http.replace("127.0.0.1", &host).replace("[::1]", &host).replace("localhost", &host)
        }
        false => addresses.http.clone(),
    };
    let public = config.node.advertise.clone().or_else(|| config.server.public_url.clone());
    NodeInfo {
        name: config.node.name.clone().unwrap_or_else(|| format!("{host}-{}", http.port())),
        roles: Roles { api: has(Role::Api), gateway: has(Role::Gateway), sender: has(Role::Sender) },
        http: public.unwrap_or(reached),
        admin: addresses.admin.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at_ms: i64::try_from(now.0).unwrap_or(i64::MAX),
        drain: drain_name(State::Serving).to_owned(),
        push_tokens: true,
        push_services: PushService::ALL.map(|service| service.as_str().to_owned()).into(),
        broadcasts: true,
        activities: true,
        figures: true,
        tails: true,
        ..NodeInfo::default()
    }
}

/// Updates the node's description until `end`.
async fn describe(nodes: Arc<Nodes>, gateway: Arc<Gateway>, first: NodeInfo, end: CancellationToken) {
    let (mut at, mut messages, mut cpu_s) = (Instant::now(), gateway.messages_out(), process::cpu_seconds());
    let mut info = first;
    loop {
        info.connections = gateway.device_connections() as u64;
        info.sessions = gateway.sessions_count() as u64;
        info.drain = drain_name(gateway.drain_report().state).to_owned();
        nodes.describe(info.clone());
        if end.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
            return;
        }
        let (now, messages_now, cpu_now) = (Instant::now(), gateway.messages_out(), process::cpu_seconds());
        let seconds = now.duration_since(at).as_secs_f64();
        info.deliveries_per_second = messages_now.saturating_sub(messages) as f64 / seconds;
        info.cpu = cpu_now.zip(cpu_s).map(|(now, before)| (now - before) / seconds);
        (at, messages, cpu_s) = (now, messages_now, cpu_now);
    }
}

fn drain_name(state: State) -> &'static str {
    match state {
        State::Serving => "serving",
        State::Draining => "draining",
        State::Drained => "drained",
        State::Stopping => "stopping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_cluster::Epoch;

    fn view(name: &str, connections: u64, drain: &str, gateway: bool) -> NodeView {
        let roles = Roles { gateway, ..Roles::default() };
        let info = NodeInfo {
            name: name.to_owned(),
            roles,
            http: format!("http://{name}"),
            connections,
            drain: drain.to_owned(),
            ..NodeInfo::default()
        };
        NodeView { epoch: Epoch(1), info, lease_remaining: INTERVAL, is_self: false }
    }

    #[test]
    fn a_device_gets_the_less_loaded_of_two_open_gateways() {
        let nodes = [
            view("full", 9, "serving", true),
            view("empty", 1, "serving", true),
            view("draining", 0, "draining", true),
            view("api", 0, "serving", false),
        ];
        for random in 0..64u64 {
            let random = (random << 32) | (random / 2);
            let chosen = gateway(&nodes, random).expect("one");
            let both = (random >> 32) % 2 != (random & 0xFFFF_FFFF) % 2;
            assert!(chosen == "http://empty" || chosen == "http://full" && !both, "{random:x}: {chosen}");
        }
        assert_eq!(gateway(&nodes[2..], 7), None);
    }
}
