//! This node's connections to Redis: one for commands to each server, shared by everyone, and the way of a command to
//! the server that keeps its slot.
//!
//! ```text
//!   run(commands) ─ slot ─► Topology ─► Server ─► connection (pipelined, one round trip for each server, in parallel)
//!        ▲                     ▲            │ failed: down at once, reconnects by itself
//!        └── moved, no script ─┘◄─ keeper ──┘ (CLUSTER SLOTS, sentinels)
//! ```
//!
//! Nothing here waits longer than the response timeout and a repetition of it; while a server is down its commands
//! fail at once. What waits is bounded by a semaphore.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, ServerErrorKind, Value};
use arc_swap::ArcSwap;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::address::{Host, Servers};
use super::dial::{Dialer, answered, error_of};
use super::server::Server;
use super::{Config, keeper, script};
use crate::Error;
use crate::metrics::{Kind, Metrics};

/// Pipelines on their way at once; each has at most a few thousand commands.
const IN_FLIGHT_MAX: usize = 1_024;
/// How often what moved, or lacks its script, is sent again.
const REPETITIONS: usize = 3;

/// A command and the slot of its key.
pub(crate) struct Command {
    pub(crate) slot: u16,
    pub(crate) cmd: Cmd,
}

/// A handle. `Connections::run` has to run for anything to work.
#[derive(Clone)]
pub struct Connections(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) dialer: Dialer,
    pub(crate) servers: Servers,
    pub(crate) metrics: Metrics,
    pub(crate) topology: ArcSwap<Topology>,
    /// The keeper is to look where the servers are.
    pub(crate) refresh: Notify,
    /// Servers that are replicas are of no use (Cluster says itself who the masters are).
    pub(crate) needs_master: bool,
    in_flight: Semaphore,
    /// A server that slots move to, and that keeps none yet. Guards only itself.
    pub(crate) importing: Mutex<Option<Host>>,
    /// One slot for each of what we keep: where it is kept, and by which start of the server.
    watched: Vec<u16>,
    memory: Mutex<Vec<Option<Arc<str>>>>,
    forgotten: watch::Sender<u64>,
}

/// Which server keeps which slot.
#[derive(Default)]
pub(crate) struct Topology {
    pub(crate) servers: Vec<Arc<Server>>,
    /// By slot, the index of its server and one; 0: nobody. Empty: the first server keeps all.
    pub(crate) slots: Vec<u8>,
}

impl Topology {
    fn server(&self, slot: u16) -> Result<&Arc<Server>, Error> {
        let index = match self.slots.get(usize::from(slot)) {
            None => Some(0),
            Some(index) => usize::from(*index).checked_sub(1),
        };
        let server = index.and_then(|index| self.servers.get(index));
        server.ok_or_else(|| Error::Unavailable("no server keeps this part".into()))
    }
}

impl Connections {
    /// `watched`: a slot of everything that is to be put in again after a server forgot it.
    pub(crate) fn new(config: &Config, metrics: Metrics, watched: Vec<u16>) -> Self {
        let shared = Shared {
            dialer: Dialer::new(config),
            servers: config.address.servers.clone(),
            metrics,
            topology: ArcSwap::default(),
            refresh: Notify::new(),
            needs_master: !matches!(config.address.servers, Servers::Cluster(_)),
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
            importing: Mutex::default(),
            memory: Mutex::new(vec![None; watched.len()]),
            watched,
            forgotten: watch::channel(0).0,
        };
        Self(Arc::new(shared))
    }

