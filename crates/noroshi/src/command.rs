//! The commands, one file each. A command has arguments and a method `run` that returns an exit code or a [`Failure`]. Commands
//! that use a server run on their own small runtime.

mod activity;
mod apps;
mod bench;
mod campaign;
mod cells;
mod channel;
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
mod items;
mod keys;
mod listen;
mod migrate;
mod nodes;
mod notice;
mod people;
mod preferences;
mod presence;
mod profile;
mod push;
mod send;
mod serve;
mod shown;
mod sim;
mod topics;
mod trace;

use std::process::{ExitCode, Termination};
use std::time::Duration;

use clap::Subcommand;
use noroshi_types::Invalid;
use noroshi_types::time::parse_duration;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node
    Serve(Box<serve::Arguments>),
    /// Send a notification, or many from a file
    Send(Box<send::Arguments>),
    /// Receive notifications as a device and print them
    Listen(Box<listen::Arguments>),
    /// List, register, revoke and delete devices
    Devices(devices::Arguments),
    /// List topics and their retained messages
    Topics(topics::Arguments),
    /// Manage apps (tenants) through the admin address
    Apps(apps::Arguments),
    /// Manage API keys through the admin address
    Keys(keys::Arguments),
    /// Let people into the web console, through the admin address
    People(people::Arguments),
    /// Show and delete the items of a user's notification centre
    Items(items::Arguments),
    /// Show, replace and delete preferences of users and devices: muted categories, channels, quiet hours, daily caps
    Preferences(Box<preferences::Arguments>),
    /// Show who is online
    Presence(presence::Arguments),
    /// Manage and test credentials of push services, and list invalidated push tokens
    Push(Box<push::Arguments>),
    /// Manage broadcast channels of APNs and send to them
    Channel(Box<channel::Arguments>),
    /// Create, start, watch, pause and end campaigns: one message to many devices
    Campaign(Box<campaign::Arguments>),
    /// Start, update and end Live Activities: a state that devices show for hours
    Activity(Box<activity::Arguments>),
    /// Create, show, stop and archive experiments: which users get which variant
    Experiment(Box<experiment::Arguments>),
    /// Manage maintenance notices
    Notice(Box<notice::Arguments>),
    /// Move devices from a running node to other nodes, watch the progress, or cancel
    Drain(drain::Arguments),
    /// List the nodes of the cluster: leases, connections, rates, drains
    Nodes(nodes::Arguments),
    /// Manage the cells of a front: location of users and devices, weights, moves
    Cells(cells::Arguments),
    /// Profile CPU time or memory of a running node: a flame graph, or a file for pprof
    Profile(profile::Arguments),
    /// Explain the delivery of a notification, or why a device received it or not
    Explain(explain::Arguments),
    /// Import devices from a file
    Import(import::Arguments),
    /// Copy a stopped node's data folder into a PostgreSQL database that several nodes share
    Migrate(migrate::Arguments),
    /// Check or print the configuration
    Config(config::Arguments),
    /// Check whether this machine can hold a number of devices, and what to change
    Doctor(Box<doctor::Arguments>),
    /// Run local APNs, FCM, Web Push and other push services, to try push without accounts
    DevPush(Box<dev_push::Arguments>),
    /// Benchmark a server
    Bench(Box<bench::Arguments>),
    /// Model how many nodes and cells a number of devices needs, and how long operations take
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
            Command::People(arguments) => wait(arguments.run()),
            Command::Items(arguments) => wait(arguments.run()),
            Command::Preferences(arguments) => wait(arguments.run()),
            Command::Presence(arguments) => wait(arguments.run()),
            Command::Push(arguments) => wait(arguments.run()),
            Command::Channel(arguments) => wait(arguments.run()),
            Command::Campaign(arguments) => wait(arguments.run()),
            Command::Activity(arguments) => wait(arguments.run()),
            Command::Experiment(arguments) => wait(arguments.run()),
            Command::Notice(arguments) => wait(arguments.run()),
            Command::Drain(arguments) => wait(arguments.run()),
            Command::Nodes(arguments) => wait(arguments.run()),
            Command::Cells(arguments) => wait(arguments.run()),
            Command::Profile(arguments) => wait(arguments.run()),
            Command::Explain(arguments) => wait(arguments.run()),
            Command::Import(arguments) => wait(arguments.run()),
            Command::Migrate(arguments) => wait(arguments.run()),
            Command::Config(arguments) => arguments.run().map(Termination::report),
            Command::Doctor(arguments) => arguments.run(),
            Command::DevPush(arguments) => wait(arguments.run()),
            Command::Bench(arguments) => arguments.run(),
            Command::Sim(arguments) => arguments.run().map(Termination::report),
            Command::Completions(arguments) => arguments.run().map(Termination::report),
        }
    }
}

/// A duration with a unit, as in the configuration; validated here, sent unchanged.
fn duration_text(text: &str) -> Result<String, Invalid> {
    duration(text).map(|_| text.to_owned())
}

/// A duration with a unit, as in the configuration.
fn duration(text: &str) -> Result<Duration, Invalid> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Err(Invalid::new(format!("a duration needs a unit (ms, s, m, h, d), such as \"{text}s\""))),
        false => parse_duration(text),
    }
}

fn wait<T: Termination>(work: impl Future<Output = Result<T, Failure>>) -> Result<ExitCode, Failure> {
    block_on(work).map(Termination::report)
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::failed(format!("failed to create the runtime: {error}")))?;
    runtime.block_on(work)
}
