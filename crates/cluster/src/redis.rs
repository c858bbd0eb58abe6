//! The cluster on Redis 7 or Valkey: one server, Sentinel, or Redis Cluster.
//!
//! ```text
//!   Cluster ─ directory ─► scripts and HMGET ─┐
//!           ─ bus ───────► outbound ──────────┼─► connections ─► server (one connection each, reconnects)
//!           ─ members ───► members ◄─ lease ──┘        ▲
//!                            Receiver ◄─ lease ◄─ subscriber ─► its own connection, one channel
//!                                                discovery: CLUSTER SLOTS, sentinels
//!           outbound ─► links of other nodes (`crate::links`), where all nodes announce an address ─► lease
//! ```
//!
//! Nothing of the `redis` crate is visible outside of this module. It provides one connection to one server;
//! reconnecting, routing by slot, following sentinels and resubscribing are implemented here, because they decide what
//! is lost.
//!
//! Reading order: [`address`], `dial`, `slot`, `server`, `topology`, `discovery`, `script`, `connections`, `directory`,
//! `members`, `frame`, `inbound`, `confirmed`, `outbound`, `subscriber`, `lease`, `batches`.

pub mod address;
mod batches;
mod confirmed;
mod connections;
mod dial;
mod directory;
mod discovery;
mod entry;
mod frame;
mod inbound;
mod lease;
mod members;
mod outbound;

mod script;
mod server;
mod slot;
mod subscriber;
mod topology;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use noroshi_telemetry::Registry;
use noroshi_types::Invalid;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::links::{self, Arrival, Arrivals, Links, Listening};
use crate::metrics::Metrics;
use crate::{Cluster, Keys, NodeInfo, Receiver};
pub use address::Address;
pub use batches::Batches;
pub use connections::Connections;
use directory::RedisDirectory;
use lease::LeaseTask;
use members::State;
use outbound::{Direct, Outbound};
use slot::Buckets;
use subscriber::Subscriber;

/// Validated by [`Redis::open`]. All nodes of a cluster need the same prefix, secret, ttl and buckets.
#[derive(Clone)]
pub struct Config {
    pub address: Address,
    /// The prefix of all keys and channels: several clusters may share a Redis.
    pub prefix: String,
    /// The secret of the directory's keys.
    pub secret: [u8; 16],
    /// How long a node that does not answer counts as live.
    pub lease_ttl: Duration,
    /// The number of parts of the directory: on Redis Cluster, the maximum number of commands for a lookup.
    pub buckets: u16,
    /// Replaces the public authorities, with `rediss://`.
    pub root_certificate_pem: Option<Vec<u8>>,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
}

impl Config {
    pub fn new(address: Address, secret: [u8; 16]) -> Self {
        Self {
            address,
            prefix: "noroshi".to_owned(),
            secret,
            lease_ttl: Duration::from_secs(10),
            // Divides evenly among 2, 3, 4 and 6 servers.
            buckets: 12,
            root_certificate_pem: None,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
        }
    }

