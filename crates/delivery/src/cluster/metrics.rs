//! What delivery over nodes counts.

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
    pub(crate) turns_late: Counter,
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
                "Requests and changes handed over to other nodes or found to be for none",
                &self.dispatched,
            ),
            ("messages", "Messages sent to other nodes, and to this one for their order", &self.messages),
            ("targets", "Named users and devices in messages to other nodes", &self.targets),
            (
                "stale_entries",
                "Users and devices that the directory said were here and were not",
                &self.stale,
            ),
            ("late", "Requests that were answered before the bus had their message", &self.late),
            ("outages", "Times the engine between nodes stopped to answer", &self.outages),
            ("untold", "Changes of sessions that could not be told to other nodes", &self.untold),
            ("losses", "Times messages of other nodes may have been lost", &self.lost),
            (
                "turns_late",
                "Times the own share of messages did not wait for its turn any longer",
                &self.turns_late,
            ),
            ("unread", "Parts of other nodes' messages that this version does not read", &self.unread),
            ("unanswered", "Questions that another node did not answer in time", &self.unanswered),
            ("sweeps", "Times all sessions were compared with what was kept", &self.sweeps),
            ("rechecked_devices", "Connected devices compared with what was kept", &self.rechecked),
            ("reread_devices", "Connected devices whose inbox was read again", &self.reread),
            ("topic_gaps", "Times a topic's message came by and the one before it had not", &self.gaps),
            ("offered_again", "Messages of topics that were offered once more", &self.offered),
            (
                "reconnected_devices",
                "Connected devices told to come back since they had changed",
                &self.reconnected,
            ),
            ("kept_sessions", "Sessions put into the directory again, or found there", &self.kept),
            ("superseded_sessions", "Sessions ended since another node has a newer one", &self.superseded),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "waiting",
            "Requests and changes that wait to be handed over",
            self.waiting.clone(),
        );
        registry.register("dispatch_seconds", "From taken to handed over", self.dispatch_seconds.clone());
    }
}