    /// Finds the servers and keeps connections up until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        keeper::run(self.0, stop).await;
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.0.servers, Servers::Cluster(_))
    }

    /// Of several servers some are there.
    pub(crate) fn is_up_in_part(&self) -> bool {
        let topology = self.0.topology.load();
        self.is_cluster() && topology.servers.iter().any(|server| server.connection().is_ok())
    }

    /// Whether the server that keeps a slot answers.
    pub(crate) fn is_up(&self, slot: u16) -> bool {
        let topology = self.0.topology.load();
        topology.server(slot).is_ok_and(|server| server.connection().is_ok())
    }

    /// Grows when a server that keeps something of ours may have forgotten it.
    pub(crate) fn forgotten(&self) -> watch::Receiver<u64> {
        self.0.forgotten.subscribe()
    }

    /// Where a slot is kept now.
    pub(crate) fn host(&self, slot: u16) -> Result<Host, Error> {
        Ok(self.0.topology.load().server(slot)?.host.clone())
    }

    /// A connection of one's own to the server that keeps `slot`, for commands that block; `response_timeout` must be longer
    /// than they do.
    pub(crate) async fn blocking(
        &self,
        slot: u16,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, Error> {
        let host = self.host(slot)?;
        self.0.dialer.blocking(&host, response_timeout).await
    }

    pub(crate) async fn one(&self, kind: Kind, slot: u16, cmd: Cmd) -> Result<Value, Error> {
        let mut answers = self.run_all(kind, vec![Command { slot, cmd }]).await;
        answers.pop().unwrap_or_else(|| Err(Error::Unavailable("no answer".into())))
    }

    /// One answer for each command, in order. Commands of one server go in order, in one round trip; what a server does
    /// not do because the slot moved or is about to, or a script is not loaded, is repeated, behind those that were done.
    pub(crate) async fn run_all(&self, kind: Kind, commands: Vec<Command>) -> Vec<Result<Value, Error>> {
        let mut answers = self.run_once(kind, &commands).await;
        let mut asked: Vec<Option<Host>> = vec![None; commands.len()];
        for _ in 0..REPETITIONS {
            let again: Vec<usize> = (0..answers.len()).filter(|i| is_to_repeat(&answers[*i])).collect();
            if again.is_empty() {
                break;
            }
            for i in &again {
                match error_kind(&answers[*i]) {
                    Some(ServerErrorKind::Ask) => asked[*i] = named(&answers[*i]),
                    Some(ServerErrorKind::Moved) => asked[*i] = None,
                    _ => {}
                }
            }
            let to = |i: &usize| Routed { command: &commands[*i], asked: asked[*i].as_ref() };
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
        match tokio::time::timeout(self.0.dialer.response_timeout(), permit).await {
            Ok(_permit) => self.send(kind, &routed(commands)).await,
            Err(_) => commands.iter().map(|_| Err(Error::Overloaded)).collect(),
        }
    }

    /// Groups by server and sends.
    async fn send(&self, kind: Kind, commands: &[Routed<'_>]) -> Vec<Result<Value, Error>> {
        let topology = self.0.topology.load_full();
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
        // Where the answers that were asked for stand among all.
        let mut wanted = Vec::with_capacity(group.len());
        for command in group.iter().map(|i| &commands[*i]) {
            if command.asked.is_some() {
                // Of the next command alone: the server takes it although the slot is not its own yet.
                pipeline.add_command(::redis::cmd("ASKING"));
            }
            wanted.push(pipeline.len());
            pipeline.add_command(command.command.cmd.clone());
        }
        self.0.metrics.commands(kind).inc_by(pipeline.len() as u64);
        let start = Instant::now();
        let answer = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await;
        self.0.metrics.round_trip.observe(start.elapsed());
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

    /// Loads scripts and looks where slots are, as what was not done needs it.
    async fn make_ready(&self, repeated: &[Routed<'_>], lack_script: &[bool]) {
        let of = |lacks: bool| repeated.iter().zip(lack_script).filter(move |(_, one)| **one == lacks);
        if of(false).next().is_some() {
            let topology = self.0.topology.load_full();
            let is_new = |host: &&Host| !topology.servers.iter().any(|server| server.host == **host);
            if let Some(host) = of(false).filter_map(|(command, _)| command.asked).find(is_new) {
                *self.0.importing.lock() = Some(host.clone());
            }
            self.0.refresh.notify_one();
            // The keeper's round trip; what comes too early is sent once more.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let scripts: Vec<(Vec<Command>, Option<&Host>)> =
            of(true).map(|(command, _)| (script::loads(command.command.slot), command.asked)).collect();
        let loads = scripts
            .iter()
            .flat_map(|(loads, asked)| loads.iter().map(|command| Routed { command, asked: *asked }));
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
                self.0.metrics.failed(kind, "refused", 1);
                tracing::warn!(why, "redis refused a command");
            }
            Err(Error::Overloaded) => self.0.metrics.failed(kind, "overloaded", 1),
            Err(_) => self.0.metrics.failed(kind, "unavailable", 1),
        }
        answer
    }
}

/// A command, and the server to be asked instead of the one that has its slot.
struct Routed<'a> {
    command: &'a Command,
    asked: Option<&'a Host>,
}

impl Routed<'_> {
    fn server<'t>(&self, topology: &'t Topology) -> Result<&'t Arc<Server>, Error> {
        let asked = |host: &Host| topology.servers.iter().find(|server| server.host == *host);
        match self.asked.and_then(asked) {
            Some(server) => Ok(server),
            None => topology.server(self.command.slot),
        }
    }
}

fn routed(commands: &[Command]) -> Vec<Routed<'_>> {
    commands.iter().map(|command| Routed { command, asked: None }).collect()
}

/// Whom an answer names that is to be asked while a slot moves there: `ASK slot host:port`.
fn named(answer: &Result<Value, Error>) -> Option<Host> {
    let Ok(Value::ServerError(error)) = answer else { return None };
    let (name, port) = error.details()?.split(' ').nth(1)?.rsplit_once(':')?;
    let port = port.parse().ok()?;
    // A server that does not know its own name leaves it out.
    (!name.is_empty()).then(|| Host { name: name.to_owned(), port })
}

fn error_kind(answer: &Result<Value, Error>) -> Option<ServerErrorKind> {
    match answer {
        Ok(Value::ServerError(error)) => error.kind(),
        _ => None,
    }
}

/// Certainly not done, and might be another time.
fn is_to_repeat(answer: &Result<Value, Error>) -> bool {
    use ServerErrorKind::{Ask, Moved, NoScript, TryAgain};
    matches!(error_kind(answer), Some(NoScript | Moved | Ask | TryAgain))
}

/// A server that became a replica, or loads its data, is to be looked for or waited for.
fn ends_connection(answer: &Value) -> Option<Error> {
    let Value::ServerError(error) = answer else { return None };
    use ServerErrorKind::{BusyLoading, MasterDown, ReadOnly};
    matches!(error.kind(), Some(ReadOnly | BusyLoading | MasterDown)).then(|| answered(error))
}

impl Shared {
    /// A connection came or went, or slots moved: is everything of ours still with those that had it?
    pub(crate) fn changed(&self) {
        let topology = self.topology.load();
        let up = topology.servers.iter().filter(|server| server.run_id().is_some()).count();
        self.metrics.servers.set(i64::try_from(topology.servers.len()).unwrap_or(i64::MAX));
        self.metrics.servers_up.set(i64::try_from(up).unwrap_or(i64::MAX));
        let mut memory = self.memory.lock();
        let mut forgotten = false;
        for (slot, known) in self.watched.iter().zip(memory.iter_mut()) {
            let Some(now) = topology.server(*slot).ok().and_then(|server| server.run_id()) else { continue };
            forgotten |= known.as_ref().is_some_and(|known| *known != now);
            *known = Some(now);
        }
        drop(memory);
        if forgotten {
            self.metrics.forgotten.inc();
            self.forgotten.send_modify(|count| *count += 1);
        }
    }
}
