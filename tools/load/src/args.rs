//! The command line of `noroshi bench`, and the checks that need no server. What is not given is chosen
//! so that the plain command measures what the documentation states.

mod events;
mod homing;
mod me;
mod push;
mod speech;
mod stress;
mod tenants;

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use crate::Error;
use crate::payload::{DATA_BYTES_MIN, When};
pub(crate) use events::{Events, Part};
pub(crate) use homing::Homing;
pub(crate) use me::Me;
pub(crate) use push::{Campaign, Push};
pub(crate) use speech::{Foreign, Protocol, Speech};
pub(crate) use stress::{Disconnect, Slow, Storm, Tls};
pub(crate) use tenants::Tenants;

/// Measures a node: starts one of its own on a temporary folder, or drives the one given by --server.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) scenario: Scenario,
}

impl Args {
    /// False for the processes that another one measures with.
    pub fn measures(&self) -> bool {
        !matches!(self.scenario, Scenario::Floor(_) | Scenario::Worker | Scenario::Bound(_))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Scenario {
    /// Requests to many users, a share of them connected: deliveries/s, latency, CPU per delivery
    Direct(Direct),
    /// Topic messages to all devices: time to reach all, CPU per delivery
    Broadcast(Broadcast),
    /// Accepting stored notifications for devices that are away: inbox rows/s
    Stored(Stored),
    /// The first call of an app (GET /v1/me): cold, warm, and with many experiments that do not concern it
    Me(Me),
    /// Log-ins per second, and what one costs
    Connect(Connect),
    /// Memory per idle connection, and CPU while nothing happens
    Idle(Idle),
    /// All devices gone at once: time until the server is clean, CPU per connection
    Disconnect(Disconnect),
    /// All devices come back at once while publishing: time until they are, latency meanwhile
    Storm(Storm),
    /// Subscribers that read slowly or not at all: what the healthy ones notice, memory per slow one
    Slow(Slow),
    /// Two apps: what a steady one notices of one that does everything it may as fast as it can
    Tenants(Tenants),
    /// TLS handshakes, full and resumed, and memory per idle TLS connection
    Tls(Tls),
    /// Pushes through the client of push services, to a fake of APNs or to --server: latency, rate, CPU per push
    Push(Push),
    /// A campaign of a node with a fake of APNs behind it: rate over the run, memory, breaking news in the middle
    Campaign(Campaign),
    /// Several nodes with PostgreSQL and Redis: log-ins, deliveries, what an engine is asked for each, a gateway that ends
    Homing(Box<Homing>),
    /// The event log: events to files, what telling costs, request latency with a slow sink, an outage of Firehose
    Events(Box<Events>),
    /// The bare epoll loop that --floor compares with
    #[command(hide = true)]
    Floor(Floor),
    /// One process of the client, told what to do on standard input
    #[command(hide = true)]
    Worker,
    /// Another command of this executable, ended with the process that started it
    #[command(hide = true)]
    Bound(Bound),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bound {
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<std::ffi::OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Floor {
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: std::net::SocketAddr,
    /// Sockets that a request to users is written to
    #[arg(long, default_value_t = 150)]
    pub(crate) deliveries: usize,
}

/// Options of every scenario.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// The server to drive; without it one is started and stopped again
    #[arg(long, value_name = "URL", group = "running", requires_all = ["key", "jwt_secret"])]
    pub(crate) server: Option<String>,
    /// Its admin address, asked whether it is ready, and for metrics
    #[arg(long, value_name = "URL", requires = "server")]
    pub(crate) admin: Option<String>,
    /// Its API key
    #[arg(long, env = "NOROSHI_DEV_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,
    /// The app's HS256 secret, to sign the devices' tokens with
    #[arg(long, env = "NOROSHI_DEV_JWT_SECRET", hide_env_values = true)]
    pub(crate) jwt_secret: Option<String>,
    /// Its process on this machine: without it there are no figures of CPU and memory
    #[arg(long, requires = "running")]
    pub(crate) pid: Option<u32>,
    /// The app the tokens are for
    #[arg(long, default_value = "dev")]
    pub(crate) app: String,
    /// The folder in which the data folder of a server that is started here is made [default: the system's temporary folder]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    pub(crate) data: Option<PathBuf>,
    /// A setting of the server that is started here, as for `noroshi serve`
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "server")]
    pub(crate) set: Vec<String>,
    /// The server that is started here speaks TLS, with a certificate made for it; see also --ca
    #[arg(long, conflicts_with = "server")]
    pub(crate) tls: bool,
    /// PEM file of the certificates to trust, where --server is https://… and not of a public authority
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) ca: Option<PathBuf>,
    /// What the names of devices, users and topics begin with
    #[arg(long, default_value = "bench")]
    pub(crate) name: String,
    /// How often to measure; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: u32,
    /// Rest before each measurement
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub(crate) settle: Duration,
    /// Processes of the client, each with its share of the devices and requests
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) processes: u16,
    /// Log-ins on their way at a time
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) handshakes: u32,
    /// Print the result as JSON; the table goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

