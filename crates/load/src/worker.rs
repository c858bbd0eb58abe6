//! One worker: a thread that owns an [`Engine`] and does one task at a time as the [`crate::crew`] tells
//! it. Commands and reports are plain values and moments are absolute, so a worker may as well be another
//! process.

mod connect;
mod publish;
mod receive;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};

use mio::Waker;

use crate::engine::{Engine, Setup};
use crate::partition::Partition;
use crate::stats::Latency;
use crate::{Error, clock};

pub(crate) use publish::Pace;

/// How often something happened, by its cause.
pub(crate) type Reasons = BTreeMap<String, u64>;

/// What to do next. Counts are this worker's share.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Bring up devices until there are `devices`.
    Connect {
        devices: usize,
        handshakes_max: usize,
        deadline_ns: u64,
    },
    Publish(publish::Plan),
    /// Wait until every device has had `each` messages since it connected.
    Receive {
        each: u32,
        deadline_ns: u64,
    },
    Disconnect,
}

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) enum Report {
    Connected(connect::Connected),
    Published(Box<publish::Published>),
    Received(Box<receive::Received>),
    Disconnected,
}

pub(crate) use connect::Connected;
pub(crate) use publish::{Plan, Published};
pub(crate) use receive::Received;

enum Task {
    /// Devices are held: pings are answered.
    Rest,
    Connect(connect::Connecting),
    Publish(Box<publish::Publishing>),
    Receive(receive::Receiving),
}

/// What a task wants after it was given a turn.
pub(crate) enum Step {
    /// To be asked again after the next event, or at this moment.
    Wait(u64),
    Done(Report),
}

/// Runs until the crew drops its end.
pub(crate) fn run(
    setup: Arc<Setup>,
    partition: Partition,
    commands: &Receiver<Command>,
    reports: &SyncSender<Result<Report, Error>>,
    started: impl FnOnce(Waker),
) {
    let result = Engine::new(setup, partition).and_then(|(mut engine, waker)| {
        started(waker);
        serve(&mut engine, commands, reports)
    });
    if let Err(error) = result {
        // Nobody listens any more if this fails, which is then no news either.
        let _ = reports.send(Err(error));
    }
}

fn serve(
    engine: &mut Engine,
    commands: &Receiver<Command>,
    reports: &SyncSender<Result<Report, Error>>,
) -> Result<(), Error> {
    let mut task = Task::Rest;
    loop {
        if matches!(task, Task::Rest) {
            match commands.try_recv() {
                Ok(command) => task = begin(engine, command),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        let step = match &mut task {
            Task::Rest => Step::Wait(u64::MAX),
            Task::Connect(connecting) => connecting.step(engine),
            Task::Publish(publishing) => publishing.step(engine),
            Task::Receive(receiving) => receiving.step(engine),
        };
        match step {
            Step::Wait(wake_ns) => engine.turn(wake_ns)?,
            Step::Done(report) => {
                task = Task::Rest;
                if reports.send(Ok(report)).is_err() {
                    return Ok(());
                }
            }
        }
    }
}

fn begin(engine: &mut Engine, command: Command) -> Task {
    match command {
        Command::Connect { devices, handshakes_max, deadline_ns } => {
            Task::Connect(connect::Connecting::new(engine, devices, handshakes_max, deadline_ns))
        }
        Command::Publish(plan) => Task::Publish(Box::new(publish::Publishing::new(engine, plan))),
        Command::Receive { each, deadline_ns } => {
            Task::Receive(receive::Receiving::new(engine, each, deadline_ns))
        }
        Command::Disconnect => {
            engine.disconnect();
            Task::Receive(receive::Receiving::nothing())
        }
    }
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
