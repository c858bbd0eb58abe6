//! The command lines of what a gateway has to stand: that all leave, that all come back, that some do not
//! read, and TLS.

use std::time::Duration;

use super::{Common, Foreign, Speech, duration};
use crate::payload::When;

#[derive(Debug, clap::Args)]
pub(crate) struct Disconnect {
    /// Devices that are connected and go
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Measure a bare epoll loop too, by turns, which lets go of as many sockets: show ratios to it
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
    /// Devices that lose their connection at one moment and come back
    #[arg(long, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Devices that stay connected and are published to, by a process of their own besides --processes
    #[arg(long, default_value_t = 500)]
    pub(crate) steady: usize,
    /// Users named by a request, all of them connected
    #[arg(long, default_value_t = 30)]
    pub(crate) targets: usize,
    /// Requests per second, due at fixed moments whatever the server does
    #[arg(long, default_value_t = 100.0)]
    pub(crate) rate: f64,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Requests in flight at most
    #[arg(long, default_value_t = 128)]
    pub(crate) in_flight: usize,
    /// Time measured before the storm, to compare with
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) before: Duration,
    /// Devices on their way back at a time, others wait for them [default: all]
    #[arg(long, value_name = "DEVICES")]
    pub(crate) at_once: Option<usize>,
    /// A storm that takes longer has failed
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub(crate) patience: Duration,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Slow {
    /// Devices that are connected and subscribed, slow ones among them
    #[arg(long, default_value_t = 400)]
    pub(crate) connections: usize,
    /// Share of them that reads nothing, 0 to 1
    #[arg(long, default_value_t = 0.1)]
    pub(crate) silent_share: f64,
    /// Share of them that reads a byte 100 times a second, 0 to 1
    #[arg(long, default_value_t = 0.1)]
    pub(crate) sipping_share: f64,
    /// Messages per second to the topic of all
    #[arg(long, default_value_t = 200.0)]
    pub(crate) rate: f64,
    /// Time of publishing
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// How long slow devices stay slow after it: a server closes those that do not move at all
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
    /// Connections at which memory is read; the slope over them is the memory of one
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,10000,15000")]
    pub(crate) counts: Vec<usize>,
    #[command(flatten)]
    pub(crate) common: Common,
}
