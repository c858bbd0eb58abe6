//! Metrics of delivery across nodes.

use noroshi_telemetry::{Histogram, Registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    pub(crate) dispatched: Counter,
    pub(crate) messages: Counter,
    pub(crate) targets: Counter,
    pub(crate) stale: Counter,
    pub(crate) late: Counter,
    pub(crate) outages: Counter,
    pub(crate) untold: Counter,
    pub(crate) lost: Counter,
    pub(crate) markers_late: Counter,
    pub(crate) unread: Counter,
    pub(crate) unanswered: Counter,
    pub(crate) sweeps: Counter,
    pub(crate) rechecked: Counter,
    pub(crate) reread: Counter,
    pub(crate) offered: Counter,
    pub(crate) gaps: Counter,
    pub(crate) reconnected: Counter,
    pub(crate) kept: Counter,
    pub(crate) superseded: Counter,
    pub(crate) waiting: Gauge,
    pub(crate) dispatch_seconds: Histogram,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("delivery_cluster");
        let counters = [
            (
                "dispatched",
                "Requests and changes handed over to other nodes, including those that concern none",
                &self.dispatched,
            ),
            ("messages", "Bus messages sent to other nodes, and to this node for the order", &self.messages),
            ("targets", "Named users and devices in messages to other nodes", &self.targets),
            (
                "stale_entries",
                "Directory entries that named this node for users and devices without a session here",
                &self.stale,
            ),
            ("late", "Requests that were answered before the bus had the message", &self.late),
            ("outages", "Times that Redis stopped answering", &self.outages),
            ("untold", "Changes of sessions that could not be sent to other nodes", &self.untold),
            ("losses", "Times that messages of other nodes may have been lost", &self.lost),
            (
                "turns_late",
                "Times that this node delivered its own messages without waiting longer for their order",
                &self.markers_late,
            ),
            ("unread", "Parts of other nodes' messages that this version cannot read", &self.unread),
            ("unanswered", "Questions that other nodes did not answer in time", &self.unanswered),
            ("sweeps", "Times that all sessions were compared with the store", &self.sweeps),
            ("rechecked_devices", "Connected devices compared with the store", &self.rechecked),
            ("reread_devices", "Connected devices whose inbox was read again", &self.reread),
            ("topic_gaps", "Times that a message of a topic arrived before its predecessor", &self.gaps),
            ("offered_again", "Messages of topics that were offered again", &self.offered),
            (
                "reconnected_devices",
                "Connected devices that were disconnected because they had changed",
                &self.reconnected,
            ),
            ("kept_sessions", "Sessions registered in the directory again", &self.kept),
            ("superseded_sessions", "Sessions ended because another node has a newer one", &self.superseded),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        registry.register("waiting", "Requests and changes waiting for the bus", self.waiting.clone());
        registry.register(
            "dispatch_seconds",
            "Time from dequeue to hand-over",
            self.dispatch_seconds.clone(),
        );
    }
}
