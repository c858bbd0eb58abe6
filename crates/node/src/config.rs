//! The configuration of one node: `noroshi.toml` < environment < flags.
//!
//! [`Config::load`] opens only the file itself and the certificates and key files that it names. It returns a configuration in
//! which all values are in range and the rules between them hold, or all problems at once. The table in `keys` has all keys
//! with defaults and ranges; `docs/configuration.md` is generated from it.

mod cells;
mod certificate;
mod cluster;
mod egress;
mod events;
mod keys;
mod layer;
mod print;
mod problem;
mod profiling;
mod reader;
mod redact;
mod size;
mod tracing;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use layer::{FILE_NAME, Flag, Inputs};
pub use print::{print, reference};
pub use problem::{Problem, Problems, Source};
pub use reader::{EngineUrl, Entry};

use ipnet::IpNet;
use layer::Layers;
use noroshi_auth::TrustedProxies;
use noroshi_cells::CellConfig;
use noroshi_egress::Proxies;
use noroshi_sqs::{IntakeConfig, QueueConfig};
use noroshi_types::limits;
use reader::{ProxyChoice, Reader};

/// Checked, with units resolved.
#[derive(Debug, Clone)]
pub struct Config {
    pub server: Server,
    pub limits: Limits,
    pub gateway: Gateway,
    pub mqtt: Mqtt,
    pub xmpp: Xmpp,
    pub node: Node,
    pub store: Store,
    pub cluster: Cluster,
    pub front: Front,
    pub sqs: Sqs,
    pub auth: Auth,
    pub egress: Egress,
    pub push: Push,
    pub web_push: WebPush,
    /// Default limits of apps.
    pub quotas: noroshi_types::quota::Limits,
    pub events: Events,
    pub tracing: Tracing,
    pub profiling: Profiling,
    pub log: Log,
    /// Every key with its value and source, for `config print`.
    pub entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
pub struct Server {
    pub http: SocketAddr,
    /// HTTP/2 on both addresses.
    pub http2: bool,
    pub tls: Option<TlsFiles>,
    pub public_url: Option<String>,
    pub app_domain: Option<String>,
    pub admin: SocketAddr,
    pub admin_tls: Option<TlsFiles>,
    pub data: PathBuf,
    /// 0: one for each core.
    pub shards: usize,
    /// 0: one for each core.
    pub workers: usize,
    /// 0: stalls are not detected.
    pub stall_timeout: Duration,
    pub dev: bool,
    /// Serves the WebSocket echo that conformance suites drive.
    pub conformance: bool,
    /// Proxies that are trusted to name the client of a request.
    pub proxies: TrustedProxies,
}

/// Listeners of MQTT. Each is optional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mqtt {
    pub listen: Option<SocketAddr>,
    /// With TLS, by the certificate of the public address.
    pub tls_listen: Option<SocketAddr>,
    /// Public URL of these listeners or of their load balancer.
    pub public_url: Option<String>,
    /// Servers to which a drain redirects clients, separated by spaces.
    pub redirect: Option<String>,
    /// The redirect is permanent.
    pub moved: bool,
}

/// Listeners of XMPP, each optional, and settings of its protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xmpp {
    /// Cleartext until STARTTLS.
    pub listen: Option<SocketAddr>,
    /// Direct TLS, by the certificate of the public address.
    pub tls_listen: Option<SocketAddr>,
    /// Public URL of these listeners or of their load balancer.
    pub public_url: Option<String>,
    pub domain: String,
    /// Allows log-ins without TLS.
    pub plaintext: bool,
    pub redirect: Option<String>,
    pub resume: Duration,
    /// Conformance only.
    pub accounts: Vec<noroshi_gateway::xmpp::Account>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Limits {
    pub data_bytes: usize,
    /// Length of topic names.
    pub topic_bytes: usize,
    pub body_bytes: usize,
    pub head_bytes: usize,
    pub headers: usize,
    pub client_message_bytes: usize,
    pub requests_in_flight: usize,
    /// HTTP connections of one client; 0: no limit.
    pub connections_per_client: usize,
    /// Concurrent streams of an HTTP/2 connection.
    pub http2_streams: u32,
    pub timing: noroshi_api::Timing,
}

