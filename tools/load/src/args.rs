//! The command line of `noroshi bench`, and the checks that need no server. The defaults reproduce the
//! measurements in the documentation.

mod cell;
mod events;
mod homing;
mod me;
mod million;
mod push;
mod speech;
mod stored;
mod stress;
mod tenants;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use crate::Error;
use crate::payload::{DATA_BYTES_MIN, When};
pub(crate) use cell::CellArgs;
pub(crate) use events::{Events, Part};
pub(crate) use homing::Homing;
pub(crate) use me::Me;
pub(crate) use million::{Million, Phase};
pub(crate) use push::{Activities, Campaign, Push};
pub(crate) use speech::{Foreign, Protocol, Speech};
pub(crate) use stored::{Stored, Work};
pub(crate) use stress::{Disconnect, Slow, Storm, Tls};
pub(crate) use tenants::Tenants;

/// Measures a node: starts one in a temporary folder, or uses the one given by --server.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) scenario: Scenario,
}

impl Args {
    /// False for the helper processes of a measurement.
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
    /// Storing for offline devices: inbox rows/s, topic messages/s, acknowledgements/s
    Stored(Stored),
    /// The first call of an app (GET /v1/me): cold, warm, and with many unrelated experiments
    Me(Me),
    /// Log-ins per second, and CPU per log-in
    Connect(Connect),
    /// Memory per idle connection, and idle CPU
    Idle(Idle),
    /// All devices disconnect at once: time until the server has released them, CPU per connection
    Disconnect(Disconnect),
    /// All devices reconnect at once while messages are published: time until all are back, latency meanwhile
    Storm(Storm),
    /// Subscribers that read slowly or not at all: effect on the others, memory per slow one
    Slow(Slow),
    /// Two apps: effect of one that uses its resources as fast as possible on a steady one
    Tenants(Tenants),
    /// TLS handshakes, full and resumed, and memory per idle TLS connection
    Tls(Tls),
    /// Pushes to the fake of a push service or to --server: latency, rate, CPU per push
    Push(Push),
    /// A campaign on a node with a fake APNs: rate over time, memory, an urgent message in the middle
    Campaign(Campaign),
    /// Live Activities on a node with a fake APNs, updated in a fixed rhythm: age of the states that devices get,
    /// devices that wait, CPU per push
    Activities(Activities),
    /// Several nodes with PostgreSQL and Redis: log-ins, deliveries, engine queries per operation, failure of
    /// a gateway
    Homing(Box<Homing>),
    /// As many devices as one machine can hold, in as many processes as its limits require: memory by kind,
    /// idle CPU, one message to all, the failure and the drain of gateways
    Million(Box<Million>),
    /// The event log: events to files, cost of emitting, request latency with a slow sink, an outage of
    /// Firehose
    Events(Box<Events>),
    /// The bare epoll loop used by --floor
    #[command(hide = true)]
    Floor(Floor),
    /// One client process, controlled through standard input
    #[command(hide = true)]
    Worker,
    /// Runs another command of this executable, bound to the lifetime of the parent process
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
    /// Sockets to write per request to users
    #[arg(long, default_value_t = 150)]
    pub(crate) deliveries: usize,
}

/// Options of every scenario.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// The server to measure; by default one is started and stopped
    #[arg(long, value_name = "URL", group = "running", requires_all = ["key", "jwt_secret"])]
    pub(crate) server: Option<String>,
    /// Its admin address, for readiness and metrics
    #[arg(long, value_name = "URL", requires = "server")]
    pub(crate) admin: Option<String>,
    /// Its API key
    #[arg(long, env = "NOROSHI_DEV_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,
    /// The app's HS256 secret, which signs the devices' tokens
    #[arg(long, env = "NOROSHI_DEV_JWT_SECRET", hide_env_values = true)]
    pub(crate) jwt_secret: Option<String>,
    /// The server's process on this machine, for CPU and memory figures
    #[arg(long, requires = "running")]
    pub(crate) pid: Option<u32>,
    /// The app of the tokens
    #[arg(long, default_value = "dev")]
    pub(crate) app: String,
    /// Parent of the data folder of a started server [default: the system's temporary folder]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    pub(crate) data: Option<PathBuf>,
    /// Executable of the started server, such as another version's [default: this one]
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub(crate) program: Option<PathBuf>,
    /// A setting of the started server, as for `noroshi serve`
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "server")]
    pub(crate) set: Vec<String>,
    /// The started server uses TLS with a generated certificate; see also --ca
    #[arg(long, conflicts_with = "server")]
    pub(crate) tls: bool,
    /// PEM file of trusted certificates, for a --server with https://… and a private authority
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) ca: Option<PathBuf>,
    /// Prefix of the names of devices, users and topics
    #[arg(long, default_value = "bench")]
    pub(crate) name: String,
    /// Number of measurements; results are medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: u32,
    /// Pause before each measurement
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub(crate) settle: Duration,
    /// Client processes, which share devices and requests
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) processes: u16,
    /// Concurrent log-ins
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) handshakes: u32,
    /// Print the result as JSON; the table goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

