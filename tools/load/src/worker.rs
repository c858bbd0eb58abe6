//! One worker: a process that owns an [`Engine`] and does one task at a time as the [`crate::crew`] tells
//! it. Its standard input is [`Start`] and then a [`Command`] a line, its standard output a [`Said`] a line,
//! all as JSON; moments are absolute, since all processes read one clock. It ends when its input does,
//! whatever it is doing: nothing it holds outlives the measurement.

mod comeback;
mod connect;
mod handshake;
mod publish;
mod receive;
mod rehome;
mod slow;
mod steady;
mod storm;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use mio::Waker;
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Setup};
use crate::partition::Partition;
use crate::stats::Latency;
use crate::{Error, clock, host};

pub(crate) use publish::Pace;

/// How often something happened, by its cause.
pub(crate) type Reasons = BTreeMap<String, u64>;

/// Who a worker is, and what all its devices have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) setup: Setup,
    pub(crate) partition: Partition,
}

/// What to do next. Counts are this worker's share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Bring up devices until there are `devices`.
    Connect {
        devices: usize,
        handshakes_max: usize,
        deadline_ns: u64,
    },
    Publish(publish::Plan),
    Shake(handshake::HandshakePlan),
    /// Devices from this number on connect as over a narrow network.
    Narrow {
        from: usize,
    },
    Storm(storm::StormPlan),
    /// Publish through a storm, until [`Command::End`].
    Steady(Box<steady::SteadyPlan>),
    End,
    Watch(slow::SlowPlan),
    /// Come back elsewhere when a node dies, until [`Command::End`] and all are back.
    Rehome(rehome::RehomePlan),
    /// Tell the stamps of `stored` messages since this was last asked.
    Kept,
    /// Wait until every device has had `each` messages since it connected; with 0, tell what came meanwhile.
    Receive {
        each: u32,
        deadline_ns: u64,
    },
    Disconnect,
}

/// What a worker tells the crew.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    Started,
    Report(Report),
    /// Why it ends.
    Failed(String),
}

/// What came of a command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Report {
    Connected(connect::Connected),
    Published(Box<publish::Published>),
    Received(Box<receive::Received>),
    Shaken(Box<handshake::Shaken>),
    Stormed(Box<storm::Stormed>),
    Steadied(Box<steady::Steadied>),
    Watched(Box<slow::Watched>),
    Rehomed(Box<rehome::Rehomed>),
    Kept(Vec<u64>),
    Disconnected,
    Narrowed,
}

pub(crate) use connect::Connected;
pub(crate) use handshake::{HandshakePlan, Shaken};
pub(crate) use publish::{Plan, Published};
pub(crate) use receive::Received;
pub(crate) use rehome::{RehomePlan, Rehomed};
pub(crate) use slow::{SlowPlan, Watched};
pub(crate) use steady::{Steadied, SteadyPlan};
pub(crate) use storm::{StormPlan, Stormed};

enum Task {
    /// Devices are held: pings are answered.
    Rest,
    Connect(connect::Connecting),
    Publish(Box<publish::Publishing>),
    Receive(receive::Receiving),
    Narrow,
    Shake(handshake::Shaking),
    Storm(Box<storm::Storm>),
    Steady(Box<steady::Steady>),
    Watch(Box<slow::Watching>),
    Rehome(Box<rehome::Rehoming>),
    Kept,
}

impl Task {
    /// For a task whose end is not in its plan.
    fn end(&mut self) {
        match self {
            Task::Steady(steady) => steady.end(),
            Task::Rehome(rehoming) => rehoming.end(),
            _ => {}
        }
    }
}

/// What a task wants after it was given a turn.
pub(crate) enum Step {
    /// To be asked again after the next event, or at this moment.
    Wait(u64),
    Done(Report),
}

/// Runs until `input` ends, which ends the process.
pub(crate) fn run(input: impl Read + Send + 'static, mut output: impl Write) -> Result<(), Error> {
    let result = work(input, &mut output);
    if let Err(error) = &result {
        say(&mut output, &Said::Failed(error.to_string()))?;
    }
    result
}

fn work(input: impl Read + Send + 'static, output: &mut impl Write) -> Result<(), Error> {
    let mut input = BufReader::new(input).lines();
    let line = input.next().transpose().map_err(Error::system("reading commands"))?;
    let rule = "noroshi bench worker is started by the other commands, which tell it what to do";
    let start = line.and_then(|line| serde_json::from_str(&line).ok());
    let Start { setup, partition } = start.ok_or_else(|| Error::Usage(rule.to_owned()))?;
    host::raise_files();
    let (mut engine, waker) = Engine::new(Arc::new(setup), partition)?;
    let (commands_end, commands) = sync_channel(1);
    std::thread::Builder::new()
        .name("load-commands".to_owned())
        .spawn(move || listen(input, &commands_end, &waker))
        .map_err(Error::system("a thread"))?;
    say(output, &Said::Started)?;
    serve(&mut engine, &commands, output)
}