    fn check(&self) -> Result<(), Invalid> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.bytes().all(plain) {
            return Err(Invalid::new(
                "the prefix of Redis keys must have 1 to 64 letters, digits, '-', '_' and '.'",
            ));
        }
        if !(1..=slot::BUCKETS_MAX).contains(&self.buckets) {
            return Err(Invalid::new(format!("buckets must be 1 to {}", slot::BUCKETS_MAX)));
        }
        if !(Duration::from_millis(500)..=Duration::from_secs(300)).contains(&self.lease_ttl) {
            return Err(Invalid::new("the ttl of a lease must be 500 ms to 5 minutes"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// A node of the cluster; works while [`Redis::run`] runs.
pub struct Redis {
    cluster: Cluster,
    state: Arc<State>,
    connections: Connections,
    directory: Arc<RedisDirectory>,
    removals: mpsc::Receiver<(crate::SessionKey, crate::Epoch)>,
    sends: mpsc::Receiver<outbound::Send>,
    direct: Option<DirectParts>,
    metrics: Metrics,
    prefix: String,
}

/// The links, until [`Redis::run`].
struct DirectParts {
    links: Arc<Links>,
    listening: Listening,
    arrivals: Arrivals,
    arriving: mpsc::Receiver<Arrival>,
}

impl Redis {
    /// Does not connect: a node also starts without Redis. Without `links` the node sends and receives all messages over
    /// Redis, and so do the others.
    pub fn open(
        config: Config,
        links: Option<links::Config>,
        mut info: NodeInfo,
        registry: &mut Registry,
    ) -> Result<Self, Invalid> {
        config.check()?;
        info.links = links.as_ref().map(|links| links.advertise.clone()).unwrap_or_default();
        let metrics = Metrics::new(registry);
        let buckets = Buckets::new(&config.prefix, config.buckets);
        let state = Arc::new(State::new(&config.prefix, config.lease_ttl, info, metrics.clone()));
        let mut watched: Vec<u16> = (0..buckets.len()).map(|bucket| buckets.slot(bucket)).collect();
        watched.push(state.slot());
        let connections = Connections::new(&config, metrics.clone(), watched);
        let (removals, to_remove) = mpsc::channel(directory::REMOVALS_MAX);
        let directory = Arc::new(RedisDirectory {
            connections: connections.clone(),
            buckets,
            state: state.clone(),
            metrics: metrics.clone(),
            removals,
        });
        let (outbox, sends) = outbound::outbox(state.clone());
        let direct = links.map(|links| {
            let (arrivals, arriving) = Arrivals::new();
            let link_metrics = metrics.links.clone();
            let opened = Links::open(links, &config.prefix, state.clone(), arrivals.clone(), link_metrics);
            opened.map(|(links, listening)| DirectParts { links, listening, arrivals, arriving })
        });
        let direct = direct.transpose()?;
        let cluster = Cluster {
            directory: directory.clone(),
            bus: Arc::new(outbox),
            members: state.clone(),
            keys: Keys::new(&config.secret),
        };
        let prefix = config.prefix.clone();
        Ok(Self {
            cluster,
            state,
            connections,
            directory,
            removals: to_remove,
            sends,
            direct,
            metrics,
            prefix,
        })
    }

    pub fn cluster(&self) -> Cluster {
        self.cluster.clone()
    }

    /// The queue of push batches, for one more puller. Works while [`Redis::run`] runs.
    pub fn batches(&self) -> Batches {
        Batches::new(self.connections.clone(), &self.prefix)
    }

    /// For other data on this Redis.
    pub fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// Runs until `stop`, then releases the lease. Undelivered messages are dropped.
    pub async fn run(self, receiver: Arc<dyn Receiver>, stop: CancellationToken) {
        let (wanted, wants) = watch::channel(None);
        let (events, arriving) = mpsc::channel(subscriber::FRAMES_MAX);
        let subscriber = Subscriber {
            connections: self.connections.clone(),
            metrics: self.metrics.clone(),
            prefix: self.prefix.clone(),
            wanted: wants,
            events,
            bytes: Arc::new(AtomicUsize::new(0)),
        };
        let mut lease = LeaseTask::new(
            self.state.clone(),
            self.connections.clone(),
            receiver,
            self.metrics.clone(),
            wanted,
            self.prefix.clone(),
        );
        let mut tasks = JoinSet::new();
        let direct = self.direct.map(|DirectParts { links, listening, arrivals, arriving }| {
            let (receipts, due) = mpsc::channel(outbound::RECEIPTS_MAX);
            let confirmed = (self.connections.clone(), self.state.clone(), self.prefix.clone());
            tasks.spawn(outbound::confirm(confirmed.0, confirmed.1, confirmed.2, due));
            tasks.spawn(Links::run(listening));
            lease.attach(arriving, links.receipts().clone(), receipts);
            Direct { links, arrivals, followed: (None, Arc::default()) }
        });
        let (connections, state, metrics) =
            (self.connections.clone(), self.state.clone(), self.metrics.clone());
        let outbound = Outbound::new(connections, state, metrics, self.prefix, direct);
        // The connections outlive the lease, which is released over them.
        let end = CancellationToken::new();
        let _end = end.clone().drop_guard();
        tasks.spawn(self.connections.run(end));
        tasks.spawn(subscriber.run());
        tasks.spawn(outbound.run(self.sends));
        tasks.spawn(directory::remove_dead(self.directory, self.removals));
        tokio::select! {
            () = lease.run(arriving, stop) => {}
            // No task ends unless it failed. Without it the node would be isolated and not notice, so this panics.
            ended = tasks.join_next() => match ended {
                Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                ended => panic!("a task of the cluster ended: {ended:?}"),
            },
        }
    }
}