/// How requests are made.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Pacing {
    /// Requests per second, due at fixed moments whatever the server does; without it as many as it takes
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Time before each measurement that is not counted
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub(crate) warm_up: Duration,
    /// Time measured
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Direct {
    /// Devices that are connected, each of a user of its own
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Users named by a request
    #[arg(long, default_value_t = 300)]
    pub(crate) targets: usize,
    /// Share of them that is connected, 0 to 1
    #[arg(long, default_value_t = 0.5)]
    pub(crate) connected_share: f64,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Stored messages are acked by the devices, and kept for those that are away
    #[arg(long, value_enum, default_value = "connected")]
    pub(crate) when: When,
    /// Requests in flight at most
    #[arg(long, default_value_t = 16)]
    pub(crate) in_flight: usize,
    /// Measure a bare epoll loop too, by turns, which writes the same frames to as many sockets: show ratios to it
    #[arg(long)]
    pub(crate) floor: bool,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
    #[command(flatten)]
    pub(crate) speech: Speech,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Broadcast {
    /// Devices that are connected and subscribed
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Messages published at once, with one request
    #[arg(long, default_value_t = 1)]
    pub(crate) messages: u32,
    /// How often that is done in each measurement, each time after all have arrived
    #[arg(long, default_value_t = 20)]
    pub(crate) rounds: u32,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Stored messages are kept in the topic's log
    #[arg(long, value_enum, default_value = "connected")]
    pub(crate) when: When,
    /// Measure a bare epoll loop too, by turns, which writes the same frames to as many sockets: show ratios to it
    #[arg(long)]
    pub(crate) floor: bool,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) speech: Speech,
    #[command(flatten)]
    pub(crate) foreign: Foreign,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Stored {
    /// Devices that are away, each of a user of its own
    #[arg(long, default_value_t = 10_000)]
    pub(crate) devices: usize,
    /// Users named by a request
    #[arg(long, default_value_t = 100)]
    pub(crate) targets: usize,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Requests in flight at most
    #[arg(long, default_value_t = 64)]
    pub(crate) in_flight: usize,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Connect {
    /// Devices that log in
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Measure a bare epoll loop too, by turns, which writes the same frames to as many sockets: show ratios to it
    #[arg(long)]
    pub(crate) floor: bool,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) speech: Speech,
    #[command(flatten)]
    pub(crate) foreign: Foreign,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Idle {
    /// Connections at which memory is read; the slope over them is the memory of one
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,10000,15000")]
    pub(crate) counts: Vec<usize>,
    /// Time over which CPU is measured with all connections idle
    #[arg(long, default_value = "20s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Measure a bare epoll loop too, by turns, which writes the same frames to as many sockets: show ratios to it
    #[arg(long)]
    pub(crate) floor: bool,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) speech: Speech,
    #[command(flatten)]
    pub(crate) foreign: Foreign,
}

/// Largest number of users in one request that the API takes.
const TARGETS_MAX: usize = 10_000;
/// More provider connections help nobody.
const IN_FLIGHT_MAX: usize = 1_024;
const NAME_BYTES_MAX: usize = 40;

impl Common {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name(&self.name)?;
        // Made here it would stay behind, and a word that is mistyped would be measured on another disk.
        match &self.data {
            Some(folder) if !folder.is_dir() => {
                Err(usage(format!("--data {}: there is no such folder", folder.display())))
            }
            _ => Ok(()),
        }
    }
}

