//! Metrics of delivery across nodes.

use noroshi_telemetry::{Histogram, metrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

metrics! {
    pub(crate) struct Metrics {
        pub(crate) dispatched: Counter =
            "Requests and changes handed over to other nodes, including those that concern none",
        pub(crate) messages: Counter = "Bus messages sent to other nodes, and to this node for the order",
        pub(crate) targets: Counter = "Named users and devices in messages to other nodes",
        pub(crate) stale_entries: Counter =
            "Directory entries that named this node for users and devices without a session here",
        pub(crate) late: Counter = "Requests that were answered before the bus had the message",
        pub(crate) outages: Counter = "Times that Redis stopped answering",
        pub(crate) untold: Counter = "Changes of sessions that could not be sent to other nodes",
        pub(crate) losses: Counter = "Times that messages of other nodes may have been lost",
        pub(crate) turns_late: Counter =
            "Times that this node stopped waiting for the order of the bus and delivered its own messages",
        pub(crate) unread: Counter = "Parts of other nodes' messages that this version cannot read",
        pub(crate) unanswered: Counter = "Queries that other nodes did not answer in time",
        pub(crate) sweeps: Counter = "Times that all sessions were compared with the store",
        pub(crate) rechecked_devices: Counter = "Connected devices compared with the store",
        pub(crate) reread_devices: Counter = "Connected devices whose inbox was read again",
        pub(crate) topic_gaps: Counter = "Times that a message of a topic arrived before its predecessor",
        pub(crate) offered_again: Counter = "Messages of topics that were offered again",
        pub(crate) reconnected_devices: Counter =
            "Connected devices that were disconnected because they had changed",
        pub(crate) kept_sessions: Counter = "Sessions registered in the directory again",
        pub(crate) superseded_sessions: Counter = "Sessions ended because another node has a newer one",
        pub(crate) waiting: Gauge = "Requests and changes waiting for the bus",
        pub(crate) dispatch_seconds: Histogram = "Time from dequeue to hand-over",
    }
}