#[derive(Debug, Clone)]
pub struct Gateway {
    pub connections_max: usize,
    /// 0: a quarter of them.
    pub unauthenticated_max: usize,
    /// 0: no limit.
    pub connections_per_client: u32,
    pub connects_per_second: u32,
    pub frames_per_second: u32,
    pub frames_burst: u32,
    pub auth_timeout: Duration,
    pub head_timeout: Duration,
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
    pub send_queue_soft_bytes: usize,
    pub send_queue_bytes: usize,
    pub send_stall: Duration,
    pub parked_sessions_bytes: usize,
    pub tcp_keepalive: Duration,
    pub io_uring: bool,
    pub websocket_deflate: bool,
    pub drain: Drain,
}

#[derive(Debug, Clone)]
pub struct Drain {
    /// Connections moved per second.
    pub rate: u32,
    /// Moved devices reconnect after a random delay of up to this time.
    pub spread: Duration,
    pub deadline: Duration,
}

/// This node in its cluster.
#[derive(Debug, Clone)]
pub struct Node {
    /// None: the host's name and the public port.
    pub name: Option<String>,
    pub roles: Roles,
    /// Public URL of this particular node. None: [`Server::public_url`].
    pub advertise: Option<String>,
}

/// A part of the work that nodes can divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Api,
    Gateway,
    Sender,
    Front,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Api, Role::Gateway, Role::Sender, Role::Front];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Api => "api",
            Role::Gateway => "gateway",
            Role::Sender => "sender",
            Role::Front => "front",
        }
    }
}

/// Not empty. A front has no other role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles([bool; 4]);

impl Roles {
    /// All roles of a single node.
    pub const WHOLE: Roles = Roles([true, true, true, false]);

    pub fn of(roles: &[Role]) -> Roles {
        Roles(Role::ALL.map(|role| roles.contains(&role)))
    }

    pub fn has(self, role: Role) -> bool {
        self.0[role as usize]
    }

    pub fn names(self) -> Vec<&'static str> {
        Role::ALL.into_iter().filter(|role| self.has(*role)).map(Role::as_str).collect()
    }
}

/// The cells of a front.
#[derive(Debug, Clone)]
pub struct Front {
    pub cells_file: Option<PathBuf>,
    /// Read from the file.
    pub cells: Vec<CellConfig>,
    pub outbox_parts_max: u64,
    pub request_timeout: Duration,
}

/// Amazon SQS.
#[derive(Debug, Clone)]
pub struct Sqs {
    /// For [`Queue::Sqs`].
    pub queue: QueueConfig,
    /// None: no notifications are read from a queue.
    pub intake: Option<IntakeConfig>,
}

/// The connection of the nodes of a cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// None: a single node.
    pub redis: Option<EngineUrl>,
    /// None: the public ones.
    pub redis_ca_file: Option<PathBuf>,
    pub prefix: String,
    pub lease: Duration,
    pub sweep_interval: Duration,
    /// Sessions registered again in the directory, per second.
    pub rejoin_rate: u32,
}

#[derive(Debug, Clone)]
pub struct Store {
    /// PostgreSQL. None: SQLite in the data folder.
    pub url: Option<EngineUrl>,
    pub connections: usize,
    pub statement_timeout: Duration,
    pub inbox_rows: u32,
    pub topic_log_rows: u64,
    pub trace_retention: Duration,
    /// None: limited only by the disk.
    pub database_bytes_max: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Auth {
    pub device_token_ttl: Duration,
    pub failures: noroshi_auth::FailureLimits,
}

#[derive(Debug, Clone)]
pub struct Egress {
    /// Non-public networks that may be reached.
    pub allow: Vec<IpNet>,
    pub ca_file: Option<PathBuf>,
    /// The result of `proxy`, `no_proxy` and the environment.
    pub proxies: Proxies,
    proxy: Option<ProxyChoice>,
    no_proxy: Option<String>,
}

/// The queue of push batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Store,
    Redis,
    Sqs,
}

