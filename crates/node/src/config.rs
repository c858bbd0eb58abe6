//! The configuration of one node: `noroshi.toml` < environment < flags.
//!
//! [`Config::load`] opens only the file itself and the certificates and key files that it names. It returns a configuration in
//! which all values are in range and the rules between them hold, or all problems at once. The table in `keys` has all keys
//! with defaults and ranges; `docs/configuration.md` is generated from it.

mod certificate;
mod keys;
mod layer;
mod print;
mod problem;
mod reader;
mod redact;
mod size;

use std::net::SocketAddr;
use std::time::Duration;

pub use keys::{
    Auth, Bus, Cluster, Console, Drain, Egress, Events, Front, Gateway, Limits, Log, Mqtt, Node, OpenIds,
    Profiling, Publish, Push, Queue, Server, Sqs, Store, TlsFiles, Tracing, Xmpp,
};
pub use layer::{FILE_NAME, Flag, Inputs};
pub use print::{by_section, print, reference};
pub use problem::{Problem, Problems, Source};
pub use reader::{EngineUrl, Entry};

use layer::Layers;
use noroshi_types::{limits, names};
use reader::Reader;

/// Checked, with units resolved.
#[derive(Debug, Clone)]
pub struct Config {
    pub server: Server,
    pub limits: Limits,
    pub publish: Publish,
    pub gateway: Gateway,
    pub mqtt: Mqtt,
    pub xmpp: Xmpp,
    pub node: Node,
    pub store: Store,
    pub cluster: Cluster,
    pub front: Front,
    pub sqs: Sqs,
    pub auth: Auth,
    pub console: Console,
    pub egress: Egress,
    pub push: Push,
    /// Rate limits of Web Push endpoints.
    pub web_push: noroshi_api::RateLimits,
    /// Default limits of apps.
    pub quotas: noroshi_types::quota::Limits,
    pub events: Events,
    pub tracing: Tracing,
    pub profiling: Profiling,
    pub log: Log,
    /// Every key with its value and source, for `config print`.
    pub entries: Vec<Entry>,
}

names! {
    /// A part of the work that nodes can divide.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Role {
        Api => "api",
        Gateway => "gateway",
        Sender => "sender",
        Front => "front",
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
        let Console { oidc, url, .. } = &mut config.console;
        oidc.complete(&mut reader, &config.server, url);
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
