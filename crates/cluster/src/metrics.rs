//! The metrics of the cluster. Labels come from closed tables, and all series exist from the start, so that a rate is 0
//! before the first event.

use noroshi_telemetry::{Histogram, Registry};
use noroshi_types::names;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

names! {
    /// The purpose of a command.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) enum Kind {
        Lease => "lease",
        Take => "take",
        Keep => "keep",
        Forget => "forget",
        Absent => "absent",
        Locate => "locate",
        Publish => "publish",
        Batches => "batches",
        /// Health, identity and addresses of servers; subscriptions; scripts.
        Upkeep => "upkeep",
    }
}

names! {
    /// Why a link of this node ended, or did not begin.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) enum LinkFailure {
        Connect => "connect",
        Handshake => "handshake",
        Refused => "refused",
        Broken => "broken",
        Silent => "silent",
        Malformed => "malformed",
    }
}

names! {
    /// Why this node rejected a link.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) enum LinkRejection {
        Handshake => "handshake",
        Hello => "hello",
        Lease => "lease",
        Slow => "slow",
        Busy => "busy",
    }
}

names! {
    /// What carries messages to another node.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub(crate) enum PeerBus {
        Direct => "direct",
        Redis => "redis",
    }
}

/// Why a command failed.
const WHY: [&str; 3] = ["refused", "overloaded", "unavailable"];
const CONNECTIONS: [&str; 2] = ["commands", "subscriber"];
const DIRECTIONS: [&str; 2] = ["in", "out"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BusLabels {
    bus: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

/// Registers all metrics, for the documentation.
pub fn describe(registry: &mut Registry) {
    Metrics::new(registry);
}

/// All metrics, registered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    pub(crate) lease_held: Gauge,
    pub(crate) leases_gained: Counter,
    pub(crate) leases_lapsed: Counter,
    pub(crate) nodes: Gauge,
    commands: Family<KindLabels, Counter>,
    pub(crate) round_trip: Histogram,
    pub(crate) failures: Family<KindFailure, Counter>,
    pub(crate) servers: Gauge,
    pub(crate) servers_up: Gauge,
    connects: Family<KindLabels, Counter>,
    pub(crate) forgotten: Counter,
    pub(crate) look_ups: Counter,
    pub(crate) keys_located: Counter,
    pub(crate) keys_unknown: Counter,
    pub(crate) entries_removed: Counter,
    messages: Family<DirectionLabels, Counter>,
    bytes: Family<DirectionLabels, Counter>,
    pub(crate) unheard: Counter,
    pub(crate) gaps: Counter,
    pub(crate) stale: Counter,
    pub(crate) overflows: Counter,
    pub(crate) malformed: Counter,
    pub(crate) links: LinkMetrics,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindFailure {
    kind: &'static str,
    why: &'static str,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let m = Self { links: LinkMetrics::new(registry), ..Self::default() };
        let mut gauge = |name: &str, help: &str, gauge: &Gauge| {
            registry.register(format!("cluster_{name}"), help, gauge.clone());
        };
        gauge("lease_held", "1 while this node holds its lease", &m.lease_held);
        gauge("nodes", "Nodes with a live lease, as this node last read", &m.nodes);
        gauge("servers", "Redis servers that store data of this cluster", &m.servers);
        gauge("servers_up", "Redis servers of this cluster to which this node is connected", &m.servers_up);
        let mut counter = |name: &str, help: &str, counter: &Counter| {
            registry.register(format!("cluster_{name}"), help, counter.clone());
        };
        counter("leases_gained", "Leases that this node gained, each with a new epoch", &m.leases_gained);
        counter("leases_lapsed", "Leases that this node lost", &m.leases_lapsed);
        counter("forgotten", "Times that Redis may have lost entries (restart, failover)", &m.forgotten);
        counter("lookups", "Requests to the directory, each for many keys", &m.look_ups);
        counter("lookup_keys", "Devices and users looked up", &m.keys_located);
        counter(
            "lookup_keys_unknown",
            "Lookup keys sent to every gateway because their part of Redis was down",
            &m.keys_unknown,
        );
        counter("entries_removed", "Directory entries of dead nodes that were removed", &m.entries_removed);
        counter("bus_unheard", "Messages published without a listening node", &m.unheard);
        counter("bus_gaps", "Gaps in sequence numbers, each a loss of messages", &m.gaps);
        counter(
            "bus_stale",
            "Messages dropped because they were for an expired epoch of this node",
            &m.stale,
        );
        counter("bus_overflows", "Messages dropped because this node did not keep up", &m.overflows);
        counter("bus_malformed", "Messages with an invalid format", &m.malformed);
        registry.register("cluster_commands", "Commands sent to Redis", m.commands.clone());
        registry.register(
            "cluster_failures",
            "Commands that Redis rejected or did not answer",
            m.failures.clone(),
        );
        registry.register("cluster_connects", "Connections to Redis opened", m.connects.clone());
        registry.register("cluster_bus_messages", "Messages between nodes", m.messages.clone());
        registry.register("cluster_bus_bytes", "Bytes of messages between nodes", m.bytes.clone());
        registry.register(
            "cluster_round_trip_seconds",
            "Time from writing commands to a connection to their answer",
            m.round_trip.clone(),
        );
        m.count_from_zero();
        m
    }

    fn count_from_zero(&self) {
        for kind in Kind::ALL.map(Kind::as_str) {
            self.commands.get_or_create(&KindLabels { kind }).inc_by(0);
            for why in WHY {
                self.failures.get_or_create(&KindFailure { kind, why }).inc_by(0);
            }
        }
        for connection in CONNECTIONS {
            self.connects.get_or_create(&KindLabels { kind: connection }).inc_by(0);
        }
        DIRECTIONS.into_iter().for_each(|direction| self.passed(direction, 0, 0));
    }

    pub(crate) fn commands(&self, kind: Kind) -> Counter {
        self.commands.get_or_create_owned(&KindLabels { kind: kind.as_str() })
    }

    /// `why` is one of [`WHY`].
    pub(crate) fn failed(&self, kind: Kind, why: &'static str, count: u64) {
        self.failures.get_or_create(&KindFailure { kind: kind.as_str(), why }).inc_by(count);
    }

    /// `connection` is one of [`CONNECTIONS`].
    pub(crate) fn connected(&self, connection: &'static str) {
        self.connects.get_or_create(&KindLabels { kind: connection }).inc();
    }

    /// `direction` is one of [`DIRECTIONS`].
    pub(crate) fn passed(&self, direction: &'static str, messages: usize, bytes: usize) {
        let labels = DirectionLabels { direction };
        self.messages.get_or_create(&labels).inc_by(messages as u64);
        self.bytes.get_or_create(&labels).inc_by(bytes as u64);
    }
}

/// The metrics of links.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkMetrics {
    up: Family<DirectionLabels, Gauge>,
    peers: Family<BusLabels, Gauge>,
    frames: Family<DirectionLabels, Counter>,
    bytes: Family<DirectionLabels, Counter>,
    queued_bytes: Gauge,
    connects: Counter,
    failures: Family<WhyLabels, Counter>,
    rejections: Family<WhyLabels, Counter>,
    /// Times that this process found that it had not run.
    pub(crate) stalls: Counter,
    /// Frames that arrived too late to be handed over.
    pub(crate) late: Counter,
    /// Frames that took Redis after their link failed.
    pub(crate) resent: Counter,
    /// Receivers that did not confirm in time.
    pub(crate) unconfirmed: Counter,
    pub(crate) receipt: Histogram,
}

