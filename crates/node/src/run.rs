//! Runs a node process: start, wait for a signal or failure, drain, exit code.
//!
//! Order of a drain: no longer ready; move devices at the configured rate; complete API requests in progress; write queued
//! deliveries; close the admin address; close the store. After a thread failure (`supervise`), the drain takes only some seconds
//! and the node exits with its own code. A second signal ends the process at once; accepted data is on disk.

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

/// Timeout for requests in progress after device connections are drained. Batches take longest.
const REQUESTS_DEADLINE: Duration = Duration::from_secs(10);
/// Timeout for closing connections to push services.
const SERVICES_DEADLINE: Duration = Duration::from_secs(2);

/// How a node ended. After a thread failure the process exits instead: see `supervise::exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Drained after a signal.
    Drained,
    /// A second signal arrived during the drain.
    Forced,
}

/// Runs a node until it ends. Calls `started` once it accepts traffic.
pub fn run(config: Config, given: &Given, started: impl FnOnce(&Node)) -> Result<Exit, build::Error> {
    // Files of the node are accessible only to their owner.
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
            // Nothing was accepted yet.
            () = signals.next() => return Ok(Exit::Drained),
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
            () = end => Exit::Drained,
            () = signals.next() => Exit::Forced,
        };
        if node.supervisor.failure().is_some() {
            data::remove_addresses(&folder);
            // The failed thread may hang, so nothing waits for its end.
            supervise::exit();
        }
        if ended == Exit::Forced {
            data::remove_addresses(&folder);
        }
        Ok(ended)
    });
    // A slow disk read must not delay the exit.
    runtime.shutdown_background();
    ended
}

/// Drains within some seconds. The failed thread gets no more work, and nothing waits for it.
async fn drain_after(node: &mut Node, failure: &Failure) {
    node.gateway.give_up(&failure.thread);
    let limit = supervise::drain_max(&node.config);
    node.config.gateway.drain.deadline = limit;
    if tokio::time::timeout(limit + supervise::REST_MAX, drain(node)).await.is_err() {
        tracing::warn!("the drain did not complete in time");
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
            "requests were still in progress at the deadline"
        );
    }
    let gateway = node.gateway.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || gateway.stop()).await {
        tracing::error!(%error, "the gateway failed to stop");
    }
    node.tasks.end(Phase::AfterConnections).await;
    // Pushes in progress complete, or continue at the next start.
    node.services.drain(SERVICES_DEADLINE).await;
    node.tasks.end(Phase::Last).await;
    node.store.close().await;
    // Last, so that the log includes events of all other components.
    crate::events::end(node.events.take()).await;
    data::remove_addresses(&node.config.server.data);
    tracing::info!("drained");
}

/// Blocks its own thread, since the gateway has no runtime.
async fn drain_gateway(node: &Node) {
    let config::Drain { rate, spread, deadline } = node.config.gateway.drain;
    let order = Order { rate_per_second: rate, spread, deadline: Some(deadline) };
    let gateway = node.gateway.clone();
    node.draining.send_replace(true);
    match tokio::task::spawn_blocking(move || gateway.drain(order)).await {
        Ok(true) => tracing::info!("all devices are moved"),
        Ok(false) => tracing::warn!("some devices were still connected at the deadline"),
        Err(error) => tracing::error!(%error, "the gateway failed to drain"),
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
        tracing::info!(signal = name, "signal received; stopping");
    }
}

impl Exit {
    /// The exit code of the process.
    pub fn exit_code(self) -> u8 {
        match self {
            Exit::Drained => 0,
            Exit::Forced => 1,
        }
    }
}
