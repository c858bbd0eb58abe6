//! The commands, one file each. A command is its arguments with a `run` that answers an exit code or a
//! [`Failure`]; those that talk to a server run on a small runtime of their own.

mod apps;
mod bench;
mod campaign;
mod cells;
mod completions;
mod config;
mod definition;
mod dev_push;
mod devices;
mod doctor;
mod drain;
mod experiment;
mod explain;
mod import;
mod keys;
mod listen;
mod migrate;
mod nodes;
mod notice;
mod presence;
mod profile;
mod push;
mod send;
mod serve;
mod sim;
mod topics;

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use noroshi_types::Invalid;
use noroshi_types::time::parse_duration;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node
    Serve(Box<serve::Arguments>),
    /// Send a notification, or a file of them
    Send(Box<send::Arguments>),
    /// Receive notifications as a device and print them
    Listen(Box<listen::Arguments>),
    /// Look at devices, register, revoke and delete them
    Devices(devices::Arguments),
    /// Look at topics and their retained messages
    Topics(topics::Arguments),
    /// Manage apps (tenants) through the admin address
    Apps(apps::Arguments),
    /// Manage API keys through the admin address
    Keys(keys::Arguments),
    /// Who is connected now
    Presence(presence::Arguments),
    /// Give apps credentials of push services, try them, see which tokens they declared void
    Push(Box<push::Arguments>),
    /// One message for many: make, start, watch, pause and end campaigns
    Campaign(Box<campaign::Arguments>),
    /// Which users see which variant: make experiments, watch, kill and archive them
    Experiment(Box<experiment::Arguments>),
    /// Maintenance notices: windows in which something will not work
    Notice(Box<notice::Arguments>),
    /// Move devices away from a running node, watch it, or let them in again
    Drain(drain::Arguments),
    /// The nodes of the cluster: leases, connections, rates, drains
    Nodes(nodes::Arguments),
    /// The cells behind a front: who lives where, newcomers, moving
    Cells(cells::Arguments),
    /// Where a running node spends its CPU time or its memory: a flame graph, or a file for pprof
    Profile(profile::Arguments),
    /// What became of a notification, on one device too
    Explain(explain::Arguments),
    /// Bring in devices from a file
    Import(import::Arguments),
    /// Copy a stopped node's data folder into a PostgreSQL database that several nodes share
    Migrate(migrate::Arguments),
    /// Check or print the configuration
    Config(config::Arguments),
    /// Check this machine: what it needs for a number of devices, and what to change
    Doctor(Box<doctor::Arguments>),
    /// Run APNs, FCM and a Web Push service on this machine, to try push without accounts
    DevPush(Box<dev_push::Arguments>),
    /// Measure a server
    Bench(Box<bench::Arguments>),
    /// How many nodes and cells a number of devices needs, and how long things take there: a model, no measurement
    Sim(Box<sim::Arguments>),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Command::Serve(arguments) => arguments.run(),
            Command::Send(arguments) => wait(arguments.run()),
            Command::Listen(arguments) => wait(arguments.run()),
            Command::Devices(arguments) => wait(arguments.run()),
            Command::Topics(arguments) => wait(arguments.run()),
            Command::Apps(arguments) => wait(arguments.run()),
            Command::Keys(arguments) => wait(arguments.run()),
            Command::Presence(arguments) => wait(arguments.run()),
            Command::Push(arguments) => wait(arguments.run()),
            Command::Campaign(arguments) => wait(arguments.run()),
            Command::Experiment(arguments) => wait(arguments.run()),
            Command::Notice(arguments) => wait(arguments.run()),
            Command::Drain(arguments) => wait(arguments.run()),
            Command::Nodes(arguments) => wait(arguments.run()),
            Command::Cells(arguments) => wait(arguments.run()),
            Command::Profile(arguments) => wait(arguments.run()),
            Command::Explain(arguments) => wait(arguments.run()),
            Command::Import(arguments) => wait(arguments.run()),
            Command::Migrate(arguments) => wait(arguments.run()),
            Command::Config(arguments) => arguments.run(),
            Command::Doctor(arguments) => arguments.run(),
            Command::DevPush(arguments) => wait(arguments.run()),
            Command::Bench(arguments) => arguments.run(),
            Command::Sim(arguments) => arguments.run(),
            Command::Completions(arguments) => arguments.run(),
        }
    }
}

/// As in the configuration: a number without a unit is none.
fn duration(text: &str) -> Result<Duration, Invalid> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Err(Invalid::new(format!("a duration has a unit (ms, s, m, h, d), such as \"{text}s\""))),
        false => parse_duration(text),
    }
}

fn wait<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("no runtime: {error}")))?;
    runtime.block_on(work)
}
