//! Options of the scenarios with push services.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use noroshi_testkit::{Late, Latency};
use noroshi_types::PushService;

use super::{Common, duration};

const EXPERIMENT: &str = "\
Either --experiment or --pushes. Without --server the receiving end is the strict fake of the service (`noroshi dev-push`)
in a process of its own; with it, any that speaks APNs, such as pushy's BenchmarkApnsServer.

Examples:
  noroshi bench push --experiment
  noroshi bench push --experiment --messages 1000 --late 1%:10s
  noroshi bench push --pushes 100000 --latency 50ms
  noroshi bench push --pushes 100000 --service webpush
  noroshi bench push --pushes 100000 --server https://localhost:24000 --ca-file ca.pem";

#[derive(Debug, clap::Args)]
#[command(after_help = EXPERIMENT)]
#[command(group = clap::ArgGroup::new("mode").required(true).args(["experiment", "pushes"]))]
pub(crate) struct Push {
    /// Push service. Web Push encrypts each push for one of up to 10,000 subscriptions; FCM has no limit on its rate here
    #[arg(long, default_value = "apns", value_parser = service())]
    pub(crate) service: PushService,
    /// Process queue messages, each for several users, as fast as possible: time from dequeue to response
    #[arg(long)]
    pub(crate) experiment: bool,
    /// Push this many messages as fast as possible: rate and CPU
    #[arg(long, value_name = "COUNT")]
    pub(crate) pushes: Option<usize>,
    /// Queue messages of the experiment, one run per number
    #[arg(long, value_delimiter = ',', default_value = "100,500,1000,2000", conflicts_with = "pushes")]
    pub(crate) messages: Vec<usize>,
    /// Users per queue message
    #[arg(long, default_value_t = 10, conflicts_with = "pushes")]
    pub(crate) users: usize,
    /// Response delay of the fake: 50ms, or lognormal as MEDIAN:P99 [default: 300ms:1500ms with --experiment,
    /// else none]
    #[arg(long, value_parser = latency, conflicts_with = "server")]
    pub(crate) latency: Option<Latency>,
    /// Delay the responses for a share of the users; the others are reported separately
    #[arg(long, value_name = "PERCENT:TIME", value_parser = late, conflicts_with = "server")]
    pub(crate) late: Option<Late>,
    /// Streams that the fake allows per connection
    #[arg(long, default_value_t = 1_000, conflicts_with = "server")]
    pub(crate) streams: u32,
    /// Connections that the fake allows; more are reset
    #[arg(long, default_value_t = 8, conflicts_with = "server")]
    pub(crate) cap: u32,
    /// Maximum connections of the client
    #[arg(long, default_value_t = 4)]
    pub(crate) connections: usize,
    /// Client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,
    /// Start without connections, so that connecting is included
    #[arg(long)]
    pub(crate) cold: bool,
    /// Another server that speaks APNs: https://HOST:PORT; only with --service apns
    #[arg(long, value_name = "URL", requires = "ca_file")]
    pub(crate) server: Option<String>,
    /// PEM file of trusted certificates
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Signing key for it, a .p8 file [default: a new, unregistered one]
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) key_file: Option<PathBuf>,
    /// Bundle id of the app for it [default: com.example.app]
    #[arg(long, requires = "server")]
    pub(crate) topic: Option<String>,
    /// Maximum duration of a run; longer is an error
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub(crate) patience: Duration,
    /// Number of measurements; results are medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: u32,
    /// Pause before each measurement
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub(crate) settle: Duration,
    /// Print the result as JSON; the table goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Registers devices with tokens that only the fake knows, gives the app of --app the fake's credential, and runs one
