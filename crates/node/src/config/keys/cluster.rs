//! Keys of the node in its cluster: name, roles, store, cluster, front and SQS. The cells of a front are in a separate TOML
//! file, since it contains a credential for each.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use noroshi_cells::CellConfig;
use noroshi_cluster::links::check_advertise;
use noroshi_cluster::redis::Address;
use noroshi_egress::read_ca_file;
use noroshi_sqs::{Connection, IntakeConfig, QueueConfig};
use noroshi_types::limits;
use serde::Deserialize;

use super::{DAY, HOUR, MINUTE, Queue, SECOND, public_url};
use crate::config::reader::{EngineUrl, Reader, any};
use crate::config::{Role, Roles};

const URL: (&str, &str) = ("url", "https:// or http://");

section! {
    /// This node in its cluster.
    #[derive(Debug, Clone)]
    Node(reader) {
        /// Name of this node in lists and logs. Unset: the host name and the port of `server.http`.
        pub name: Option<String> =
            optional("node.name", ("text", "letters, digits, `-`, `_` and `.`, at most 64"), node_name),
        /// Roles of this node: `api` serves the HTTP API, `gateway` holds device connections, `sender`
        /// sends to push services. `front`, as the only role, forwards requests to several cells.
        pub roles: Roles = roles("node.roles"),
        /// Public URL of this particular node, which API nodes without `server.public_url` return to
        /// devices. Unset: `server.public_url`, otherwise the host name.
        pub advertise: Option<String> =
            optional("node.advertise", ("url", "http:// or https://, without a path"), public_url),
    }
}

section! {
    #[derive(Debug, Clone)]
    Store(reader) {
        /// PostgreSQL database, shared by all nodes of a cluster:
        /// `postgres://USER:PASSWORD@HOST[,HOST2]/DATABASE?sslmode=require`. Unset: SQLite in
        /// `server.data`.
        pub url: Option<EngineUrl> = engine_url("store.url", &["postgres://", "postgresql://"]),
        /// Maximum connections of this node to PostgreSQL.
        pub connections: usize = count("store.connections", 16, 2..=1_000, "connections") as usize,
        /// Timeout of a PostgreSQL statement.
        pub statement_timeout: Duration = duration("store.statement_timeout", 30 * SECOND, SECOND..=HOUR),
        /// Maximum messages in a device's inbox. An inbox may exceed this by a sixteenth before the store
        /// evicts the oldest.
        pub inbox_rows: u32 =
            count("store.inbox_rows", limits::INBOX_ROWS.into(), 1..=100_000, "notifications") as u32,
        /// Maximum items in a user's notification centre. The oldest are removed.
        pub item_rows: u32 = count("store.item_rows", limits::ITEM_ROWS.into(), 1..=5_000, "items") as u32,
        /// Maximum messages in a topic's log. The oldest are evicted.
        pub topic_log_rows: u64 =
            count("store.topic_log_rows", limits::TOPIC_LOG_ROWS, 1..=10_000_000, "messages"),
        /// Retention of notification traces.
        pub trace_retention: Duration =
            duration("store.trace_retention", limits::TRACE_RETENTION, HOUR..=90 * DAY),
        /// How long a topic is kept that nothing needs: no durable subscription, stored or retained message, publication
        /// or broadcast channel. Afterwards it starts again with another epoch.
        pub unused_topic_retention: Duration =
            duration("store.unused_topic_retention", limits::UNUSED_TOPIC_RETENTION, DAY..=3_650 * DAY),
        /// None: limited only by the disk.
        pub database_bytes_max: Option<u64> = value(database_bytes_max(reader)),
    }
}

fn database_bytes_max(reader: &mut Reader) -> Option<u64> {
    let help =
        "Size of the database above which requests that store data are rejected. 0: no limit but the disk.";
    match reader.size("store.database_max", 0, 0..=1 << 50, help) {
        0 => None,
        bytes => Some(bytes as u64),
    }
}

