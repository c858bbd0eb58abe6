//! The metrics of the time series itself.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

noroshi_telemetry::metrics! {
    pub struct Metrics {
        pub series_rows_written: Counter = "Rows of the time series that this node wrote",
        pub series_failures: Counter = "Rows of the time series that could not be written, summed up or removed",
        pub series_viewers: Gauge = "Open streams of live figures",
        pub series_viewers_refused: Counter = "Streams of live figures refused because too many are open",
        pub series_live_samples: Counter = "Samples taken for live figures, of this node's and of other nodes' viewers",
    }
}
