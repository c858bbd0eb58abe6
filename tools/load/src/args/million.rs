//! Options of `bench million`: how many devices, which phases, and the processes that hold them.

use std::time::Duration;

use super::{CellArgs, check, duration};
use crate::Error;
use crate::payload::DATA_BYTES_MIN;

const DEVICES_MAX: usize = 100_000_000;
const PROCESSES_MAX: usize = 10_000;

/// What happens after the devices have connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Phase {
    /// CPU while nothing happens
    Idle,
    /// One topic message to all devices
    Topic,
    /// Messages to random single users
    Direct,
    /// kill -9 of a gateway
    Kill,
    /// Gateways drain one after the other and restart
    Drain,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Starts PostgreSQL and Redis from the programs that are installed unless their URLs are given, and gateway, API and client processes
from this executable. The numbers of gateways and clients follow from --devices and the limit of open files (`ulimit -Hn`): one
gateway more than needed, so that the others can take over the devices of a lost one. --plan prints the arithmetic and the limits of
this machine, and starts nothing. Interrupted, it stops and removes what it started.")]
pub(crate) struct Million {
    /// Devices to connect; each is registered with a topic
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) devices: usize,
    /// Print the processes, the memory and the limits, and start nothing
    #[arg(long)]
    pub(crate) plan: bool,
    /// Start although a limit of this machine seems too small
    #[arg(long)]
    pub(crate) force: bool,
    /// Phases to skip
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PHASES")]
    pub(crate) skip: Vec<Phase>,
    /// Gateway nodes [default: as many as the limit of open files requires]
    #[arg(long)]
    pub(crate) gateways: Option<usize>,
    /// Client processes [default: as many as the limit of open files requires]
    #[arg(long)]
    pub(crate) clients: Option<usize>,
    /// API nodes
    #[arg(long, default_value_t = 1)]
    pub(crate) apis: usize,
    #[command(flatten)]
    pub(crate) cell: CellArgs,
    /// Concurrent log-ins
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) handshakes: u32,
    /// Duration of the idle measurement
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub(crate) idle: Duration,
    /// Topic messages to all devices, one after the other; the first one is reported apart
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Messages to random single users, one per request
    #[arg(long, default_value_t = 50_000)]
    pub(crate) direct: usize,
    /// Requests in flight while they are sent; at least one per client process
    #[arg(long, default_value_t = 64)]
    pub(crate) in_flight: usize,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Gateways that drain and restart, one after the other
    #[arg(long, default_value_t = 2)]
    pub(crate) drains: usize,
    /// Devices that a draining gateway moves per second
    #[arg(long, default_value_t = 2_000)]
    pub(crate) drain_rate: u32,
    /// Maximum time until the devices of a lost or draining gateway are back; longer is an error
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub(crate) patience: Duration,
    /// Pause before each measurement
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) settle: Duration,
    /// Prefix of the names of devices and users
    #[arg(long, default_value = "m")]
    pub(crate) name: String,
    /// Print the result as JSON; the table goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

impl Million {
    pub(crate) fn has(&self, phase: Phase) -> bool {
        !self.skip.contains(&phase)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check((1..=DEVICES_MAX).contains(&self.devices), "--devices must be 1 to 100000000")?;
        for (count, rule) in [
            (self.gateways, "--gateways must be 1 to 10000"),
            (self.clients, "--clients must be 1 to 10000"),
            (Some(self.apis), "--apis must be 1 to 10000"),
        ] {
            check(count.is_none_or(|count| (1..=PROCESSES_MAX).contains(&count)), rule)?;
        }
        check(
            self.clients.is_none_or(|clients| clients <= self.devices),
            "--clients must be at most --devices",
        )?;
        check((DATA_BYTES_MIN..=1 << 20).contains(&self.payload), "--payload must be 36 to 1048576 bytes")?;
        check((1..=1_024).contains(&self.in_flight), "--in-flight must be 1 to 1024")?;
        check(self.direct > 0, "--direct must be at least 1; --skip direct skips it")?;
        check((1..=100).contains(&self.drains), "--drains must be 1 to 100; --skip drain skips it")?;
        check(self.drain_rate > 0, "--drain-rate must be at least 1 device per second")?;
        check(
            self.patience <= Duration::from_secs(30 * 60) && !self.patience.is_zero(),
            "--patience must be 1s to 30m",
        )?;
        check(!self.idle.is_zero(), "--idle must be at least 1s; --skip idle skips it")?;
        super::check_name(&self.name)?;
        self.cell.check()
    }
}
