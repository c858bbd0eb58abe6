//! A worker: a process that owns an [`Engine`] and executes one task at a time for the [`crate::crew`]. Its
//! standard input is [`Start`] and then one [`Command`] per line, its standard output one [`Message`] per
//! line, all in JSON; times are absolute, since all processes share one clock. It exits with its input,
//! whatever it is doing: none of its state outlives the measurement.

mod connect;
mod handshake;
mod publish;
mod receive;
mod reconnect;
mod rehome;
mod slow;
mod steady;
mod storm;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use mio::Waker;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::engine::{Engine, Setup};
use crate::partition::Partition;
use crate::{Error, clock, host};

pub(crate) use publish::Pace;

/// Counts by cause.
pub(crate) type Reasons = BTreeMap<String, u64>;

/// A worker's part, and the properties that its devices share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) setup: Setup,
    pub(crate) partition: Partition,
}

/// The next task. Counts are this worker's share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Connect devices until there are `devices`.
    Connect {
        devices: usize,
        handshakes_max: usize,
        deadline_ns: u64,
    },
    Publish(publish::Plan),
    Shake(handshake::HandshakePlan),
    /// Devices from this number on connect with small socket buffers.
    Narrow {
        from: usize,
    },
    Storm(storm::StormPlan),
    /// Publish during a storm, until [`Command::End`].
    Steady(Box<steady::SteadyPlan>),
    End,
    Watch(slow::SlowPlan),
    /// Reconnect to another node when one fails, until [`Command::End`] and all are back.
    Rehome(rehome::RehomePlan),
    /// Report the time stamps of `stored` messages since the last request.
    Kept,
    /// Wait until every device has received `each` messages since it connected; with 0, report the current
    /// state.
    Receive {
        each: u32,
        deadline_ns: u64,
    },
    /// From now on, devices do not acknowledge messages until [`Command::SendAcks`].
    HoldAcks,
    SendAcks,
    Disconnect,
}

/// A message to the crew.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Started,
    /// The results of a command.
    Report(Value),
    /// Why it exits.
    Failed(String),
}

/// Results of a command that each worker reports for its part.
pub(crate) trait Results: DeserializeOwned {
    /// Adds those of another worker.
    fn add(&mut self, other: Self);
}

pub(crate) use connect::Connected;
pub(crate) use handshake::{HandshakePlan, HandshakeResults};
pub(crate) use publish::{Plan, Published};
pub(crate) use receive::Received;
pub(crate) use reconnect::Recovery;
pub(crate) use rehome::{RehomePlan, Rehomed};
pub(crate) use slow::{SlowPlan, SlowResults};
pub(crate) use steady::{SteadyPlan, SteadyResults};
pub(crate) use storm::{StormPlan, StormResults};

enum Task {
    /// Holds the devices: answers pings.
    Rest,
    Connect(connect::Connecting),
    Publish(Box<publish::Publishing>),
    Receive(receive::Receiving),
    Shake(handshake::Handshaking),
    Storm(Box<storm::Storm>),
    Steady(Box<steady::Steady>),
    Watch(Box<slow::Watching>),
    Rehome(Box<rehome::Rehoming>),
    /// Was done at once, with these results.
    Done(Value),
}

impl Task {
    /// For a task whose plan has no end.
    fn end(&mut self) {
        match self {
            Task::Steady(steady) => steady.end(),
            Task::Rehome(rehoming) => rehoming.end(),
            _ => {}
        }
    }
}

/// The result of a task's turn.
enum Step<T> {
    /// Continue after the next event, or at this time.
    Wait(u64),
    Done(T),
}

impl<T: Serialize> Step<T> {
    fn report(self) -> Step<Value> {
        match self {
            Step::Wait(wake_ns) => Step::Wait(wake_ns),
            Step::Done(results) => Step::Done(json!(results)),
        }
    }
}

/// Runs until `input` ends, which ends the process.
pub(crate) fn run(input: impl Read + Send + 'static, mut output: impl Write) -> Result<(), Error> {
    let result = work(input, &mut output);
    if let Err(error) = &result {
        send(&mut output, &Message::Failed(error.to_string()))?;
    }
    result
}

