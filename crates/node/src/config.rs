//! The configuration of one node: `noroshi.toml` < environment < flags.
//!
//! [`Config::load`] opens nothing but the file itself and the certificates and the key it names. It answers either a configuration in which
//! every value is in range and the rules between values hold, or all that is wrong at once. The keys,
//! their defaults and their ranges are the table in `keys`; `docs/configuration.md` is written from it.

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
    /// What apps may use that override nothing.
    pub quotas: noroshi_types::quota::Limits,
    pub events: Events,
    pub tracing: Tracing,
    pub profiling: Profiling,
    pub log: Log,
    /// Every key with its value and where that comes from, for `config print`.
    pub entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
pub struct Server {
    pub http: SocketAddr,
    /// Both addresses speak HTTP/2 to clients that want it.
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
    /// 0: stalls are not looked for.
    pub stall_timeout: Duration,
    pub dev: bool,
    /// Serves the WebSocket echo that conformance suites drive.
    pub conformance: bool,
    /// Whose word counts for which client a request comes from.
    pub proxies: TrustedProxies,
}

/// Listeners of MQTT; none unless they are named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mqtt {
    pub listen: Option<SocketAddr>,
    /// Under TLS, with the certificate of the public address.
    pub tls_listen: Option<SocketAddr>,
    /// What devices are told of these listeners, which a balancer may stand before.
    pub public_url: Option<String>,
    /// Where a drain sends clients: addresses with spaces between.
    pub redirect: Option<String>,
    /// For good.
    pub moved: bool,
}

/// Listeners of XMPP, none unless they are named, and what its clients are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xmpp {
    /// In the clear until STARTTLS.
    pub listen: Option<SocketAddr>,
    /// Under TLS from the start, with the certificate of the public address.
    pub tls_listen: Option<SocketAddr>,
    /// What devices are told of these listeners, which a balancer may stand before.
    pub public_url: Option<String>,
    pub domain: String,
    /// Log-ins without TLS.
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
    /// Names of topics.
    pub topic_bytes: usize,
    pub body_bytes: usize,
    pub head_bytes: usize,
    pub headers: usize,
    pub client_message_bytes: usize,
    pub requests_in_flight: usize,
    /// HTTP connections of one client; 0: no limit.
    pub connections_per_client: usize,
    /// Of an HTTP/2 connection.
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
    /// Connections told to leave a second.
    pub rate: u32,
    /// They are told to come back within this time, each at another moment.
    pub spread: Duration,
    pub deadline: Duration,
}

/// What this node is among others.
#[derive(Debug, Clone)]
pub struct Node {
    /// None: the host's name and the public port.
    pub name: Option<String>,
    pub roles: Roles,
    /// How devices reach this very node; none: [`Server::public_url`].
    pub advertise: Option<String>,
}

/// A part of the work that nodes can share out.
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

/// Not empty, and a front is nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles([bool; 4]);

impl Roles {
    /// Everything that a node alone has to do.
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

/// What a front stands before.
#[derive(Debug, Clone)]
pub struct Front {
    pub cells_file: Option<PathBuf>,
    /// As the file says.
    pub cells: Vec<CellConfig>,
    pub outbox_parts_max: u64,
    pub request_timeout: Duration,
}

/// Amazon SQS.
#[derive(Debug, Clone)]
pub struct Sqs {
    /// Where [`Queue::Sqs`] says so.
    pub queue: QueueConfig,
    /// None: no notifications come by a queue.
    pub intake: Option<IntakeConfig>,
}

/// Where all nodes of a cluster meet.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// None: this node is alone.
    pub redis: Option<EngineUrl>,
    /// None: those of the web.
    pub redis_ca_file: Option<PathBuf>,
    pub prefix: String,
    pub lease: Duration,
    pub sweep_interval: Duration,
    /// Sessions put into the directory again a second.
    pub rejoin_rate: u32,
}

#[derive(Debug, Clone)]
pub struct Store {
    /// Of PostgreSQL; none: SQLite in the data folder.
    pub url: Option<EngineUrl>,
    pub connections: usize,
    pub statement_timeout: Duration,
    pub inbox_rows: u32,
    pub topic_log_rows: u64,
    pub trace_retention: Duration,
    /// None: as far as the disk goes.
    pub database_bytes_max: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Auth {
    pub device_token_ttl: Duration,
    pub failures: noroshi_auth::FailureLimits,
}

#[derive(Debug, Clone)]
pub struct Egress {
    /// Connected to although not public.
    pub allow: Vec<IpNet>,
    pub ca_file: Option<PathBuf>,
    /// What `proxy`, `no_proxy` and the environment say together.
    pub proxies: Proxies,
    proxy: Option<ProxyChoice>,
    no_proxy: Option<String>,
}

/// Where senders find their batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Store,
    Redis,
    Sqs,
}

/// How often others may post to the endpoints of devices.
#[derive(Debug, Clone)]
pub struct WebPush {
    pub endpoint_per_minute: u32,
    pub app_per_second: u32,
}

