//! The options of `noroshi bench events`.

use std::time::Duration;

use super::{Common, duration};

#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    /// The parts to measure; all by default
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Events to files, for each count: time until all are written
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 500_000, 5_000_000])]
    pub(crate) counts: Vec<u64>,
    /// Threads that emit concurrently: for the cost of emitting, a backlog, and failing records
    #[arg(long, default_value_t = 4)]
    pub(crate) threads: usize,
    /// Events per thread
    #[arg(long, default_value_t = 500_000)]
    pub(crate) each: u64,
    /// Events per second before, during and after the outage
    #[arg(long, default_value_t = 20_000)]
    pub(crate) rate: u64,
    /// Duration of the Firehose outage
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub(crate) outage: Duration,
    /// Events that wait before Firehose accepts them
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) backlog: u64,
    /// Calls of Firehose in flight; the log's default if unset
    #[arg(long)]
    pub(crate) calls: Option<usize>,
    /// Requests per connection, alternately with the log on and off; must take longer than the batching delay
    #[arg(long, default_value_t = 20_000)]
    pub(crate) requests: u64,
    /// Response delay of the fake Firehose
    #[arg(long, default_value = "50ms", value_parser = duration)]
    pub(crate) answer: Duration,
    /// Run one part in its own process, with figures on standard output
    #[arg(long, hide = true)]
    pub(crate) part: Option<Part>,
    /// Run only the fake Firehose, controlled through standard input
    #[arg(long, hide = true)]
    pub(crate) fake: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Events to files
    File,
    /// The cost of emitting for the calling thread
    Emit,
    /// Request latency with the log on and off, with a slow Firehose
    Latency,
    /// An outage of Firehose: lost and duplicate events, memory
    Outage,
    /// A backlog: how fast it is sent to Firehose
    Backlog,
    /// Some records fail: lost, duplicate and late events
    Partial,
}

impl Part {
    /// Whether it requires a build with the feature `firehose`.
    pub(crate) fn needs_firehose(self) -> bool {
        !matches!(self, Part::File | Part::Emit)
    }
}