impl LinkMetrics {
    fn new(registry: &mut Registry) -> Self {
        let m = Self::default();
        registry.register("cluster_links", "Direct connections between nodes that are up", m.up.clone());
        registry.register(
            "cluster_peers",
            "Other nodes, by what carries messages to them: a direct connection, or Redis",
            m.peers.clone(),
        );
        registry.register("cluster_link_frames", "Frames on direct connections", m.frames.clone());
        registry.register("cluster_link_bytes", "Bytes of frames on direct connections", m.bytes.clone());
        registry.register(
            "cluster_link_queued_bytes",
            "Bytes that wait for direct connections",
            m.queued_bytes.clone(),
        );
        let mut counter = |name: &str, help: &str, counter: &Counter| {
            registry.register(format!("cluster_{name}"), help, counter.clone());
        };
        counter("link_connects", "Direct connections that this node opened", &m.connects);
        counter(
            "link_stalls",
            "Direct connections ended because this process had not run for a while",
            &m.stalls,
        );
        counter(
            "link_late",
            "Frames dropped because they had waited here too long; their sender resends them",
            &m.late,
        );
        counter(
            "link_resent",
            "Frames sent again over Redis because no receipt arrived over the link",
            &m.resent,
        );
        counter("link_unconfirmed", "Times that a node did not confirm receipt in time", &m.unconfirmed);
        registry.register(
            "cluster_link_failures",
            "Direct connections to other nodes that ended or could not be opened",
            m.failures.clone(),
        );
        registry.register(
            "cluster_link_rejections",
            "Direct connections that this node rejected",
            m.rejections.clone(),
        );
        registry.register(
            "cluster_receipt_seconds",
            "Time until all receivers of a round have confirmed receipt",
            m.receipt.clone(),
        );
        for direction in DIRECTIONS {
            m.up.get_or_create(&DirectionLabels { direction }).set(0);
            m.passed(direction, 0, 0);
        }
        PeerBus::ALL.into_iter().for_each(|bus| m.peers(bus, 0));
        for why in LinkFailure::ALL.map(LinkFailure::as_str) {
            m.failures.get_or_create(&WhyLabels { why }).inc_by(0);
        }
        for why in LinkRejection::ALL.map(LinkRejection::as_str) {
            m.rejections.get_or_create(&WhyLabels { why }).inc_by(0);
        }
        m
    }

    /// `direction` is one of [`DIRECTIONS`].
    pub(crate) fn passed(&self, direction: &'static str, frames: usize, bytes: usize) {
        let labels = DirectionLabels { direction };
        self.frames.get_or_create(&labels).inc_by(frames as u64);
        self.bytes.get_or_create(&labels).inc_by(bytes as u64);
    }

    pub(crate) fn up(&self, direction: &'static str) {
        self.up.get_or_create(&DirectionLabels { direction }).inc();
        if direction == "out" {
            self.connects.inc();
        }
    }

    pub(crate) fn down(&self, direction: &'static str) {
        self.up.get_or_create(&DirectionLabels { direction }).dec();
    }

    pub(crate) fn peers(&self, bus: PeerBus, count: usize) {
        let labels = BusLabels { bus: bus.as_str() };
        self.peers.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn queued(&self, bytes: usize) {
        self.queued_bytes.inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn unqueued(&self, bytes: usize) {
        self.queued_bytes.dec_by(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn failed(&self, why: LinkFailure) {
        self.failures.get_or_create(&WhyLabels { why: why.as_str() }).inc();
    }

    pub(crate) fn rejected(&self, why: LinkRejection) {
        self.rejections.get_or_create(&WhyLabels { why: why.as_str() }).inc();
    }
}