#[derive(Debug, Clone)]
pub struct Push {
    pub key_file: Option<PathBuf>,
    pub queue: Queue,
    /// To one push service for one credential.
    pub connections: usize,
    pub request_timeout: Duration,
    /// Recipients in one batch of a campaign.
    pub batch: u32,
    /// Recipients taken from the queue and not answered yet.
    pub in_flight: usize,
}

/// The event log; without a sink there is none.
#[derive(Debug, Clone)]
pub struct Events {
    /// The node's name is added where the log is started.
    pub log: noroshi_events::Config,
    webhook_key_file: Option<PathBuf>,
    kafka_password_file: Option<PathBuf>,
}

/// Traces and metrics to a collector; without an endpoint there are none.
#[derive(Clone)]
pub struct Tracing {
    pub endpoint: Option<String>,
    headers_file: Option<PathBuf>,
    /// As the file says.
    pub headers: Vec<(String, String)>,
    pub sample_per_million: u32,
    pub timeout: Duration,
    pub drain: Duration,
    /// None: metrics are not sent.
    pub metrics_interval: Option<Duration>,
    pub service_name: String,
    attributes_text: Option<String>,
    pub attributes: Vec<(String, String)>,
    /// Whether push services are told of traces.
    pub push_services: bool,
}

/// Its headers are a secret.
impl std::fmt::Debug for Tracing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracing").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Profiles that are pushed.
#[derive(Debug, Clone)]
pub struct Profiling {
    /// None: only who asks gets one.
    pub push: Option<noroshi_profiling::Config>,
}

#[derive(Debug, Clone)]
pub struct Log {
    pub level: String,
    pub format: noroshi_telemetry::log::Format,
}

/// The runtime and the admin thread show once a second that they run.
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
        // Without the file the rules between keys would be held against its defaults.
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

    /// No two listeners can have one port of one address.
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
                .find(|(_, other)| address.zip(*other).is_some_and(|(one, other)| collide(one, other)));
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
                "is below 5s: a busy machine would look like a stall (0s: never)",
            );
        }
        if self.mqtt.tls_listen.is_some() && self.server.tls.is_none() {
            reader.problem("mqtt.tls_listen", "needs a certificate: tls.cert and tls.key");
        }
        if self.mqtt.moved && self.mqtt.redirect.is_none() {
            reader.problem("mqtt.moved", "needs mqtt.redirect: where the server has moved to");
        }
        self.xmpp.check(reader, &self.server);
        let Gateway { send_queue_soft_bytes, send_queue_bytes, ping_interval, ping_timeout, .. } =
            &self.gateway;
        if send_queue_soft_bytes > send_queue_bytes {
            reader.problem(
                "gateway.send_queue_soft",
                "is over gateway.send_queue: messages are dropped before a connection is",
            );
        }
        if ping_timeout > ping_interval {
            reader.problem(
                "gateway.ping_timeout",
                "is over gateway.ping_interval: the next ping would come first",
            );
        }
        if self.gateway.frames_burst < self.gateway.frames_per_second {
            reader.problem(
                "gateway.frames_burst",
                "is below gateway.frames_per_second: the rate could never be reached",
            );
        }
        if self.cluster.redis.is_some() && self.store.url.is_none() {
            reader.problem(
                "cluster.redis",
                "needs store.url: nodes that know of each other share one PostgreSQL database",
            );
        }
        self.cluster.check(reader);
        if self.push.queue == Queue::Redis && self.cluster.redis.is_none() {
            reader.problem("push.queue", "redis needs cluster.redis");
        }
        if self.node.roles.has(Role::Front) && self.cluster.redis.is_some() {
            reader.problem("cluster.redis", "a front is no part of a cluster: its cells are");
        }
        if self.cluster.redis.is_none()
            && self.node.roles != Roles::WHOLE
            && !self.node.roles.has(Role::Front)
        {
            reader.problem("node.roles", "needs cluster.redis: a node alone does everything");
        }
        if self.store.url.is_some() && self.limits.topic_bytes > limits::TOPIC_BYTES_POSTGRES {
            reader.problem(
                "limits.topic",
                format!(
                    "is over {} B, which is what an index of PostgreSQL takes",
                    limits::TOPIC_BYTES_POSTGRES
                ),
            );
        }
        if self.limits.data_bytes > self.limits.body_bytes {
            reader.problem("limits.data", "is over limits.body: such a request could never arrive");
        }
    }
}

/// Whether the second of two cannot be listened on. Port 0 is another one each time; the unspecified address has
/// every address of its family, and the one of IPv6 those of IPv4 too.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: SocketAddr, part: SocketAddr| {
        all.ip() == part.ip() || all.ip().is_unspecified() && (all.is_ipv6() || part.is_ipv4())
    };
    one.port() != 0 && one.port() == other.port() && (covers(one, other) || covers(other, one))
}
