//! The metrics of live tails.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

noroshi_telemetry::metrics! {
    pub struct Metrics {
        pub tails: Gauge = "Open live tails of this node's viewers",
        pub tails_refused: Counter = "Live tails refused because too many are open",
        pub tails_of_nodes: Gauge = "Live tails of other nodes' viewers that this node reports to",
        pub tail_events: Counter = "Events shown in live tails",
        pub tail_events_omitted: Counter = "Events that live tails left out and stated, because there were too many",
        pub tail_lookups: Counter = "Reads of the store for live tails",
        pub tail_lookup_failures: Counter = "Reads of the store for live tails that failed or took too long",
    }
}