section! {
    /// The connection of the nodes of a cluster.
    #[derive(Debug, Clone)]
    Cluster(reader) {
        /// Redis or Valkey that connects the nodes of a cluster:
        /// `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, `redis-cluster://HOST,HOST2`,
        /// `redis-sentinel://HOST,HOST2/MASTER`. Requires `store.url`. Unset: a single node.
        pub redis: Option<EngineUrl> =
            engine_url("cluster.redis", &["redis://", "rediss://", "redis-", "rediss-", "valkey"]),
        /// Certificate authorities for `rediss://` servers, instead of the public ones.
        pub redis_ca_file: Option<PathBuf> = optional_path("cluster.redis_ca_file", "a PEM file"),
        /// What carries messages between nodes. `direct`: TLS connections between the nodes, once all nodes of the
        /// cluster have this setting; Redis until then, and towards nodes that cannot be reached.
        pub bus: Bus = one_of("cluster.bus", &[("redis", Bus::Redis), ("direct", Bus::Direct)]),
        /// Address at which this node accepts connections of other nodes, with `cluster.bus` = "direct".
        pub links_listen: SocketAddr =
            address("cluster.links.listen", SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), LINKS_PORT)),
        /// Host and port at which other nodes reach `cluster.links.listen`. Unset: its address; if that is
        /// unspecified, the address of this machine towards Redis.
        pub links_advertise: Option<String> =
            optional("cluster.links.advertise", ("text", "HOST:PORT, an IPv6 address in brackets"), advertised),
        /// Prefix of all Redis keys. Clusters that share a Redis need different prefixes.
        pub prefix: String = text(
            "cluster.prefix",
            "noroshi",
            ("text", "letters, digits, `-`, `_` and `.`, at most 64"),
            node_name,
        ),
        /// Lease of a node in Redis. A node that does not renew it is considered gone, and its sessions are
        /// invalid. Redis counts as unreachable if an answer takes longer than a tenth of the lease, at least 1 s.
        pub lease: Duration = duration("cluster.lease", 10 * SECOND, SECOND..=5 * MINUTE),
        /// Interval for comparing connected devices with the store, which recovers messages lost between
        /// nodes.
        pub sweep_interval: Duration = duration("cluster.sweep_interval", MINUTE, SECOND..=HOUR),
        /// Sessions per second, over all gateways, that are registered again after Redis lost its data or
        /// nodes were disconnected. Each takes Redis about 7 µs.
        pub rejoin_rate: u32 = positive("cluster.rejoin_rate", 20_000, "sessions a second"),
    }
}

/// What carries messages between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    Redis,
    Direct,
}

/// Free in the lists of common services, and below the ports that the kernel gives to outgoing connections.
const LINKS_PORT: u16 = 7600;

fn advertised(text: &str) -> Result<(), String> {
    check_advertise(text).map_err(|error| error.to_string())
}

impl Cluster {
    pub(in crate::config) fn check(&self, reader: &mut Reader) {
        let address = self.redis.as_ref().map(|url| Address::parse(url.secret()));
        if self.bus == Bus::Direct && self.redis.is_none() {
            reader
                .problem("cluster.bus", "direct requires cluster.redis, through which nodes find each other");
        }
        if let Some(Err(error)) = &address {
            reader.problem("cluster.redis", error.to_string());
        }
        let Some(path) = &self.redis_ca_file else { return };
        if !matches!(address, Some(Ok(Address { tls: true, .. }) | Err(_))) {
            reader.problem("cluster.redis_ca_file", "requires a cluster.redis that begins with rediss");
        } else if let Err(error) = read_ca_file(path) {
            reader.problem("cluster.redis_ca_file", error.to_string());
        }
    }
}

