//! Options of `noroshi bench me`.

use super::{Common, Pacing};

#[derive(Debug, clap::Args)]
pub(crate) struct Me {
    /// Devices that make first calls, each with its own user
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) devices: u32,
    /// Connections, each with one request at a time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) in_flight: u16,
    /// Experiments that include every device
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) experiments: u32,
    /// Live experiments in total in the second measurement; the additional ones target other users
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) live: u32,
    /// Ended experiments in the second measurement
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) expired: u32,
    /// Messages in each device's inbox
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) messages: u32,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
    #[command(flatten)]
    pub(crate) common: Common,
}