/// Rate limits of Web Push endpoints.
#[derive(Debug, Clone)]
pub struct WebPush {
    pub endpoint_per_minute: u32,
    pub app_per_second: u32,
}

#[derive(Debug, Clone)]
pub struct Push {
    pub key_file: Option<PathBuf>,
    pub queue: Queue,
    /// Connections to one push service for one credential.
    pub connections: usize,
    pub request_timeout: Duration,
    /// Recipients in one batch of a campaign.
    pub batch: u32,
    /// Recipients taken from the queue and not answered yet.
    pub in_flight: usize,
}

/// The event log. Without a sink there is none.
#[derive(Debug, Clone)]
pub struct Events {
    /// Without the node's name, which is added when the log starts.
    pub log: noroshi_events::Config,
    webhook_key_file: Option<PathBuf>,
    kafka_password_file: Option<PathBuf>,
}

/// Traces and metrics for a collector. Without an endpoint there are none.
#[derive(Clone)]
pub struct Tracing {
    pub endpoint: Option<String>,
    headers_file: Option<PathBuf>,
    /// Read from the file.
    pub headers: Vec<(String, String)>,
    pub sample_per_million: u32,
    pub timeout: Duration,
    pub drain: Duration,
    /// None: metrics are not sent.
    pub metrics_interval: Option<Duration>,
    pub service_name: String,
    attributes_text: Option<String>,
    pub attributes: Vec<(String, String)>,
    /// Whether to send trace headers to push services.
    pub push_services: bool,
}

/// Omits the headers, which are secret.
impl std::fmt::Debug for Tracing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracing").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Continuous profiling.
#[derive(Debug, Clone)]
pub struct Profiling {
    /// None: profiles only on request.
    pub push: Option<noroshi_profiling::Config>,
}

#[derive(Debug, Clone)]
pub struct Log {
    pub level: String,
    pub format: noroshi_telemetry::log::Format,
}

/// The runtime and the admin thread report progress once a second.
const STALL_TIMEOUT_MIN: Duration = Duration::from_secs(5);

impl Config {
    pub fn load(inputs: &Inputs) -> Result<Config, Problems> {
        let mut problems = Vec::new();
        let layers = layer::collect(inputs, &mut problems);
        Self::resolve(layers, problems, &inputs.environment)
    }

    fn resolve(
        layers: Layers,
        problems: Vec<Problem>,
        environment: &[(String, String)],
    ) -> Result<Config, Problems> {
        // Without the file, the rules between keys would be checked against defaults.
        let file_is_read = problems.is_empty();
        let mut reader = Reader::new(layers, problems);
        let mut config = Self::read(&mut reader);
        if file_is_read {
            config.check(&mut reader);
        }
        let Server { tls, admin_tls, .. } = &config.server;
        certificate::check(&mut reader, ("tls.cert", "tls.key"), tls.as_ref());
        certificate::check(&mut reader, ("admin.tls.cert", "admin.tls.key"), admin_tls.as_ref());
        config.egress.complete(&mut reader, environment);
        config.push.check(&mut reader);
        config.sqs.check(&mut reader, config.push.queue);
        config.events.complete(&mut reader);
        config.tracing.complete(&mut reader);
        config.profiling.check(&mut reader);
        config.front.complete(&mut reader, config.node.roles.has(Role::Front));
        let (entries, problems) = reader.finish();
        config.entries = entries;
        match problems.is_empty() {
            true => Ok(config),
            false => Err(Problems(problems)),
        }
    }

