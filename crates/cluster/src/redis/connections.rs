//! This node's shared connections to Redis, one to each server, and the routing of commands to the server that keeps
//! their slot.
//!
//! ```text
//!   run(commands) ─ slot ─► Topology ─► Server ─► connection (pipelined, one round trip for each server, in parallel)
//!        ▲                     ▲            │ failed: down at once, reconnects
//!        └── moved, no script ─┘◄ discovery ┘ (CLUSTER SLOTS, sentinels)
//! ```
//!
//! Nothing here waits longer than the response timeout and its repetitions; commands to a server that is down fail at
//! once. A semaphore bounds the number of waiting callers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, ServerErrorKind, Value};
use futures_util::future::join_all;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::address::{Host, Servers};
use super::dial::{Dialer, answered, error_of};
use super::server::{Context, Server};
use super::slot::Command;
use super::topology::{Topology, TopologyState};
use super::{Config, discovery, script};
use crate::Error;
use crate::metrics::{Kind, Metrics};

/// Concurrent pipelines; each has at most a few thousand commands.
const IN_FLIGHT_MAX: usize = 1_024;
/// How often redirected commands, or those without their script, are resent.
const REPETITIONS: usize = 3;

/// A handle. Works while `Connections::run` runs.
#[derive(Clone)]
pub struct Connections(Arc<Inner>);

struct Inner {
    topology: Arc<TopologyState>,
    servers: Servers,
    in_flight: Semaphore,
}

impl Connections {
    /// `watched`: a slot of everything that must be stored again after a server lost it.
    pub(crate) fn new(config: &Config, metrics: Metrics, watched: Vec<u16>) -> Self {
        let servers = config.address.servers.clone();
        let context = Context {
            dialer: Dialer::new(config),
            metrics,
            needs_master: !matches!(servers, Servers::Cluster(_)),
            refresh: Notify::new(),
        };
        let topology = Arc::new(TopologyState::new(Arc::new(context), watched));
        Self(Arc::new(Inner { topology, servers, in_flight: Semaphore::new(IN_FLIGHT_MAX) }))
    }

