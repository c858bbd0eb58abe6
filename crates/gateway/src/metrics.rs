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

/// Metrics: visibility, field, type, name and help.
macro_rules! metrics {
    ($($visible:vis $field:ident: $type:ty = $name:literal, $help:literal;)*) => {
        #[derive(Debug, Clone)]
        pub struct Metrics {
            /// For each protocol over each transport.
            by_protocol: Vec<[Gauge; Framing::ALL.len()]>,
            /// For each protocol and each reason.
            by_reason: Vec<Vec<Counter>>,
            messages_out: Vec<Counter>,
            drain_elapsed_seconds: Gauge,
            $($visible $field: $type,)*
        }

        impl Metrics {
            /// Without any label.
            fn unlabelled() -> Self {
                Self {
                    by_protocol: Vec::new(),
                    by_reason: Vec::new(),
                    messages_out: Vec::new(),
                    drain_elapsed_seconds: Gauge::default(),
                    $($field: <$type>::default(),)*
                }
            }

            fn register(&self, registry: &mut Registry) {
                $(registry.register($name, $help, self.$field.clone());)*
                let help = "Seconds since the current drain began; 0 without a drain";
                let elapsed = self.drain_elapsed_seconds.clone();
                registry.register_with_unit("drain_elapsed", help, Unit::Seconds, elapsed);
            }
        }
    };
}

metrics! {
    connections: Family<ConnectionLabels, Gauge> =
        "connections", "Open connections, by protocol and transport";
    closed: Family<ReasonLabels, Counter> =
        "connections_closed", "Connections that ended, by protocol and reason";
    pub(crate) accepted: Counter = "connections_accepted", "Sockets accepted";
    pub(crate) admission_refused: Counter =
        "connections_refused", "Sockets refused for now, by rate or for lack of capacity";
    pub(crate) handshake_failures: Counter = "tls_handshake_failures", "TLS handshakes that failed";
    pub(crate) handed_over: Counter = "connections_handed_over", "Sockets handed over to the API";
    pub(crate) taken_back: Counter =
        "connections_taken_back", "Sockets that the API returned because their next request was for the gateway";
    pub(crate) bridged: Counter = "connections_bridged", "HTTP/2 streams that the API passed to the gateway";
    pub(crate) evicted: Counter = "connections_evicted", "Connections without a credential that were evicted";
    pub(crate) refused_client: Counter =
        "connections_refused_client", "Connections refused because their client has reached its limit";
    pub(crate) body_timeouts: Counter =
        "polling_body_timeouts", "POSTs of Engine.IO whose bodies did not arrive in time";
    pub(crate) log_ins: Counter = "log_ins", "Successful log-ins";
    pub(crate) log_ins_refused: Counter = "log_ins_refused", "Refused log-ins";
    pub(crate) log_in_batches: Counter =
        "log_in_batches", "Batched reads for log-ins: log_ins divided by it is the batch size";
    pub(crate) backlog_reads: Counter = "backlog_reads", "Reads of backlogs and topic logs after the log-in";
    pub(crate) written_seconds: Histogram =
        "written_seconds", "Time from accepting a notification to writing it";
    pub(crate) frames_in: Counter = "frames_received", "Frames received from clients";
    messages: Family<ProtocolLabels, Counter> = "messages_written", "Notifications written to connections";
    pub(crate) bytes_out: Counter = "bytes_written", "Bytes written to connections";
    pub(crate) deflate_plain_bytes: Counter =
        "websocket_deflate_plain_bytes", "Bytes of framed notifications to connections with permessage-deflate, before compression";
    pub(crate) deflate_sent_bytes: Counter =
        "websocket_deflate_sent_bytes", "The same after compression; some are not compressed";
    pub(crate) slow_drops: Counter = "slow_drops", "Notifications dropped at slow connections";
    pub(crate) late_drops: Counter =
        "late_drops", "Notifications for connected devices only, dropped because they waited longer than publish.live_age_max";
    pub(crate) mailbox_items: Gauge = "mailbox_items", "Deliveries that wait in mailboxes of shards";
    pub(crate) item_reports_undelivered: Counter =
        "item_reports_undelivered", "Reports of items that found a full mailbox, or a connection that does not keep up";
    pub(crate) mailbox_full: Counter = "mailbox_full", "Deliveries that found a full mailbox";
    pub(crate) mailbox_gone: Counter =
        "mailbox_gone", "Deliveries for a shard that panicked or stalled; the node is about to exit";
    pub(crate) resyncs: Counter = "resyncs", "Times a shard read the backlogs of its sessions again";
    pub(crate) panics: Counter = "connection_panics", "Panics that ended a connection";
    parked_bytes: Family<ProtocolLabels, Gauge> =
        "sessions_suspended_bytes", "Memory of suspended sessions, by protocol; gateway.parked_sessions is the limit of each";
    parked_evicted: Family<ProtocolLabels, Counter> =
        "sessions_suspended_evicted", "Suspended sessions that were evicted, by protocol";
    mqtt_suspended: Gauge = "mqtt_sessions_suspended", "Suspended sessions of MQTT on this node";
    pub(crate) mqtt_wills_withheld: Counter =
        "mqtt_wills_withheld", "Wills not published: the device was revoked, deleted, reassigned or reconnected, or lost the permission for the topic";
    pub(crate) retained_topics_scanned: Counter =
        "mqtt_retained_topics_scanned", "Topics scanned for retained messages, for new filters with wildcards";
    xmpp_suspended: Gauge =
        "xmpp_sessions_suspended", "Suspended XMPP sessions on this node";
    pub(crate) xmpp_resumed: Counter = "xmpp_sessions_resumed", "XMPP sessions resumed";
    drain_active: Gauge =
        "drain_active", "1 while devices are moved away, and then until they are admitted again";
    drain_remaining: Gauge =
        "drain_remaining", "Connections that a drain still has to close; divided by drain_rate: the remaining seconds";
    pub(crate) drain_moved: Counter = "drain_moved", "Connections that drains closed";
    drain_rate: Gauge = "drain_rate", "Connections per second that the current drain closes; 0 without a drain";
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::unregistered();
        metrics.register(registry);
        metrics
    }

    /// For tests.
    pub fn unregistered() -> Self {
        let mut metrics = Self::unlabelled();
        let Self { connections, closed, messages, .. } = &metrics;
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
        (metrics.by_protocol, metrics.by_reason) = (by_protocol.into(), by_reason.into());
        metrics.messages_out = messages_out.into();
        // Shown from the start.
        for protocol in [Protocol::Mqtt, Protocol::Xmpp] {
            metrics.observe_parked(protocol, 0, 0);
            metrics.parked_evicted.get_or_create(&ProtocolLabels { protocol: protocol.as_str() }).inc_by(0);
        }
        metrics
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

    /// How many sessions of MQTT or XMPP are parked, and their bytes.
    pub(crate) fn observe_parked(&self, protocol: Protocol, sessions: usize, bytes: usize) {
        let labels = ProtocolLabels { protocol: protocol.as_str() };
        let suspended = if protocol == Protocol::Mqtt { &self.mqtt_suspended } else { &self.xmpp_suspended };
        suspended.set(i64::try_from(sessions).unwrap_or(i64::MAX));
        self.parked_bytes.get_or_create(&labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Suspended sessions were evicted.
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
        for (counter, count) in metrics.messages_out.iter().zip(tally.messages_out) {
            if count > 0 {
                counter.inc_by(count);
            }
        }
    }
}