impl Pacing {
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.rate {
            Some(rate) if !(rate.is_finite() && (0.001..=1e6).contains(&rate)) => {
                Err(usage("--rate is a number of requests per second from 0.001 to 1000000"))
            }
            _ if self.duration.is_zero() => Err(usage("--duration must not be zero")),
            _ => Ok(()),
        }
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(usage(format!("--name is 1 to {NAME_BYTES_MAX} of a-z, 0-9 and '-'"))),
    }
}

/// The options that several scenarios share, each with its bounds.
pub(crate) fn check_counts(
    devices: usize,
    targets: usize,
    payload: usize,
    in_flight: usize,
) -> Result<(), Error> {
    check(devices > 0, "at least one device is needed")?;
    check((1..=TARGETS_MAX).contains(&targets), "--targets is 1 to 10000: what one request may name")?;
    check(payload >= DATA_BYTES_MIN, "--payload is at least 36 bytes: it carries the time it was sent")?;
    check(payload <= 1 << 20, "--payload is at most 1048576 bytes")?;
    check((1..=IN_FLIGHT_MAX).contains(&in_flight), "--in-flight is 1 to 1024")
}

pub(crate) fn check(holds: bool, rule: &'static str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(usage(rule)) }
}

fn usage(rule: impl Into<String>) -> Error {
    Error::Usage(rule.into())
}

/// `10s`, `500ms`, `2m` or plain seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let rule = || format!("{text:?} is no duration: write 10s, 500ms or 2m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| rule())?;
    let ms_per_unit = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        _ => return Err(rule()),
    };
    let ms = number.checked_mul(ms_per_unit).filter(|ms| *ms <= 86_400_000).ok_or("a day is the longest")?;
    Ok(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Scenario, clap::Error> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args.scenario)
    }

    #[test]
    fn durations_carry_their_unit() {
        for (text, ms) in [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("3", 3_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "1.5s", "10 s", "5h", "-1s", "99999999999999999999s", "2000m"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_server_needs_its_key_and_secret() {
        assert!(parse("direct --server http://h:1 --key k --jwt-secret s").is_ok());
        assert!(parse("direct --server http://h:1 --key k").is_err());
        assert!(parse("direct --pid 1").is_err());
        assert!(parse("direct --repeat 0").is_err());
    }

    #[test]
    fn another_server_takes_the_place_of_ours() {
        assert!(parse("connect --websocket ws://h:1 --hello a --hello b --pid 1 --floor").is_ok());
        for line in [
            "connect --websocket ws://h:1 --server http://h:1 --key k --jwt-secret s",
            "connect --websocket ws://h:1 --set a=b",
            "connect --hello a",
            "broadcast --websocket ws://h:1 --publish-header a:b",
            "direct --websocket ws://h:1",
            "stored --floor",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn counts_come_as_a_list() {
        let Ok(Scenario::Idle(idle)) = parse("idle --counts 10,20") else { panic!("idle") };
        assert_eq!(idle.counts, [10, 20]);
    }

    #[test]
    fn bad_values_name_the_option() {
        for (error, option) in [
            (check_counts(1, 0, 200, 1), "--targets"),
            (check_counts(1, 1, 5, 1), "--payload"),
            (check_counts(1, 1, 200, 0), "--in-flight"),
        ] {
            assert!(error.unwrap_err().to_string().contains(option));
        }
        let Ok(Scenario::Direct(direct)) = parse("direct --name A --rate 0") else { panic!("direct") };
        assert!(direct.common.check().is_err());
        assert!(direct.pacing.check().is_err());
    }

    #[test]
    fn a_folder_that_does_not_exist_is_not_made() {
        let missing = std::env::temp_dir().join("noroshi-load-no-such-folder");
        for (folder, is_right) in [(std::env::temp_dir(), true), (missing.clone(), false)] {
            let Ok(Scenario::Direct(direct)) = parse(&format!("direct --data {}", folder.display())) else {
                panic!("direct")
            };
            assert_eq!(direct.common.check().is_ok(), is_right, "{folder:?}");
        }
        assert!(!missing.exists());
    }
}