fn work(input: impl Read + Send + 'static, output: &mut impl Write) -> Result<(), Error> {
    let mut input = BufReader::new(input).lines();
    let line = input.next().transpose().map_err(Error::system("reading commands"))?;
    let rule = "noroshi bench worker is started by other commands, which control it";
    let start = line.and_then(|line| serde_json::from_str(&line).ok());
    let Start { setup, partition } = start.ok_or_else(|| Error::Usage(rule.to_owned()))?;
    host::raise_files();
    let (mut engine, waker) = Engine::new(Arc::new(setup), partition)?;
    let (commands_end, commands) = sync_channel(1);
    std::thread::Builder::new()
        .name("load-commands".to_owned())
        .spawn(move || listen(input, &commands_end, &waker))
        .map_err(Error::system("a thread"))?;
    send(output, &Message::Started)?;
    serve(&mut engine, &commands, output)
}

/// Forwards commands. At the end of input the crew is gone, and this process is no longer needed.
#[allow(clippy::exit)] // the other thread's work is no longer needed, and nothing requires cleanup
fn listen(input: Lines<impl BufRead>, commands: &SyncSender<Command>, waker: &Waker) {
    for line in input.map_while(Result::ok) {
        let command = match serde_json::from_str(&line) {
            Ok(command) => command,
            Err(error) => {
                eprintln!("invalid command ({error}): {line}");
                std::process::exit(1);
            }
        };
        if commands.send(command).is_err() || waker.wake().is_err() {
            return; // the worker failed and reports it itself
        }
    }
    std::process::exit(0);
}

fn send(output: &mut impl Write, message: &Message) -> Result<(), Error> {
    let mut line = serde_json::to_string(message).expect("reports are plain values");
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
            Task::Connect(connecting) => connecting.step(engine).report(),
            Task::Publish(publishing) => publishing.step(engine).report(),
            Task::Receive(receiving) => receiving.step(engine).report(),
            Task::Shake(shaking) => shaking.step(engine).report(),
            Task::Storm(storm) => storm.step(engine).report(),
            Task::Steady(steady) => steady.step(engine).report(),
            Task::Watch(watching) => watching.step(engine).report(),
            Task::Rehome(rehoming) => rehoming.step(engine).report(),
            Task::Done(results) => Step::Done(results.take()),
        };
        match step {
            Step::Wait(wake_ns) => engine.turn(wake_ns)?,
            Step::Done(report) => {
                task = Task::Rest;
                send(output, &Message::Report(report))?;
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
            Task::Done(Value::Null)
        }
        Command::Shake(plan) => Task::Shake(handshake::Handshaking::new(engine, plan)),
        Command::Storm(plan) => Task::Storm(Box::new(storm::Storm::new(engine, plan))),
        Command::Steady(plan) => Task::Steady(Box::new(steady::Steady::new(engine, *plan))),
        Command::End => Task::Rest, // the task has ended already
        Command::Rehome(plan) => Task::Rehome(Box::new(rehome::Rehoming::new(engine, plan))),
        Command::Kept => {
            engine.catch_up()?; // counts what has arrived
            Task::Done(json!(engine.shared.seen.take_kept()))
        }
        Command::Watch(plan) => Task::Watch(Box::new(slow::Watching::new(engine, plan))),
        Command::Receive { each, deadline_ns } => {
            if each == 0 {
                engine.catch_up()?; // does not wait: counts what has arrived
            }
            Task::Receive(receive::Receiving::new(engine, each, deadline_ns))
        }
        Command::HoldAcks => {
            engine.shared.holds_acks = true;
            Task::Done(Value::Null)
        }
        Command::SendAcks => {
            engine.send_acks();
            Task::Done(Value::Null)
        }
        Command::Disconnect => {
            engine.disconnect();
            Task::Done(Value::Null)
        }
    })
}

/// The reasons of connections that ended since the last call.
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

/// `3x HTTP 503 busy, 1x connection reset`; empty without reasons.
pub(crate) fn show_reasons(reasons: &Reasons) -> String {
    let shown: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count}x {reason}")).collect();
    shown.join(", ")
}

/// The latest time at which a waiting task must be resumed.
fn soon(deadline_ns: u64) -> u64 {
    deadline_ns.max(clock::now_ns() + 1)
}