/// The pacing of requests.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Pacing {
    /// Requests per second at fixed times, independent of responses; unlimited by default
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Time before each measurement that is excluded
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub(crate) warm_up: Duration,
    /// Duration of each measurement
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Direct {
    /// Connected devices, each with its own user
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Users per request
    #[arg(long, default_value_t = 300)]
    pub(crate) targets: usize,
    /// Share of these users that is connected, 0 to 1
    #[arg(long, default_value_t = 0.5)]
    pub(crate) connected_share: f64,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Devices ack stored messages; offline devices keep them in their inbox
    #[arg(long, value_enum, default_value = "connected")]
    pub(crate) when: When,
    /// Maximum requests in flight
    #[arg(long, default_value_t = 16)]
    pub(crate) in_flight: usize,
    /// Without --rate: send the next request when the previous one is answered, instead of when it is delivered too
    #[arg(long, conflicts_with_all = ["rate", "floor"])]
    pub(crate) closed_loop: bool,
    /// Alternately measure a bare epoll loop that writes the same frames to as many sockets, and show ratios
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
    /// Connected and subscribed devices
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Messages per round, published with one request
    #[arg(long, default_value_t = 1)]
    pub(crate) messages: u32,
    /// Rounds per measurement; each starts after all messages have arrived
    #[arg(long, default_value_t = 20)]
    pub(crate) rounds: u32,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Stored messages are kept in the topic's log
    #[arg(long, value_enum, default_value = "connected")]
    pub(crate) when: When,
    /// Alternately measure a bare epoll loop that writes the same frames to as many sockets, and show ratios
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
pub(crate) struct Connect {
    /// Devices to log in
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Alternately measure a bare epoll loop that writes the same frames to as many sockets, and show ratios
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
    /// Connection counts at which memory is read; the slope is the memory per connection
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,10000,15000")]
    pub(crate) counts: Vec<usize>,
    /// Duration of the CPU measurement with all connections idle
    #[arg(long, default_value = "20s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Alternately measure a bare epoll loop that writes the same frames to as many sockets, and show ratios
    #[arg(long)]
    pub(crate) floor: bool,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) speech: Speech,
    #[command(flatten)]
    pub(crate) foreign: Foreign,
}

/// The API's limit of users per request.
const TARGETS_MAX: usize = 10_000;
/// Provider connections: enough for 8,000 requests a second that each wait for a second.
const IN_FLIGHT_MAX: usize = 8_192;
const NAME_BYTES_MAX: usize = 40;

impl Common {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name(&self.name)?;
        check_data(self.data.as_deref())
    }
}

impl Pacing {
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.rate {
            Some(rate) if !(rate.is_finite() && (0.001..=1e6).contains(&rate)) => {
                Err(usage("--rate must be 0.001 to 1000000 requests per second"))
            }
            _ if self.duration.is_zero() => Err(usage("--duration must not be zero")),
            _ => Ok(()),
        }
    }
}

/// A missing folder is not created: it would remain, and a mistyped path would measure another disk.
fn check_data(folder: Option<&Path>) -> Result<(), Error> {
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(usage(format!("--data {}: the folder does not exist", folder.display())))
        }
        _ => Ok(()),
    }
}

/// The value as a word of the command line.
pub(crate) fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn check_name(name: &str) -> Result<(), Error> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(usage(format!("--name must be 1 to {NAME_BYTES_MAX} characters of a-z, 0-9 and '-'"))),
    }
}

/// Checks of options that several scenarios share.
pub(crate) fn check_counts(
    devices: usize,
    targets: usize,
    payload: usize,
    in_flight: usize,
) -> Result<(), Error> {
    check(devices > 0, "at least one device is required")?;
    check((1..=TARGETS_MAX).contains(&targets), "--targets must be 1 to 10000, the API's limit")?;
    check(
        payload >= DATA_BYTES_MIN,
        "--payload must be at least 36 bytes, since it contains the time of sending",
    )?;
    check(payload <= 1 << 20, "--payload must be at most 1048576 bytes")?;
    check((1..=IN_FLIGHT_MAX).contains(&in_flight), "--in-flight must be 1 to 8192")
}

pub(crate) fn check(holds: bool, rule: &'static str) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(usage(rule)) }
}

fn usage(rule: impl Into<String>) -> Error {
    Error::Usage(rule.into())
}

/// `10s`, `500ms`, `2m` or plain seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let rule = || format!("{text:?} is not a duration: write 10s, 500ms or 2m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| rule())?;
    let ms_per_unit = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        _ => return Err(rule()),
    };
    let ms =
        number.checked_mul(ms_per_unit).filter(|ms| *ms <= 86_400_000).ok_or("the maximum is one day")?;
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
    fn server_requires_key_and_secret() {
        assert!(parse("direct --server http://h:1 --key k --jwt-secret s").is_ok());
        assert!(parse("direct --server http://h:1 --key k").is_err());
        assert!(parse("direct --pid 1").is_err());
        assert!(parse("direct --repeat 0").is_err());
    }

    #[test]
    fn foreign_server_replaces_ours() {
        assert!(parse("connect --websocket ws://h:1 --hello a --hello b --pid 1 --floor").is_ok());
        for line in [
            "connect --websocket ws://h:1 --server http://h:1 --key k --jwt-secret s",
            "connect --websocket ws://h:1 --set a=b",
            "connect --websocket ws://h:1 --program noroshi",
            "connect --hello a",
            "broadcast --websocket ws://h:1 --publish-header a:b",
            "direct --websocket ws://h:1",
            "stored --floor --postgres=postgres://h/d --server http://h:1 --key k --jwt-secret s",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn counts_are_a_list() {
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
    fn missing_folder_is_not_created() {
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
