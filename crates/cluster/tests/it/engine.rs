//! The engines that the suite runs against, and nodes on them.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use noroshi_cluster::redis::{Address, Config, Redis};
use noroshi_cluster::{
    Cluster, Epoch, Keys, NodeInfo, Roles, SessionKey, Take, Taken,
    in_process::{Node, World},
    links,
};
use noroshi_telemetry::{Registry, encode, registry};
use noroshi_types::{AppId, DeviceId, UserId};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::recorder::{Recorder, until};
use crate::server::{RedisCluster, Server};

pub(crate) const TTL: Duration = Duration::from_millis(1_500);

pub(crate) enum Engine {
    InProcess(World),
    /// Also holds the servers, and whether nodes accept links.
    Redis(
        Box<Config>,
        bool,
        #[allow(dead_code, reason = "held for its Drop")] Box<dyn std::any::Any + Send + Sync>,
    ),
}

pub(crate) fn config(url: &str) -> Config {
    let mut config = Config::new(Address::parse(url).expect("address"), [3; 16]);
    config.lease_ttl = TTL;
    config
}

impl Engine {
    pub(crate) fn in_process() -> Self {
        Engine::InProcess(World::new())
    }

    pub(crate) fn standalone() -> Self {
        let server = Server::start();
        Engine::Redis(Box::new(config(&server.url())), false, Box::new(server))
    }

    /// One Redis server, and links between the nodes.
    pub(crate) fn direct() -> Self {
        let server = Server::start();
        Engine::Redis(Box::new(config(&server.url())), true, Box::new(server))
    }

    pub(crate) fn cluster() -> Self {
        let cluster = RedisCluster::start();
        Engine::Redis(Box::new(config(&cluster.url())), false, Box::new(cluster))
    }

    /// The same servers with other keys.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Self {
        let Engine::Redis(config, direct, _) = self else { return Engine::in_process() };
        let prefix = prefix.chars().take(32).collect();
        Engine::Redis(Box::new(Config { prefix, ..(**config).clone() }), *direct, Box::new(()))
    }

    /// A node that has joined.
    pub(crate) async fn node(&self, name: &str) -> TestNode {
        let node = match self {
            Engine::InProcess(world) => {
                let node = world.node(info(name));
                let events = Arc::new(Recorder::default());
                node.attach(events.clone());
                TestNode { cluster: node.cluster(), events, running: Running::InProcess(node) }
            }
            Engine::Redis(config, false, _) => redis_node((**config).clone(), name),
            Engine::Redis(config, true, _) => direct_node((**config).clone(), name, Wire::new()),
        };
        node.events.joined_again().await;
        node
    }
}

pub(crate) fn info(name: &str) -> NodeInfo {
    NodeInfo { name: name.to_owned(), roles: Roles::ALL, ..NodeInfo::default() }
}

/// Where a node listens for links.
pub(crate) struct Wire {
    pub(crate) listener: TcpListener,
    pub(crate) advertise: String,
    pub(crate) secret: [u8; 32],
}

impl Wire {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let advertise = listener.local_addr().expect("bound").to_string();
        Self { listener, advertise, secret: [9; 32] }
    }
}

/// A node that may not have joined yet.
pub(crate) fn redis_node(config: Config, name: &str) -> TestNode {
    open(config, None, name)
}

/// The same with links.
pub(crate) fn direct_node(config: Config, name: &str, wire: Wire) -> TestNode {
    let Wire { listener, advertise, secret } = wire;
    open(config, Some(links::Config { listener, advertise, secret }), name)
}

fn open(config: Config, links: Option<links::Config>, name: &str) -> TestNode {
    let mut registry = registry();
    let redis = Redis::open(config, links, info(name), &mut registry).expect("configuration");
    let cluster = redis.cluster();
    let events = Arc::new(Recorder::default());
    let stop = CancellationToken::new();
    let task = tokio::spawn(redis.run(events.clone(), stop.clone()));
    TestNode { cluster, events, running: Running::Redis { task, stop, registry } }
}

pub(crate) struct TestNode {
    pub(crate) cluster: Cluster,
    pub(crate) events: Arc<Recorder>,
    running: Running,
}

enum Running {
    InProcess(Node),
    Redis { task: JoinHandle<()>, stop: CancellationToken, registry: Registry },
}

impl TestNode {
    pub(crate) fn epoch(&self) -> Epoch {
        self.cluster.members.epoch().expect("a lease")
    }

    /// Kills the node: it sends nothing more, and its lease is not released.
    pub(crate) fn kill(&self) {
        match &self.running {
            Running::InProcess(node) => node.kill(),
            Running::Redis { task, .. } => task.abort(),
        }
    }

    /// Stops the node in order.
    pub(crate) async fn stop(&self) {
        match &self.running {
            Running::InProcess(node) => node.kill(),
            Running::Redis { task, stop, .. } => {
                stop.cancel();
                until("stopped", || task.is_finished()).await;
            }
        }
    }

    /// The value of a metric, with its labels as shown.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let Running::Redis { registry, .. } = &self.running else { return 0 };
        let text = encode(registry).expect("metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("noroshi_cluster_{name} ")));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    pub(crate) async fn knows(&self, count: usize) {
        until("nodes", || self.cluster.members.nodes().len() == count).await;
    }

    pub(crate) async fn take(&self, device: &str, user: Option<&str>, generation: u64) -> Taken {
        let takes = vec![session(&self.cluster.keys, device, user, generation)];
        self.cluster.directory.take(self.epoch(), takes).await.expect("take")[0]
    }

    pub(crate) async fn locate(&self, key: SessionKey) -> Vec<Epoch> {
        let found = self.cluster.directory.locate(vec![key]).await.expect("locate");
        let mut epochs = found[0].to_vec();
        epochs.sort();
        epochs
    }

    pub(crate) fn device(&self, id: &str) -> SessionKey {
        device(&self.cluster.keys, id)
    }

    pub(crate) fn user(&self, id: &str) -> SessionKey {
        user(&self.cluster.keys, id)
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn device(keys: &Keys, id: &str) -> SessionKey {
    keys.device(AppId(1), &DeviceId::parse(id).expect("device"))
}

pub(crate) fn user(keys: &Keys, id: &str) -> SessionKey {
    keys.user(AppId(1), &UserId::parse(id).expect("user"))
}

pub(crate) fn session(keys: &Keys, of: &str, by: Option<&str>, generation: u64) -> Take {
    Take { device: device(keys, of), user: by.map(|id| user(keys, id)), generation }
}