/// Hands commands on. Whoever gave them is gone when they end, and so is the reason for this process.
#[allow(clippy::exit)] // what the other thread is amid is of no use to anybody, and nothing has to be finished
fn listen(input: Lines<impl BufRead>, commands: &SyncSender<Command>, waker: &Waker) {
    for line in input.map_while(Result::ok) {
        let command = match serde_json::from_str(&line) {
            Ok(command) => command,
            Err(error) => {
                eprintln!("this is no command ({error}): {line}");
                std::process::exit(1);
            }
        };
        if commands.send(command).is_err() || waker.wake().is_err() {
            return; // the worker failed and says so itself
        }
    }
    std::process::exit(0);
}

fn say(output: &mut impl Write, said: &Said) -> Result<(), Error> {
    let mut line = serde_json::to_string(said).expect("reports are plain values");
    line.push('\n');
    let written = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    written.map_err(Error::system("writing a report"))
}

fn serve(engine: &mut Engine, commands: &Receiver<Command>, output: &mut impl Write) -> Result<(), Error> {
    let mut task = Task::Rest;
    loop {
        if matches!(task, Task::Rest | Task::Steady(_) | Task::Rehome(_)) {
            match commands.try_recv() {
                Ok(Command::End) => task.end(),
                Ok(command) => task = begin(engine, command)?,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        let step = match &mut task {
            Task::Rest => Step::Wait(u64::MAX),
            Task::Connect(connecting) => connecting.step(engine),
            Task::Publish(publishing) => publishing.step(engine),
            Task::Receive(receiving) => receiving.step(engine),
            Task::Narrow => Step::Done(Report::Narrowed),
            Task::Shake(shaking) => shaking.step(engine),
            Task::Storm(storm) => storm.step(engine),
            Task::Steady(steady) => steady.step(engine),
            Task::Watch(watching) => watching.step(engine),
            Task::Rehome(rehoming) => rehoming.step(engine),
            Task::Kept => Step::Done(Report::Kept(engine.shared.seen.take_kept())),
        };
        match step {
            Step::Wait(wake_ns) => engine.turn(wake_ns)?,
            Step::Done(report) => {
                task = Task::Rest;
                say(output, &Said::Report(report))?;
            }
        }
    }
}

fn begin(engine: &mut Engine, command: Command) -> Result<Task, Error> {
    Ok(match command {
        Command::Connect { devices, handshakes_max, deadline_ns } => {
            Task::Connect(connect::Connecting::new(engine, devices, handshakes_max, deadline_ns))
        }
        Command::Publish(plan) => Task::Publish(Box::new(publish::Publishing::new(engine, plan))),
        Command::Narrow { from } => {
            engine.narrow_from = from;
            Task::Narrow
        }
        Command::Shake(plan) => Task::Shake(handshake::Shaking::new(engine, plan)),
        Command::Storm(plan) => Task::Storm(Box::new(storm::Storm::new(engine, plan))),
        Command::Steady(plan) => Task::Steady(Box::new(steady::Steady::new(engine, *plan))),
        Command::End => Task::Rest, // what was to end has ended
        Command::Rehome(plan) => Task::Rehome(Box::new(rehome::Rehoming::new(engine, plan))),
        Command::Kept => {
            engine.catch_up()?; // what has arrived counts
            Task::Kept
        }
        Command::Watch(plan) => Task::Watch(Box::new(slow::Watching::new(engine, plan))),
        Command::Receive { each, deadline_ns } => {
            if each == 0 {
                engine.catch_up()?; // nothing is waited for: what is there counts
            }
            Task::Receive(receive::Receiving::new(engine, each, deadline_ns))
        }
        Command::Disconnect => {
            engine.disconnect();
            Task::Receive(receive::Receiving::nothing())
        }
    })
}

/// Why connections ended since this was last asked.
fn drain_ended(engine: &mut Engine, into: &mut Reasons) {
    for (_, ended) in engine.ended.drain(..) {
        *into.entry(ended.reason).or_default() += 1;
    }
}

pub(crate) fn add_reasons(into: &mut Reasons, from: Reasons) {
    for (reason, count) in from {
        *into.entry(reason).or_default() += count;
    }
}

/// `3x HTTP 503 busy, 1x connection reset`; empty for none.
pub(crate) fn show_reasons(reasons: &Reasons) -> String {
    let shown: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count}x {reason}")).collect();
    shown.join(", ")
}

/// The earliest moment at which a task that waits for events has to look again.
fn soon(deadline_ns: u64) -> u64 {
    deadline_ns.max(clock::now_ns() + 1)
}

fn take_latency(latency: &mut Latency) -> Latency {
    std::mem::replace(latency, Latency::new())
}
