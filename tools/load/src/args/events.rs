//! The options of `noroshi bench events`.

use std::time::Duration;

use super::{Common, duration};

#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    /// What to measure; all where none is named
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Events to files, for each count: time until all are written
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 500_000, 5_000_000])]
    pub(crate) counts: Vec<u64>,
    /// Threads that tell at once, where the cost of telling is measured
    #[arg(long, default_value_t = 4)]
    pub(crate) threads: usize,
    /// Events that each of them tells
    #[arg(long, default_value_t = 500_000)]
    pub(crate) each: u64,
    /// Events a second before, during and after the outage
    #[arg(long, default_value_t = 20_000)]
    pub(crate) rate: u64,
    /// How long Firehose is away
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub(crate) outage: Duration,
    /// Requests of one connection with the log on, and as many with it off, by turns; for longer than the log gathers
    #[arg(long, default_value_t = 20_000)]
    pub(crate) requests: u64,
    /// How late the fake of Firehose answers
    #[arg(long, default_value = "50ms", value_parser = duration)]
    pub(crate) answer: Duration,
    /// One part in a process of its own, whose figures are on standard output
    #[arg(long, hide = true)]
    pub(crate) part: Option<Part>,
    /// Nothing but the fake of Firehose, for a program that tells it by standard input what to do
    #[arg(long, hide = true)]
    pub(crate) fake: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Events to files
    File,
    /// What telling costs the thread that tells
    Emit,
    /// Request latency with the log on and off, Firehose answering late
    Latency,
    /// An outage of Firehose: lost, doubled, memory
    Outage,
}

impl Part {
    pub(crate) const ALL: [Part; 4] = [Part::File, Part::Emit, Part::Latency, Part::Outage];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::File => "file",
            Part::Emit => "emit",
            Part::Latency => "latency",
            Part::Outage => "outage",
        }
    }

    /// Whether it needs a build with the feature `firehose`.
    pub(crate) fn needs_firehose(self) -> bool {
        matches!(self, Part::Latency | Part::Outage)
    }
}