    /// Discovers the servers and keeps connections to them up until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        discovery::run(self.0.topology.clone(), &self.0.servers, stop).await;
    }

    /// Opens connections with this node's credentials.
    pub(crate) fn dialer(&self) -> &Dialer {
        &self.context().dialer
    }

    /// Triggers discovery of the servers.
    pub(crate) fn rediscover(&self) {
        self.context().refresh.notify_one();
    }

    fn context(&self) -> &Context {
        &self.0.topology.context
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.0.servers, Servers::Cluster(_))
    }

    /// Whether some of several servers are up.
    pub(crate) fn is_up_in_part(&self) -> bool {
        let topology = self.0.topology.load();
        self.is_cluster() && topology.servers.iter().any(|server| server.connection().is_ok())
    }

    /// Whether the server that keeps a slot is up.
    pub(crate) fn is_up(&self, slot: u16) -> bool {
        let topology = self.0.topology.load();
        topology.server(slot).is_ok_and(|server| server.connection().is_ok())
    }

    /// Increases when a server that keeps something of this node may have lost it.
    pub(crate) fn forgotten(&self) -> watch::Receiver<u64> {
        self.0.topology.forgotten()
    }

    /// The server that keeps a slot now.
    pub(crate) fn host(&self, slot: u16) -> Result<Host, Error> {
        Ok(self.0.topology.load().server(slot)?.host.clone())
    }

    /// A separate connection to the server that keeps `slot`, for commands that block; `response_timeout` must exceed
    /// their wait.
    pub(crate) async fn blocking(
        &self,
        slot: u16,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, Error> {
        let host = self.host(slot)?;
        self.context().dialer.blocking(&host, response_timeout).await
    }

    pub(crate) async fn one(&self, kind: Kind, slot: u16, cmd: Cmd) -> Result<Value, Error> {
        let mut answers = self.run_all(kind, vec![Command { slot, cmd }]).await;
        answers.pop().unwrap_or_else(|| Err(Error::Unavailable("no answer".into())))
    }

    /// One answer per command, in order. Commands to one server run in order, in one round trip. Commands that a server
    /// rejects because the slot moved or is moving, or because a script is not loaded, are repeated after the others.
    pub(crate) async fn run_all(&self, kind: Kind, commands: Vec<Command>) -> Vec<Result<Value, Error>> {
        let mut answers = self.run_once(kind, &commands).await;
        let mut redirected: Vec<Option<Host>> = vec![None; commands.len()];
        for _ in 0..REPETITIONS {
            let again: Vec<usize> = (0..answers.len()).filter(|i| is_to_repeat(&answers[*i])).collect();
            if again.is_empty() {
                break;
            }
            for i in &again {
                match error_kind(&answers[*i]) {
                    Some(ServerErrorKind::Ask) => redirected[*i] = named(&answers[*i]),
                    Some(ServerErrorKind::Moved) => redirected[*i] = None,
                    _ => {}
                }
            }
            let to = |i: &usize| Routed { command: &commands[*i], redirected: redirected[*i].as_ref() };
            let repeated: Vec<Routed<'_>> = again.iter().map(to).collect();
            let lack_script =
                again.iter().map(|i| error_kind(&answers[*i]) == Some(ServerErrorKind::NoScript));
            self.make_ready(&repeated, &lack_script.collect::<Vec<_>>()).await;
            for (i, answer) in again.into_iter().zip(self.send(kind, &repeated).await) {
                answers[i] = answer;
            }
        }
        answers.into_iter().map(|answer| self.settled(kind, answer)).collect()
    }

    async fn run_once(&self, kind: Kind, commands: &[Command]) -> Vec<Result<Value, Error>> {
        let permit = self.0.in_flight.acquire();
        match tokio::time::timeout(self.context().dialer.response_timeout(), permit).await {
            Ok(_permit) => self.send(kind, &routed(commands)).await,
            Err(_) => commands.iter().map(|_| Err(Error::Overloaded)).collect(),
        }
    }

    /// Groups the commands by server and sends them.
    async fn send(&self, kind: Kind, commands: &[Routed<'_>]) -> Vec<Result<Value, Error>> {
        let topology = self.0.topology.load();
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); topology.servers.len()];
        let mut answers: Vec<Result<Value, Error>> = Vec::with_capacity(commands.len());
        for (i, command) in commands.iter().enumerate() {
            match command.server(&topology) {
                Ok(server) => {
                    let index = topology.servers.iter().position(|other| Arc::ptr_eq(other, server));
                    groups[index.unwrap_or_default()].push(i);
                    answers.push(Ok(Value::Nil));
                }
                Err(error) => answers.push(Err(error)),
            }
        }
        let sent = groups.iter().zip(&topology.servers).filter(|(group, _)| !group.is_empty());
        let sent = sent.map(|(group, server)| self.send_to(kind, server, group, commands));
        for (group, result) in join_all(sent).await {
            match result {
                Ok(values) => group.iter().zip(values).for_each(|(i, value)| answers[*i] = Ok(value)),
                Err(error) => group.iter().for_each(|i| answers[*i] = Err(error.clone())),
            }
        }
        answers
    }

    async fn send_to<'a>(
        &self,
        kind: Kind,
        server: &Server,
        group: &'a [usize],
        commands: &[Routed<'_>],
    ) -> (&'a [usize], Result<Vec<Value>, Error>) {
        let (mut connection, number) = match server.connection() {
            Ok(up) => up,
            Err(error) => return (group, Err(error)),
        };
        let mut pipeline = ::redis::Pipeline::with_capacity(group.len());
        // The positions of the commands' answers among all answers.
        let mut wanted = Vec::with_capacity(group.len());
        for command in group.iter().map(|i| &commands[*i]) {
            if command.redirected.is_some() {
                // For the next command only: the server accepts it although it does not own the slot yet.
                pipeline.add_command(::redis::cmd("ASKING"));
            }
            wanted.push(pipeline.len());
            pipeline.add_command(command.command.cmd.clone());
        }
        self.context().metrics.commands(kind).inc_by(pipeline.len() as u64);
        let start = Instant::now();
        let answer = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await;
        self.context().metrics.round_trip.observe(start.elapsed());
        let taken = |mut all: Vec<Value>| {
            let of = |at: &usize| all.get_mut(*at).map(|value| std::mem::replace(value, Value::Nil));
            wanted.iter().filter_map(of).collect::<Vec<_>>()
        };
        let answer = answer.map(taken);
        let result: Result<Vec<Value>, Error> = answer.map_err(|error| {
            let error = error_of(&error);
            server.fail(number, &error);
            error
        });
        if let Ok(values) = &result
            && let Some(error) = values.iter().find_map(ends_connection)
        {
            server.fail(number, &error);
        }
        (group, result)
    }

    /// Loads scripts and triggers discovery, as the rejected commands need.
    async fn make_ready(&self, repeated: &[Routed<'_>], lack_script: &[bool]) {
        let of = |lacks: bool| repeated.iter().zip(lack_script).filter(move |(_, one)| **one == lacks);
        if of(false).next().is_some() {
            let topology = self.0.topology.load();
            let is_new = |host: &&Host| !topology.servers.iter().any(|server| server.host == **host);
            if let Some(host) = of(false).filter_map(|(command, _)| command.redirected).find(is_new) {
                *self.0.topology.importing.lock() = Some(host.clone());
            }
            self.context().refresh.notify_one();
            // The time of discovery's round trip; a command that comes too early is resent.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let scripts: Vec<(Vec<Command>, Option<&Host>)> =
            of(true).map(|(command, _)| (script::loads(command.command.slot), command.redirected)).collect();
        let loads = scripts.iter().flat_map(|(loads, redirected)| {
            loads.iter().map(|command| Routed { command, redirected: *redirected })
        });
        self.send(Kind::Upkeep, &loads.collect::<Vec<_>>()).await;
    }

    fn settled(&self, kind: Kind, answer: Result<Value, Error>) -> Result<Value, Error> {
        let answer = match answer {
            Ok(Value::ServerError(error)) => Err(answered(&error)),
            answer => answer,
        };
        match &answer {
            Ok(_) => {}
            Err(Error::Refused(why)) => {
                self.context().metrics.failed(kind, "refused", 1);
                tracing::warn!(why, "redis rejected a command");
            }
            Err(Error::Overloaded) => self.context().metrics.failed(kind, "overloaded", 1),
            Err(_) => self.context().metrics.failed(kind, "unavailable", 1),
        }
        answer
    }
}

/// A command, and the server to use instead of the owner of its slot.
struct Routed<'a> {
    command: &'a Command,
    redirected: Option<&'a Host>,
}