    /// Two listeners cannot share a port of an address.
    fn check_ports(&self, reader: &mut Reader) {
        let listeners = [
            ("server.http", Some(self.server.http)),
            ("server.admin", Some(self.server.admin)),
            ("mqtt.listen", self.mqtt.listen),
            ("mqtt.tls_listen", self.mqtt.tls_listen),
            ("xmpp.listen", self.xmpp.listen),
            ("xmpp.tls_listen", self.xmpp.tls_listen),
        ];
        for (at, (key, address)) in listeners.iter().enumerate() {
            let others = &listeners[..at];
            let taken = others
                .iter()
                .find(|(_, other)| address.zip(*other).is_some_and(|(one, other)| conflict(one, other)));
            if let Some((other, _)) = taken {
                reader.problem(
                    key,
                    format!("is the same address as {other}; each listener needs its own port"),
                );
            }
        }
    }

    /// Rules between keys.
    fn check(&self, reader: &mut Reader) {
        self.check_ports(reader);
        let stall = self.server.stall_timeout;
        if !stall.is_zero() && stall < STALL_TIMEOUT_MIN {
            reader.problem(
                "server.stall_timeout",
                "must be 0s (never) or at least 5s, since a busy machine would look like a stall",
            );
        }
        if self.mqtt.tls_listen.is_some() && self.server.tls.is_none() {
            reader.problem("mqtt.tls_listen", "requires a certificate: tls.cert and tls.key");
        }
        if self.mqtt.moved && self.mqtt.redirect.is_none() {
            reader.problem("mqtt.moved", "requires mqtt.redirect, the new server");
        }
        self.xmpp.check(reader, &self.server);
        let Gateway { send_queue_soft_bytes, send_queue_bytes, ping_interval, ping_timeout, .. } =
            &self.gateway;
        if send_queue_soft_bytes > send_queue_bytes {
            reader.problem(
                "gateway.send_queue_soft",
                "must not exceed gateway.send_queue: messages are dropped before the connection is closed",
            );
        }
        if ping_timeout > ping_interval {
            reader.problem(
                "gateway.ping_timeout",
                "must not exceed gateway.ping_interval, or the next ping would come first",
            );
        }
        if self.gateway.frames_burst < self.gateway.frames_per_second {
            reader.problem(
                "gateway.frames_burst",
                "must be at least gateway.frames_per_second, or the rate could never be reached",
            );
        }
        if self.cluster.redis.is_some() && self.store.url.is_none() {
            reader.problem(
                "cluster.redis",
                "requires store.url: the nodes of a cluster share a PostgreSQL database",
            );
        }
        self.cluster.check(reader);
        if self.push.queue == Queue::Redis && self.cluster.redis.is_none() {
            reader.problem("push.queue", "redis requires cluster.redis");
        }
        if self.node.roles.has(Role::Front) && self.cluster.redis.is_some() {
            reader.problem("cluster.redis", "must not be set on a front; only its cells are clusters");
        }
        if self.cluster.redis.is_none()
            && self.node.roles != Roles::WHOLE
            && !self.node.roles.has(Role::Front)
        {
            reader.problem("node.roles", "requires cluster.redis: a single node must have all roles");
        }
        if self.store.url.is_some() && self.limits.topic_bytes > limits::TOPIC_BYTES_POSTGRES {
            reader.problem(
                "limits.topic",
                format!(
                    "must not exceed {} B, the limit of an index in PostgreSQL",
                    limits::TOPIC_BYTES_POSTGRES
                ),
            );
        }
        if self.limits.data_bytes > self.limits.body_bytes {
            reader
                .problem("limits.data", "must not exceed limits.body, or such a request could never be sent");
        }
    }
}

/// Whether two listeners conflict. Port 0 never does. The unspecified address covers every address of its family; that of IPv6
/// also those of IPv4.
fn conflict(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: SocketAddr, part: SocketAddr| {
        all.ip() == part.ip() || all.ip().is_unspecified() && (all.is_ipv6() || part.is_ipv4())
    };
    one.port() != 0 && one.port() == other.port() && (covers(one, other) || covers(other, one))
}
