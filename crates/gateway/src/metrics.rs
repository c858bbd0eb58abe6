//! Metrics of the gateway. Counters of a label are looked up once, at the start.
//!
//! May use `wire`. Every layer above counts through [`Metrics`]; a shard collects a turn's counts in a
//! `Tally`.

use std::time::Duration;

use noroshi_telemetry::{Histogram, Registry};
use noroshi_types::CloseReason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use crate::wire::deflate::DeflateTotals;
use crate::wire::{Framing, Protocol};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabels {
    protocol: &'static str,
    transport: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabels {
    protocol: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    protocol: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone)]
pub struct Metrics {
    connections: Family<ConnectionLabels, Gauge>,
    closed: Family<ReasonLabels, Counter>,
    messages: Family<ProtocolLabels, Counter>,
    /// For each protocol over each transport.
    by_protocol: Vec<[Gauge; Framing::ALL.len()]>,
    /// For each protocol and each reason.
    by_reason: Vec<Vec<Counter>>,
    messages_out: Vec<Counter>,
    pub(crate) accepted: Counter,
    pub(crate) admission_refused: Counter,
    pub(crate) handshake_failures: Counter,
    pub(crate) handed_over: Counter,
    pub(crate) taken_back: Counter,
    pub(crate) bridged: Counter,
    pub(crate) evicted: Counter,
    pub(crate) refused_client: Counter,
    pub(crate) body_timeouts: Counter,
    pub(crate) log_ins: Counter,
    pub(crate) log_ins_refused: Counter,
    pub(crate) log_in_batches: Counter,
    pub(crate) backlog_reads: Counter,
    pub(crate) written_seconds: Histogram,
    pub(crate) frames_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) deflate_plain_bytes: Counter,
    pub(crate) deflate_sent_bytes: Counter,
    pub(crate) slow_drops: Counter,
    pub(crate) mailbox_items: Gauge,
    pub(crate) mailbox_full: Counter,
    pub(crate) mailbox_gone: Counter,
    pub(crate) resyncs: Counter,
    pub(crate) panics: Counter,
    parked_bytes: Family<ProtocolLabels, Gauge>,
    parked_evicted: Family<ProtocolLabels, Counter>,
    pub(crate) mqtt_suspended: Gauge,
    pub(crate) mqtt_wills_withheld: Counter,
    pub(crate) retained_topics_scanned: Counter,
    pub(crate) xmpp_suspended: Gauge,
    pub(crate) xmpp_resumed: Counter,
    drain_active: Gauge,
    drain_remaining: Gauge,
    pub(crate) drain_moved: Counter,
    drain_rate: Gauge,
    drain_elapsed_seconds: Gauge,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let m = Self::unregistered();
        registry.register(
            "connections",
            "Open connections, by protocol and transport",
            m.connections.clone(),
        );
        registry.register(
            "connections_closed",
            "Connections that ended, by protocol and reason",
            m.closed.clone(),
        );
        registry.register("connections_accepted", "Sockets accepted", m.accepted.clone());
        registry.register(
            "connections_refused",
            "Sockets refused for now, by rate or for lack of capacity",
            m.admission_refused.clone(),
        );
        registry.register(
            "tls_handshake_failures",
            "TLS handshakes that failed",
            m.handshake_failures.clone(),
        );
        registry.register("connections_handed_over", "Sockets handed over to the API", m.handed_over.clone());
        registry.register(
            "connections_taken_back",
            "Sockets taken back from the API, since their next request was the gateway's",
            m.taken_back.clone(),
        );
        registry.register(
            "connections_bridged",
            "HTTP/2 streams that the API passed to the gateway",
            m.bridged.clone(),
        );
        registry.register(
            "connections_evicted",
            "Connections without a credential that were evicted",
            m.evicted.clone(),
        );
        registry.register(
            "connections_refused_client",
            "Connections refused because their client has reached its limit",
            m.refused_client.clone(),
        );
        registry.register(
            "polling_body_timeouts",
            "POSTs of Engine.IO whose bodies did not arrive in time",
            m.body_timeouts.clone(),
        );
        registry.register("log_ins", "Successful log-ins", m.log_ins.clone());
        registry.register("log_ins_refused", "Refused log-ins", m.log_ins_refused.clone());
        registry.register(
            "log_in_batches",
            "Batched reads for log-ins: log_ins divided by it is the batch size",
            m.log_in_batches.clone(),
        );
        registry.register(
            "backlog_reads",
            "Reads of backlogs and topic logs after the log-in",
            m.backlog_reads.clone(),
        );
        registry.register(
            "written_seconds",
            "Time from accepting a notification to writing it",
            m.written_seconds.clone(),
        );
        registry.register("frames_received", "Frames received from clients", m.frames_in.clone());
        registry.register("messages_written", "Notifications written to connections", m.messages.clone());
        registry.register("bytes_written", "Bytes written to connections", m.bytes_out.clone());
        registry.register(
            "websocket_deflate_plain_bytes",
            "Bytes of framed notifications to connections with permessage-deflate, before compression",
            m.deflate_plain_bytes.clone(),
        );
        registry.register(
            "websocket_deflate_sent_bytes",
            "The same after compression; some are not compressed",
            m.deflate_sent_bytes.clone(),
        );
        registry.register("slow_drops", "Notifications dropped at slow connections", m.slow_drops.clone());
        registry.register(
            "mailbox_items",
            "Deliveries that wait in mailboxes of shards",
            m.mailbox_items.clone(),
        );
        registry.register("mailbox_full", "Deliveries that found a full mailbox", m.mailbox_full.clone());
        let help = "Deliveries for a shard that panicked or stalled; the node is about to exit";
        registry.register("mailbox_gone", help, m.mailbox_gone.clone());
        registry.register(
            "resyncs",
            "Times a shard read the backlogs of its sessions again",
            m.resyncs.clone(),
        );
        registry.register("connection_panics", "Panics that ended a connection", m.panics.clone());
        registry.register(
            "sessions_suspended_bytes",
            "Memory of parked sessions, by protocol; gateway.parked_sessions is the limit of each",
            m.parked_bytes.clone(),
        );
        registry.register(
            "sessions_suspended_evicted",
            "Parked sessions that were evicted, by protocol",
            m.parked_evicted.clone(),
        );
        registry.register(
            "mqtt_sessions_suspended",
            "Parked sessions of MQTT on this node",
            m.mqtt_suspended.clone(),
        );
        registry.register(
            "mqtt_wills_withheld",
            "Wills that were not published: the device was revoked, deleted or given to another user, it is connected again, or it may not publish there any more",
            m.mqtt_wills_withheld.clone(),
        );
        registry.register(
            "mqtt_retained_topics_scanned",
            "Topics scanned for retained messages, for new filters with wildcards",
            m.retained_topics_scanned.clone(),
        );
        registry.register(
            "xmpp_sessions_suspended",
            "Sessions of XMPP whose connections broke and that may be resumed",
            m.xmpp_suspended.clone(),
        );
        registry.register(
            "xmpp_sessions_resumed",
            "Sessions of XMPP that were resumed",
            m.xmpp_resumed.clone(),
        );
        registry.register(
            "drain_active",
            "1 while devices are moved away, and then until they are admitted again",
            m.drain_active.clone(),
        );
        registry.register(
            "drain_remaining",
            "Connections that a drain still has to close; divided by drain_rate: the remaining seconds",
            m.drain_remaining.clone(),
        );
        registry.register("drain_moved", "Connections that drains closed", m.drain_moved.clone());
        registry.register(
            "drain_rate",
            "Connections a second that the current drain closes; 0 without a drain",
            m.drain_rate.clone(),
        );
        registry.register_with_unit(
            "drain_elapsed",
            "Since the current drain began; 0 is no drain",
            Unit::Seconds,
            m.drain_elapsed_seconds.clone(),
        );
        m
    }

    /// For tests.
    pub fn unregistered() -> Self {
        let connections = Family::<ConnectionLabels, Gauge>::default();
        let closed = Family::<ReasonLabels, Counter>::default();
        let messages = Family::<ProtocolLabels, Counter>::default();
        let gauge = |protocol: Protocol, framing: Framing| {
            let labels = ConnectionLabels { protocol: protocol.as_str(), transport: framing.as_str() };
            // Impossible combinations are not shown.
            match is_possible(protocol, framing) {
                true => connections.get_or_create_owned(&labels),
                false => Gauge::default(),
            }
        };
        let reason = |protocol: Protocol, reason: CloseReason| {
            closed.get_or_create_owned(&ReasonLabels { protocol: protocol.as_str(), reason: reason.as_str() })
        };
        let by_protocol = Protocol::ALL.map(|protocol| Framing::ALL.map(|framing| gauge(protocol, framing)));
        let by_reason = Protocol::ALL.map(|protocol| CloseReason::ALL.map(|it| reason(protocol, it)).into());
        let messages_out = Protocol::ALL
            .map(|protocol| messages.get_or_create_owned(&ProtocolLabels { protocol: protocol.as_str() }));
        let (parked_bytes, parked_evicted) = (Family::default(), Family::default());
        // Shown from the start.
        for protocol in [Protocol::Mqtt, Protocol::Xmpp] {
            let labels = ProtocolLabels { protocol: protocol.as_str() };
            let _: Gauge = parked_bytes.get_or_create_owned(&labels);
            let _: Counter = parked_evicted.get_or_create_owned(&labels);
        }
        Self {
            connections,
            closed,
            messages,
            by_protocol: by_protocol.into(),
            by_reason: by_reason.into(),
            messages_out: messages_out.into(),
            accepted: Counter::default(),
            admission_refused: Counter::default(),
            handshake_failures: Counter::default(),
            handed_over: Counter::default(),
            taken_back: Counter::default(),
            bridged: Counter::default(),
            evicted: Counter::default(),
            refused_client: Counter::default(),
            body_timeouts: Counter::default(),
            log_ins: Counter::default(),
            log_ins_refused: Counter::default(),
            log_in_batches: Counter::default(),
            backlog_reads: Counter::default(),
            written_seconds: Histogram::default(),
            frames_in: Counter::default(),
            bytes_out: Counter::default(),
            deflate_plain_bytes: Counter::default(),
            deflate_sent_bytes: Counter::default(),
            slow_drops: Counter::default(),
            mailbox_items: Gauge::default(),
            mailbox_full: Counter::default(),
            mailbox_gone: Counter::default(),
            resyncs: Counter::default(),
            panics: Counter::default(),
            parked_bytes,
            parked_evicted,
            mqtt_suspended: Gauge::default(),
            mqtt_wills_withheld: Counter::default(),
            retained_topics_scanned: Counter::default(),
            xmpp_suspended: Gauge::default(),
            xmpp_resumed: Counter::default(),
            drain_active: Gauge::default(),
            drain_remaining: Gauge::default(),
            drain_moved: Counter::default(),
            drain_rate: Gauge::default(),
            drain_elapsed_seconds: Gauge::default(),
        }
    }

    pub(crate) fn connections(&self, protocol: Protocol, framing: Framing) -> &Gauge {
        // Protocols are in the order of their discriminants.
        &self.by_protocol[protocol as usize][framing.index()]
    }

    /// Sockets of devices whose protocol is known.
    pub(crate) fn device_connections(&self) -> usize {
        let of_devices = Protocol::ALL.into_iter().filter(|protocol| *protocol != Protocol::Http);
        let gauges = of_devices.flat_map(|protocol| &self.by_protocol[protocol as usize]);
        usize::try_from(gauges.map(|gauge| gauge.get()).sum::<i64>()).unwrap_or(0)
    }

    pub(crate) fn count_messages(&self, protocol: Protocol, count: u64) {
        self.messages_out[protocol as usize].inc_by(count);
    }

    /// Messages written to devices since the start.
    pub fn messages_out(&self) -> u64 {
        self.messages_out.iter().map(|counter| counter.get()).sum()
    }

    /// `progress`: while a drain is in progress, its rate a second and the time since it began.
    pub(crate) fn observe_drain(&self, remaining: usize, progress: Option<(u32, Duration)>) {
        let remaining = if progress.is_some() { remaining } else { 0 };
        self.drain_active.set(i64::from(progress.is_some()));
        self.drain_remaining.set(i64::try_from(remaining).unwrap_or(i64::MAX));
        self.drain_rate.set(progress.map_or(0, |(per_second, _)| i64::from(per_second)));
        let elapsed_s = progress.map_or(0, |(_, elapsed)| elapsed.as_secs());
        self.drain_elapsed_seconds.set(i64::try_from(elapsed_s).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_closed(&self, protocol: Protocol, reason: CloseReason) {
        // `CloseReason::ALL` is in the order of the discriminants: tested there.
        self.by_reason[protocol as usize][reason as usize].inc();
    }

    pub(crate) fn observe_parked(&self, protocol: Protocol, bytes: usize) {
        let labels = ProtocolLabels { protocol: protocol.as_str() };
        self.parked_bytes.get_or_create(&labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Parked sessions were evicted.
    pub(crate) fn count_evicted(&self, protocol: Protocol, count: usize) {
        if count > 0 {
            let labels = ProtocolLabels { protocol: protocol.as_str() };
            self.parked_evicted.get_or_create(&labels).inc_by(count as u64);
        }
    }

    /// How many connections ended for this reason.
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.by_reason.iter().map(|by_reason| by_reason[reason as usize].get()).sum()
    }
}

fn is_possible(protocol: Protocol, framing: Framing) -> bool {
    match protocol {
        // A WebSocket that upgrades a polling session does not count as a device connection until the upgrade
        // completes.
        Protocol::Http => !matches!(framing, Framing::Events | Framing::GzipEvents),
        Protocol::Native => {
            framing.is_websocket() || matches!(framing, Framing::Events | Framing::GzipEvents)
        }
        Protocol::Mqtt | Protocol::Xmpp => framing.is_websocket() || framing == Framing::Stream,
        Protocol::SocketIo | Protocol::Echo => framing.is_websocket() || framing == Framing::Polling,
        #[cfg(test)]
        Protocol::Line => framing == Framing::Stream,
    }
}

/// Counts of one turn, added to the metrics at its end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) frames_in: u64,
    pub(crate) messages_out: [u64; Protocol::ALL.len()],
    pub(crate) bytes_out: u64,
    pub(crate) deflate: DeflateTotals,
    pub(crate) slow_drops: u64,
}

impl Tally {
    /// Adds the counts to the metrics and resets them.
    pub(crate) fn settle(&mut self, metrics: &Metrics) {
        let tally = std::mem::take(self);
        for (counter, count) in [
            (&metrics.frames_in, tally.frames_in),
            (&metrics.bytes_out, tally.bytes_out),
            (&metrics.deflate_plain_bytes, tally.deflate.plain_bytes),
            (&metrics.deflate_sent_bytes, tally.deflate.sent_bytes),
            (&metrics.slow_drops, tally.slow_drops),
        ] {
            if count > 0 {
                counter.inc_by(count);
            }
        }
        for (protocol, count) in Protocol::ALL.into_iter().zip(tally.messages_out) {
            if count > 0 {
                metrics.count_messages(protocol, count);
            }
        }
    }
}
