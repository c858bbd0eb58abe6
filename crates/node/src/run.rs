//! The life of a node process: start, wait for a signal or a failure, drain, report how it ended.
//!
//! The drain, in order: not ready any more; devices are told to go elsewhere at the configured rate; API
//! requests in work are answered; what delivery has queued is written; the admin address goes; the store
//! closes. After the failure of a thread (`supervise`) the node drains for some seconds only, and exits with a code of
//! its own. A second signal ends the process at once: what was accepted is on disk all the same.

use std::sync::atomic::Ordering;
use std::time::Duration;

use noroshi_gateway::drain::Order;
use noroshi_supervision::{Failure, Kind};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::build::{self, Node};
use crate::config::{self, Config};
use crate::data;
use crate::development::Given;
use crate::supervise;
use crate::tasks::Phase;

/// Requests in work get this long once the connections are drained: the longest are batches.
const REQUESTS_DEADLINE: Duration = Duration::from_secs(10);
/// Push services are told goodbye within this time.
const SERVICES_DEADLINE: Duration = Duration::from_secs(2);

/// How a node ended. After the failure of a thread there is no end to speak of: see `supervise::exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Drained because it was told to.
    Drained,
    /// A second signal came while it drained.
    Forced,
}

/// Runs a node until it has ended. `started` is called once it takes traffic.
pub fn run(config: Config, given: &Given, started: impl FnOnce(&Node)) -> Result<Ended, build::Error> {
    // What the node writes is for its owner alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    noroshi_telemetry::log::init(&config.log.level, config.log.format)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().thread_name("noroshi-worker");
    runtime.on_thread_start(|| noroshi_supervision::panics::enter(Kind::Runtime));
    if config.server.workers > 0 {
        runtime.worker_threads(config.server.workers);
    }
    let runtime = runtime.build()?;
    let folder = config.server.data.clone();
    let ended = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let mut node = tokio::select! {
            node = build::start(config, given) => node?,
            // Nobody was promised anything yet.
            () = signals.next() => return Ok(Ended::Drained),
        };
        started(&node);
        let Node { tasks, supervisor, .. } = &mut node;
        tokio::select! {
            () = signals.next() => {}
            kind = tasks.failed() => {
                supervisor.task_failed(kind.name());
                supervisor.failed().await;
            }
            () = supervisor.failed() => {}
        }
        let end = async {
            match node.supervisor.failure().cloned() {
                None => drain(&mut node).await,
                Some(failure) => drain_after(&mut node, &failure).await,
            }
        };
        let ended = tokio::select! {
            () = end => Ended::Drained,
            () = signals.next() => Ended::Forced,
        };
        if node.supervisor.failure().is_some() {
            data::remove_addresses(&folder);
            // What failed may hang: nobody waits for its end.
            supervise::exit();
        }
        if ended == Ended::Forced {
            data::remove_addresses(&folder);
        }
        Ok(ended)
    });
    // A reader of a slow disk must not hold up the exit.
    runtime.shutdown_background();
    ended
}

/// What can be drained, within some seconds: a thread that failed gets nothing more and is not waited for.
async fn drain_after(node: &mut Node, failure: &Failure) {
    node.gateway.give_up(&failure.thread);
    let limit = supervise::drain_max(&node.config);
    node.config.gateway.drain.deadline = limit;
    if tokio::time::timeout(limit + supervise::REST_MAX, drain(node)).await.is_err() {
        tracing::warn!("the drain was not over in time");
    }
}

async fn drain(node: &mut Node) {
    tracing::info!("draining");
    node.ready.store(false, Ordering::Release);
    node.supervisor.expect_ends();
    node.tasks.connections.close();
    drain_gateway(node).await;
    node.tasks.end(Phase::First).await;
    if tokio::time::timeout(REQUESTS_DEADLINE, node.tasks.connections.wait()).await.is_err() {
        tracing::warn!(
            connections = node.tasks.connections.len(),
            "requests were still in work at the deadline"
        );
    }
    let gateway = node.gateway.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || gateway.stop()).await {
        tracing::error!(%error, "the gateway could not stop");
    }
    node.tasks.end(Phase::AfterConnections).await;
    // What was under way has been answered, or is left to the next start.
    node.services.drain(SERVICES_DEADLINE).await;
    node.tasks.end(Phase::Last).await;
    node.store.close().await;
    // Last: what the others did at their ends was told too.
    crate::events::end(node.events.take()).await;
    data::remove_addresses(&node.config.server.data);
    tracing::info!("drained");
}

/// Blocks a thread of its own: the gateway has no runtime.
async fn drain_gateway(node: &Node) {
    let config::Drain { rate, spread, deadline } = node.config.gateway.drain;
    let order = Order { rate_per_second: rate, spread, deadline: Some(deadline) };
    let gateway = node.gateway.clone();
    node.draining.send_replace(true);
    match tokio::task::spawn_blocking(move || gateway.drain(order)).await {
        Ok(true) => tracing::info!("every device has gone elsewhere"),
        Ok(false) => tracing::warn!("some devices were still connected at the deadline"),
        Err(error) => tracing::error!(%error, "the gateway could not drain"),
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Cancel-safe.
    async fn next(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "told to end");
    }
}

impl Ended {
    /// The exit code of the process.
    pub fn exit_code(self) -> u8 {
        match self {
            Ended::Drained => 0,
            Ended::Forced => 1,
        }
    }
}
