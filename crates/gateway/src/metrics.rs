//! What the gateway counts. Counters of a label are looked up once, at the start.

use noroshi_telemetry::{Histogram, Registry};
use noroshi_types::CloseReason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use crate::connection::Protocol;
use crate::drain;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabels {
    protocol: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone)]
pub struct Metrics {
    connections: Family<ProtocolLabels, Gauge>,
    closed: Family<ReasonLabels, Counter>,
    by_protocol: Vec<Gauge>,
    by_reason: Vec<Counter>,
    pub(crate) accepted: Counter,
    pub(crate) admission_refused: Counter,
    pub(crate) handshake_failures: Counter,
    pub(crate) handed_over: Counter,
    pub(crate) log_ins: Counter,
    pub(crate) log_ins_refused: Counter,
    pub(crate) log_in_batches: Counter,
    pub(crate) backlog_reads: Counter,
    pub(crate) written_seconds: Histogram,
    pub(crate) frames_in: Counter,
    pub(crate) messages_out: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) slow_drops: Counter,
    pub(crate) mailbox_items: Gauge,
    pub(crate) mailbox_full: Counter,
    pub(crate) resyncs: Counter,
    pub(crate) panics: Counter,
    drain_active: Gauge,
    drain_remaining: Gauge,
    pub(crate) drain_moved: Counter,
    drain_rate: Gauge,
    drain_elapsed_seconds: Gauge,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let m = Self::unregistered();
        registry.register("connections", "Open connections", m.connections.clone());
        registry.register("connections_closed", "Connections that ended, by reason", m.closed.clone());
        registry.register("connections_accepted", "Sockets accepted", m.accepted.clone());
        registry.register(
            "connections_refused",
            "Sockets told to come back, by rate or for lack of room",
            m.admission_refused.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed",
            m.handshake_failures.clone(),
        );
        registry.register("connections_handed_over", "Sockets that went to the API", m.handed_over.clone());
        registry.register("log_ins", "Log-ins that succeeded", m.log_ins.clone());
        registry.register("log_ins_refused", "Log-ins that were refused", m.log_ins_refused.clone());
        registry.register(
            "log_in_batches",
            "Reads that log-ins were batched into: log_ins divided by it is the batch size",
            m.log_in_batches.clone(),
        );
        registry.register(
            "backlog_reads",
            "Further reads of backlogs and topic logs",
            m.backlog_reads.clone(),
        );
        registry.register("written_seconds", "From accepted to written", m.written_seconds.clone());
        registry.register("frames_received", "Frames received from clients", m.frames_in.clone());
        registry.register("messages_written", "Notifications written to connections", m.messages_out.clone());
        registry.register("bytes_written", "Bytes written to connections", m.bytes_out.clone());
        registry.register("slow_drops", "Notifications dropped at slow connections", m.slow_drops.clone());
        registry.register("mailbox_items", "Deliveries that wait for shards", m.mailbox_items.clone());
        registry.register("mailbox_full", "Deliveries that found a full mailbox", m.mailbox_full.clone());
        registry.register("resyncs", "Times a shard read its sessions' backlogs again", m.resyncs.clone());
        registry.register("connection_panics", "Panics that ended a connection", m.panics.clone());
        registry.register(
            "drain_active",
            "1 while devices are moved away, and after that until they are let in again",
            m.drain_active.clone(),
        );
        registry.register(
            "drain_remaining",
            "Connections that a drain still has to move; divided by drain_rate: the seconds it takes",
            m.drain_remaining.clone(),
        );
        registry.register("drain_moved", "Connections that drains told to leave", m.drain_moved.clone());
        registry.register(
            "drain_rate",
            "Connections a second that the drain under way tells to leave; 0 is no drain",
            m.drain_rate.clone(),
        );
        registry.register_with_unit(
            "drain_elapsed",
            "Since the drain under way began; 0 is no drain",
            Unit::Seconds,
            m.drain_elapsed_seconds.clone(),
        );
        m
    }

    /// For tests.
    pub fn unregistered() -> Self {
        let connections = Family::<ProtocolLabels, Gauge>::default();
        let closed = Family::<ReasonLabels, Counter>::default();
        let by_protocol = Protocol::ALL
            .iter()
            .map(|protocol| connections.get_or_create_owned(&ProtocolLabels { protocol: protocol.as_str() }))
            .collect();
        let by_reason = CloseReason::ALL
            .iter()
            .map(|reason| closed.get_or_create_owned(&ReasonLabels { reason: reason.as_str() }))
            .collect();
        Self {
            connections,
            closed,
            by_protocol,
            by_reason,
            accepted: Counter::default(),
            admission_refused: Counter::default(),
            handshake_failures: Counter::default(),
            handed_over: Counter::default(),
            log_ins: Counter::default(),
            log_ins_refused: Counter::default(),
            log_in_batches: Counter::default(),
            backlog_reads: Counter::default(),
            written_seconds: Histogram::default(),
            frames_in: Counter::default(),
            messages_out: Counter::default(),
            bytes_out: Counter::default(),
            slow_drops: Counter::default(),
            mailbox_items: Gauge::default(),
            mailbox_full: Counter::default(),
            resyncs: Counter::default(),
            panics: Counter::default(),
            drain_active: Gauge::default(),
            drain_remaining: Gauge::default(),
            drain_moved: Counter::default(),
            drain_rate: Gauge::default(),
            drain_elapsed_seconds: Gauge::default(),
        }
    }

    pub(crate) fn connections(&self, protocol: Protocol) -> &Gauge {
        // `Protocol::ALL` is in the order of the discriminants.
        &self.by_protocol[protocol as usize]
    }

    /// Sockets of devices: those that asked for a WebSocket or a stream.
    pub(crate) fn device_connections(&self) -> usize {
        let of_devices = [Protocol::WebSocket, Protocol::Sse, Protocol::Echo];
        let count: i64 = of_devices.into_iter().map(|protocol| self.connections(protocol).get()).sum();
        usize::try_from(count).unwrap_or(0)
    }

    pub(crate) fn observe_drain(&self, report: &drain::Report) {
        let progress = report.progress.as_ref();
        let remaining = if progress.is_some() { report.remaining } else { 0 };
        self.drain_active.set(i64::from(progress.is_some()));
        self.drain_remaining.set(i64::try_from(remaining).unwrap_or(i64::MAX));
        self.drain_rate.set(progress.map_or(0, |progress| i64::from(progress.order.rate_per_second)));
        let elapsed_s = progress.map_or(0, |progress| progress.elapsed.as_secs());
        self.drain_elapsed_seconds.set(i64::try_from(elapsed_s).unwrap_or(i64::MAX));
    }

    /// How many connections ended for this reason.
    pub fn closed(&self, reason: CloseReason) -> &Counter {
        // `CloseReason::ALL` is in the order of the discriminants: tested there.
        &self.by_reason[reason as usize]
    }
}
