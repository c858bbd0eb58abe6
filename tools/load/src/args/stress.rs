//! Options of the stress scenarios: mass disconnects, mass reconnects, slow consumers, and TLS.

use std::time::Duration;

use super::{Common, Foreign, Speech, duration};
use crate::payload::When;

#[derive(Debug, clap::Args)]
pub(crate) struct Disconnect {
    /// Connected devices that disconnect
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Alternately measure a bare epoll loop that releases as many sockets, and show ratios
    #[arg(long)]
    pub(crate) floor: bool,
    #[command(flatten)]
    pub(crate) speech: Speech,
    #[command(flatten)]
    pub(crate) foreign: Foreign,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Storm {
    /// Devices that lose their connection at the same time and reconnect
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Devices that stay connected and receive messages, in an additional client process
    #[arg(long, default_value_t = 500)]
    pub(crate) steady: usize,
    /// Users per request, all connected
    #[arg(long, default_value_t = 30)]
    pub(crate) targets: usize,
    /// Requests per second at fixed times, independent of responses
    #[arg(long, default_value_t = 100.0)]
    pub(crate) rate: f64,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Maximum requests in flight
    #[arg(long, default_value_t = 128)]
    pub(crate) in_flight: usize,
    /// Duration of the reference measurement before the storm
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) before: Duration,
    /// Maximum concurrently reconnecting devices; the others wait [default: all]
    #[arg(long, value_name = "DEVICES")]
    pub(crate) at_once: Option<usize>,
    /// Maximum duration of the storm; longer is an error
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub(crate) patience: Duration,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Slow {
    /// Connected and subscribed devices, including slow ones
    #[arg(long, default_value_t = 400)]
    pub(crate) connections: usize,
    /// Share of devices that read nothing, 0 to 1
    #[arg(long, default_value_t = 0.1)]
    pub(crate) silent_share: f64,
    /// Share of devices that read one byte 100 times per second, 0 to 1
    #[arg(long, default_value_t = 0.1)]
    pub(crate) sipping_share: f64,
    /// Messages per second to the common topic
    #[arg(long, default_value_t = 200.0)]
    pub(crate) rate: f64,
    /// Duration of publishing
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// How long slow devices stay slow afterwards: a server closes stalled ones
    #[arg(long, default_value = "25s", value_parser = duration)]
    pub(crate) linger: Duration,
    /// Bytes of `data`
    #[arg(long, default_value_t = 2_048)]
    pub(crate) payload: usize,
    /// Stored messages are kept in the topic's log
    #[arg(long, value_enum, default_value = "connected")]
    pub(crate) when: When,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Tls {
    /// Handshakes of each kind
    #[arg(long, default_value_t = 10_000)]
    pub(crate) count: usize,
    /// Connection counts at which memory is read; the slope is the memory per connection
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,10000,15000")]
    pub(crate) counts: Vec<usize>,
    #[command(flatten)]
    pub(crate) common: Common,
}
