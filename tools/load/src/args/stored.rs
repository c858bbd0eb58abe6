//! Options of `bench stored`: what is stored, and in which engine.

use clap::ValueEnum;

use super::{Common, Pacing, check, check_counts};
use crate::Error;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// Messages to users: rows in inboxes
    Inbox,
    /// Messages to topics: rows in logs
    Topic,
    /// Acknowledgements over HTTP (POST /v1/me/inbox/ack)
    Ack,
    /// Acknowledgements over WebSockets
    AckSocket,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Stored {
    /// What to measure
    #[arg(long, value_enum, default_value = "inbox")]
    pub(crate) work: Work,
    /// Devices, each with its own user: offline, or connected for ack-socket
    #[arg(long, default_value_t = 10_000)]
    pub(crate) devices: usize,
    /// Users per request
    #[arg(long, default_value_t = 100)]
    pub(crate) targets: usize,
    /// Topics, to which the devices are subscribed durably in turn
    #[arg(long, default_value_t = 100)]
    pub(crate) topics: usize,
    /// Messages that each device acknowledges in one measurement, with one request or frame
    #[arg(long, default_value_t = 10)]
    pub(crate) messages: usize,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Maximum requests in flight
    #[arg(long, default_value_t = 64)]
    pub(crate) in_flight: usize,
    /// Alternately measure the engine alone, with the same rows in the same group size on the same disk, and show
    /// ratios
    #[arg(long)]
    pub(crate) floor: bool,
    /// Store in PostgreSQL: in this database, which must be empty, or in a PostgreSQL that is started here
    #[arg(
        long,
        value_name = "URL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with = "server"
    )]
    pub(crate) postgres: Option<String>,
    /// Setting of the started PostgreSQL
    #[arg(long, value_name = "KEY=VALUE", requires = "postgres")]
    pub(crate) postgres_set: Vec<String>,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Ids in one acknowledgement: the limit of the API and of the native protocol.
const IDS_MAX: usize = 1_000;

impl Stored {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_counts(self.devices, self.targets, self.payload, self.in_flight)?;
        check(self.targets <= self.devices, "a request names more users than devices: increase --devices")?;
        check((1..=1_000_000).contains(&self.topics), "--topics must be 1 to 1000000")?;
        check((1..=IDS_MAX).contains(&self.messages), "--messages must be 1 to 1000")?;
        check(
            self.work == Work::Inbox || self.pacing.rate.is_none(),
            "--rate is only for --work inbox: the others are unlimited",
        )?;
        check(
            !self.floor || self.common.server.is_none(),
            "--floor uses the disk of a server that is started here: omit --server",
        )?;
        self.pacing.check()
    }
}
