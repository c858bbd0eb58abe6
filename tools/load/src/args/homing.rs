//! Options of `bench homing`: several nodes with their engines, and the operations to measure.

use std::time::Duration;

use super::{CellArgs, Pacing, check, check_counts, duration};
use crate::Error;

const NODES_MAX: usize = 1_000;
/// The longest time that a worker waits.
const PATIENCE_MAX: Duration = Duration::from_secs(30 * 60);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Starts PostgreSQL and Redis from the programs that are installed unless their URLs are given, and nodes from this executable, all on
this machine. Devices are registered before they log in. CPU is measured of each kind of process; commands of Redis by what it
says itself (INFO), so --redis has to be a single server for that.")]
pub(crate) struct Homing {
    /// Gateway nodes
    #[arg(long, default_value_t = 3)]
    pub(crate) gateways: usize,
    /// Devices to connect per gateway
    #[arg(long, default_value_t = 300)]
    pub(crate) devices: usize,
    /// Spare gateway nodes without devices until a gateway fails
    #[arg(long, value_name = "GATEWAYS", default_value_t = 0)]
    pub(crate) spare: usize,
    /// API nodes
    #[arg(long, default_value_t = 1)]
    pub(crate) apis: usize,
    #[command(flatten)]
    pub(crate) cell: CellArgs,
    /// Users per request
    #[arg(long, default_value_t = 300)]
    pub(crate) targets: usize,
    /// Share of these users that is connected, 0 to 1
    #[arg(long, default_value_t = 0.5)]
    pub(crate) connected_share: f64,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Maximum requests in flight
    #[arg(long, default_value_t = 64)]
    pub(crate) in_flight: usize,
    /// Topic messages to all devices, one after the other
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: u32,
    /// Skip the failure of a gateway
    #[arg(long)]
    pub(crate) no_kill: bool,
    /// `stored` messages per second to single users during the failure, each checked afterwards
    #[arg(long, default_value_t = 50.0)]
    pub(crate) sample_rate: f64,
    /// Delay before devices of the failed gateway reconnect
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub(crate) pause: Duration,
    /// Maximum concurrently reconnecting devices [default: all]
    #[arg(long, value_name = "DEVICES")]
    pub(crate) at_once: Option<usize>,
    /// Maximum recovery time after the failure; longer is an error
    #[arg(long, default_value = "3m", value_parser = duration)]
    pub(crate) patience: Duration,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
    /// Prefix of the names of devices and users
    #[arg(long, default_value = "home")]
    pub(crate) name: String,
    /// Pause before each measurement
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub(crate) settle: Duration,
    /// Client processes [default: one per 18000 devices]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) processes: Option<u16>,
    /// Concurrent log-ins
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) handshakes: u32,
    /// Print the result as JSON; the table goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

impl Homing {
    /// Devices of all gateways.
    pub(crate) fn connections(&self) -> usize {
        self.gateways * self.devices
    }

    /// Gateways that hold all devices after one has failed.
    pub(crate) fn gateways_left(&self) -> usize {
        if self.no_kill { self.gateways } else { self.gateways + self.spare - 1 }
    }

    pub(crate) fn processes(&self) -> usize {
        self.processes.map_or_else(|| self.connections().div_ceil(18_000), usize::from)
    }

    /// Connected and offline targets of a request.
    pub(crate) fn targets(&self) -> (usize, usize) {
        let connected = (self.targets as f64 * self.connected_share).round() as usize;
        (connected, self.targets - connected)
    }

    /// Devices that never connect: as many as connect, so that look-ups miss realistically.
    pub(crate) fn away_devices(&self) -> usize {
        let (_, away) = self.targets();
        if away == 0 { 0 } else { self.connections().max(away) }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check((1..=NODES_MAX).contains(&self.gateways), "--gateways must be 1 to 1000")?;
        check(self.spare <= NODES_MAX, "--spare must be 0 to 1000")?;
        check((1..=NODES_MAX).contains(&self.apis), "--apis must be 1 to 1000")?;
        check((1..=1_000_000).contains(&self.devices), "--devices must be 1 to 1000000")?;
        check_counts(self.devices, self.targets, self.payload, self.in_flight)?;
        check((0.0..=1.0).contains(&self.connected_share), "--connected-share must be 0 to 1")?;
        check(
            self.targets().0 <= self.connections() / self.processes(),
            "a request names more connected users than a client process has: increase --devices",
        )?;
        check(
            self.no_kill || self.gateways + self.spare > 1,
            "the failure of the only gateway cannot be measured: increase --gateways, or use --no-kill",
        )?;
        check(
            self.sample_rate.is_finite() && (1.0..=1e4).contains(&self.sample_rate),
            "--sample-rate must be 1 to 10000 messages per second",
        )?;
        check(self.at_once != Some(0), "--at-once must be at least 1")?;
        check(self.patience <= PATIENCE_MAX, "--patience must be at most 30m")?;
        self.pacing.check()?;
        super::check_name(&self.name)?;
        self.cell.check()
    }
}