campaign over all of them. A server given by --server has to trust the fake: start `noroshi dev-push --light --json` in
a folder of yours, the server with its ca.pem as egress.ca_file, and name that folder's control port with --fake.")]
pub(crate) struct Campaign {
    /// Devices of the campaign
    #[arg(long, default_value_t = 100_000)]
    pub(crate) devices: usize,
    /// At half of the campaign, publish another one in the lane `extra` to one topic: time to its first
    /// response
    #[arg(long)]
    pub(crate) breaking: bool,
    /// Response delay of the fake: 50ms, or lognormal as MEDIAN:P99
    #[arg(long, value_parser = latency, default_value = "50ms")]
    pub(crate) latency: Latency,
    /// Control port of a running fake that --server trusts
    #[arg(long, value_name = "URL", requires_all = ["server", "operator_token"])]
    pub(crate) fake: Option<String>,
    /// Token of the admin address, to give the app a credential
    #[arg(long, env = "NOROSHI_OPERATOR_TOKEN", hide_env_values = true)]
    pub(crate) operator_token: Option<String>,
    /// Maximum duration of the run; longer is an error
    #[arg(long, default_value = "30m", value_parser = duration)]
    pub(crate) patience: Duration,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Registers devices that have the token of a Live Activity, and updates all activities once in every --interval. The
states that the fake receives contain the time of their update.")]
pub(crate) struct Activities {
    /// Devices of all activities
    #[arg(long, default_value_t = 100_000)]
    pub(crate) devices: usize,
    /// Activities that the devices are divided into
    #[arg(long, default_value_t = 1)]
    pub(crate) activities: usize,
    /// Time between two updates of an activity
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub(crate) interval: Duration,
    /// Duration of the updates
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Response delay of the fake: 50ms, or lognormal as MEDIAN:P99
    #[arg(long, value_parser = latency, default_value = "50ms")]
    pub(crate) latency: Latency,
    /// Maximum wait for the first and the last state; longer is an error
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub(crate) patience: Duration,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Those whose fakes accept any token, or make subscriptions.
fn service() -> impl TypedValueParser<Value = PushService> {
    use PushService::{Apns, Fcm, Hms, WebPush, Wns};
    let names = [Apns, Fcm, WebPush, Hms, Wns].map(PushService::as_str);
    PossibleValuesParser::new(names)
        .try_map(|name| PushService::named(&name).ok_or_else(|| format!("unknown service {name}")))
}

/// `50ms` or `300ms:1500ms`
fn latency(text: &str) -> Result<Latency, String> {
    let ms = |text: &str| duration(text).map(|duration| duration.as_secs_f64() * 1e3);
    match text.split_once(':') {
        None => Ok(Latency::FixedMs(ms(text)?)),
        Some((median, p99)) => match (ms(median)?, ms(p99)?) {
            (median_ms, p99_ms) if median_ms > 0.0 && p99_ms >= median_ms => {
                Ok(Latency::LogNormal { median_ms, p99_ms })
            }
            _ => Err("the median must be positive, and p99 at least as large".to_owned()),
        },
    }
}

/// `1%:10s`
fn late(text: &str) -> Result<Late, String> {
    let rule = || format!("{text:?}: expected the form 1%:10s");
    let (share, time) = text.split_once(':').ok_or_else(rule)?;
    let percent: f64 = share.strip_suffix('%').and_then(|share| share.parse().ok()).ok_or_else(rule)?;
    match (0.0..=100.0).contains(&percent) {
        true => Ok(Late { share: percent / 100.0, ms: duration(time)?.as_millis() as u64 }),
        false => Err(rule()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_one_or_two_durations() {
        assert_eq!(latency("50ms"), Ok(Latency::FixedMs(50.0)));
        assert_eq!(latency("300ms:1500ms"), Ok(Latency::LogNormal { median_ms: 300.0, p99_ms: 1_500.0 }));
        assert_eq!(late("1%:10s"), Ok(Late { share: 0.01, ms: 10_000 }));
        for text in ["", "a", "5s:", "2s:1s", "0s:1s"] {
            assert!(latency(text).is_err(), "{text}");
        }
        for text in ["1:10s", "101%:1s", "1%", "x%:1s"] {
            assert!(late(text).is_err(), "{text}");
        }
    }
}
