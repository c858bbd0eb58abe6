//! Connections that do nothing: the memory of one, as the slope over several counts so that what the
//! server needs anyway does not matter, and CPU while all of them rest.

use std::time::Duration;

use super::{Bench, Needs, Outcome, Sample, Subject, progress, report};
use crate::Error;
use crate::args::{Idle, check};
use crate::report::{ReportDocument, Values};
use crate::stats::slope;
use crate::worker::show_reasons;

pub(crate) fn run(args: &Idle) -> Result<ReportDocument, Error> {
    check(args.counts.len() >= 2, "--counts needs two numbers of connections: memory is a slope")?;
    check(args.counts.is_sorted_by(|a, b| a < b) && args.counts[0] > 0, "--counts must grow")?;
    check(!args.duration.is_zero(), "--duration must not be zero")?;
    let subject = Subject {
        common: &args.common,
        foreign: Some(&args.foreign),
        floor: args.floor,
        needs: Needs { connections: args.counts[args.counts.len() - 1], ..Needs::default() },
    };
    subject.check()?;
    // Memory that a server once had it may keep: each repetition needs a new one.
    let runs_already = args.common.server.is_some() || args.foreign.is_given();
    let repeat = if runs_already { 1 } else { args.common.repeat };
    let mut node = Column::default();
    let mut floor = Column::default();
    for number in 1..=repeat {
        progress(&format!("measuring {number} of {repeat}"));
        node.measure(subject.open()?, args)?;
        if let Some(bench) = subject.open_floor()? {
            progress(&format!("measuring {number} of {repeat} (floor)"));
            floor.measure(bench, args)?;
        }
    }
    let mut outcome = node.outcome.unwrap_or_default();
    if repeat < args.common.repeat {
        outcome.notes.push("measured once: a running server keeps memory it once had".to_owned());
    }
    if let Some(of_floor) = floor.outcome {
        outcome.add_floor(floor.repetitions, of_floor);
    }
    Ok(report("idle", &node.repetitions, outcome))
}

#[derive(Default)]
struct Column {
    repetitions: Vec<Values>,
    /// Of the last repetition.
    outcome: Option<Outcome>,
}

impl Column {
    fn measure(&mut self, bench: Bench<'_>, args: &Idle) -> Result<(), Error> {
        let (values, outcome) = bench.attempt(|bench| measure(bench, args))?;
        self.repetitions.push(values);
        self.outcome = Some(outcome);
        Ok(())
    }
}

fn measure(bench: &mut Bench<'_>, args: &Idle) -> Result<Values, Error> {
    let mut values = Values::default();
    let points = weigh(bench, &args.counts)?;
    values.push_some("memory per idle connection", "bytes", slope(&points));
    if let Some((_, resident)) = points.last() {
        values.push("resident memory, all connected", "MiB", resident / f64::from(1 << 20));
    }
    progress(&format!("watching for {} s", args.duration.as_secs_f64()));
    let from = Sample::take(bench);
    std::thread::sleep(args.duration);
    let to = Sample::take(bench);
    values.push_some(
        "server CPU while idle",
        "% of a core",
        from.server_cores(to).map(|cores| cores * 100.0),
    );
    // Nothing is waited for: this asks what became of the connections meanwhile.
    bench.crew.receive(0, Duration::ZERO)?;
    let lost = bench.crew.received()?.disconnected;
    values.push("connections lost", "", lost.values().sum::<u64>() as f64);
    if !lost.is_empty() {
        bench.notes.push(format!("connections that ended: {}", show_reasons(&lost)));
    }
    Ok(values)
}

/// Resident memory at each of `counts`, which grow, on a server that has had no devices before.
pub(super) fn weigh(bench: &mut Bench<'_>, counts: &[usize]) -> Result<Vec<(f64, f64)>, Error> {
    // Devices are made on their first log-in, which costs memory of its own: where that is possible,
    // those log-ins go to a process that is not measured.
    if bench.target.can_restart() {
        bench.connect(counts.iter().copied().max().unwrap_or_default())?;
        bench.crew.disconnect()?;
        bench.target.restart()?;
    } else if bench.target.keeps_devices() {
        bench.notes.push("memory includes what making the devices took, if they were new".to_owned());
    }
    bench.connect_and_weigh(counts)
}