impl Routed<'_> {
    fn server<'t>(&self, topology: &'t Topology) -> Result<&'t Arc<Server>, Error> {
        let redirected = |host: &Host| topology.servers.iter().find(|server| server.host == *host);
        match self.redirected.and_then(redirected) {
            Some(server) => Ok(server),
            None => topology.server(self.command.slot),
        }
    }
}

fn routed(commands: &[Command]) -> Vec<Routed<'_>> {
    commands.iter().map(|command| Routed { command, redirected: None }).collect()
}

/// The server named in an answer while a slot is moving there: `ASK slot host:port`.
fn named(answer: &Result<Value, Error>) -> Option<Host> {
    let Ok(Value::ServerError(error)) = answer else { return None };
    let (name, port) = error.details()?.split(' ').nth(1)?.rsplit_once(':')?;
    let port = port.parse().ok()?;
    // A server that does not know its own name omits it.
    (!name.is_empty()).then(|| Host { name: name.to_owned(), port })
}

fn error_kind(answer: &Result<Value, Error>) -> Option<ServerErrorKind> {
    match answer {
        Ok(Value::ServerError(error)) => error.kind(),
        _ => None,
    }
}

/// Certainly not executed, and worth a retry.
fn is_to_repeat(answer: &Result<Value, Error>) -> bool {
    use ServerErrorKind::{Ask, Moved, NoScript, TryAgain};
    matches!(error_kind(answer), Some(NoScript | Moved | Ask | TryAgain))
}

/// A server that became a replica, or is loading its data: reconnect or wait.
fn ends_connection(answer: &Value) -> Option<Error> {
    let Value::ServerError(error) = answer else { return None };
    use ServerErrorKind::{BusyLoading, MasterDown, ReadOnly};
    matches!(error.kind(), Some(ReadOnly | BusyLoading | MasterDown)).then(|| answered(error))
}