section! {
    /// The cells of a front.
    #[derive(Debug, Clone)]
    Front(reader) {
        /// The cells of this front: name, urls, admin_url, operator_token, public_url, weight.
        pub cells_file: Option<PathBuf> =
            optional_path("front.cells_file", "a TOML file with a [[cell]] for each"),
        /// Read from the file.
        pub cells: Vec<CellConfig> = value(Vec::new()),
        /// Pending parts of notifications for one cell. Further ones are rejected.
        pub outbox_parts_max: u64 =
            count("front.outbox", defaults().outbox_parts_max, 1_000..=1_000_000_000, "messages"),
        /// Timeout of a request to a cell.
        pub request_timeout: Duration =
            duration("front.request_timeout", defaults().request_timeout, SECOND..=5 * MINUTE),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    cell: Vec<Cell>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    name: String,
    urls: Vec<String>,
    admin_url: String,
    operator_token: String,
    public_url: Option<String>,
    #[serde(default = "weight")]
    weight: u32,
}

fn weight() -> u32 {
    1
}

fn defaults() -> noroshi_cells::Config {
    noroshi_cells::Config::default()
}

impl Front {
    /// Reads the file if this node is a front.
    pub(in crate::config) fn complete(&mut self, reader: &mut Reader, is_front: bool) {
        let Some(path) = &self.cells_file else {
            if is_front {
                reader.problem("front.cells_file", format!("required by the role {}", Role::Front.as_str()));
            }
            return;
        };
        match read(path) {
            Ok(cells) => self.cells = cells,
            Err(reason) => {
                return reader.problem("front.cells_file", format!("{}: {reason}", path.display()));
            }
        }
        let config = noroshi_cells::Config { cells: self.cells.clone(), ..Default::default() };
        for (field, rule) in config.problems() {
            let field = field.replace("cells[", "cell[");
            reader.problem("front.cells_file", format!("{}: {field}: {rule}", path.display()));
        }
    }
}

fn read(path: &Path) -> Result<Vec<CellConfig>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    // Only line and column of the parser's message: it quotes the line, which may contain the token.
    let file: File = toml::from_str(&text).map_err(|error| error.message().to_owned())?;
    let cell = |cell: Cell| CellConfig {
        name: cell.name,
        urls: cell.urls,
        admin_url: cell.admin_url,
        operator_token: cell.operator_token,
        public_url: cell.public_url,
        weight: cell.weight,
    };
    Ok(file.cell.into_iter().map(cell).collect())
}

/// Amazon SQS.
#[derive(Debug, Clone)]
pub struct Sqs {
    /// For [`Queue::Sqs`].
    pub queue: QueueConfig,
    /// None: no notifications are read from a queue.
    pub intake: Option<IntakeConfig>,
}

impl Sqs {
    pub(in crate::config) fn read(reader: &mut Reader) -> Sqs {
        let connection = keys!(reader, Connection {
            /// Endpoint of an SQS-compatible service, such as ElasticMQ. Unset: Amazon's.
            endpoint = optional("sqs.endpoint", URL, any),
            /// AWS region. Unset: from the environment or the profile.
            region = optional("sqs.region", ("text", "such as eu-west-1"), any),
        });
        let prefix = reader.text(
            "sqs.queue_prefix",
            "noroshi-push",
            ("text", "a-z, A-Z, 0-9, `-` and `_`, at most 71"),
            any,
            "Prefix of the queues of `push.queue` = \"sqs\": `…-extra`, `…-direct`, `…-campaign`.",
        );
        let create =
            reader.switch("sqs.create_queues", false, "Creates missing queues of `push.queue` = \"sqs\".");
        let queue = QueueConfig { create, ..QueueConfig::new(connection.clone(), prefix) };
        Sqs { queue, intake: intake(reader, connection) }
    }

    pub(in crate::config) fn check(&self, reader: &mut Reader, queue: Queue) {
        let used = [
            (queue == Queue::Sqs).then(|| ("push.queue", "sqs.queue_prefix", self.queue.check())),
            self.intake.as_ref().map(|intake| {
                let key = "intake.sqs.queue_url";
                (key, key, intake.check())
            }),
        ];
        for (chosen, key, checked) in used.into_iter().flatten() {
            if !noroshi_sqs::AVAILABLE {
                reader.problem(chosen, "this build does not include Amazon SQS (feature `sqs`); `make dist` builds one that does");
            }
            if let Err(problem) = checked {
                reader.problem(key, problem);
            }
        }
    }
}

fn intake(reader: &mut Reader, connection: Connection) -> Option<IntakeConfig> {
    let help = "URL of a queue of notifications in the format of `POST /v1/notifications`.";
    let queue_url = reader.optional("intake.sqs.queue_url", URL, any, help);
    let defaults = IntakeConfig::new(connection, queue_url.clone().unwrap_or_default());
    let intake = keys!(reader, IntakeConfig {
        /// App of messages without the attribute `app`. Unset: such messages are rejected.
        app = optional("intake.sqs.app", ("text", "the name of an app"), any),
        /// Queue for messages that can never be accepted. Unset: the queue's own redrive policy applies.
        dead_letter_url = optional("intake.sqs.dead_letter_url", URL, any),
        /// Attempts to accept a message before it moves to the dead letter queue.
        receives_max = positive("intake.sqs.receives_max", defaults.receives_max, "times"),
        ..defaults
    });
    queue_url.map(|_| intake)
}

fn node_name(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match (1..=64).contains(&text.len()) && text.chars().all(plain) {
        true => Ok(()),
        false => Err("letters, digits, `-`, `_` and `.`, at most 64".to_owned()),
    }
}
