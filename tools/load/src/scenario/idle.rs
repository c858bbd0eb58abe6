//! Idle connections: the memory per connection, as the slope over several counts, which excludes the server's
//! fixed memory, and the CPU usage.

use std::time::Duration;

use super::{Bench, Outcome, Sample, Subject, note_reasons, progress, report};
use crate::Error;
use crate::args::{Idle, check};
use crate::report::{ReportDocument, Values};
use crate::stats::slope;

pub(crate) fn run(args: &Idle) -> Result<ReportDocument, Error> {
    check(args.counts.len() >= 2, "--counts requires at least two numbers, since memory is a slope")?;
    check(
        args.counts.is_sorted_by(|a, b| a < b) && args.counts[0] > 0,
        "--counts must be ascending and positive",
    )?;
    check(!args.duration.is_zero(), "--duration must not be zero")?;
    let subject = Subject {
        speech: Some(&args.speech),
        foreign: Some(&args.foreign),
        floor: args.floor,
        ..Subject::new(&args.common, args.counts[args.counts.len() - 1])
    };
    subject.check()?;
    // A server may keep memory that it once used, so each repetition needs a new one.
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
        outcome.notes.push("measured once: a running server keeps memory that it once used".to_owned());
    }
    outcome.notes.extend(notes_on(&node.repetitions, &args.counts));
    if let Some(mut of_floor) = floor.outcome {
        of_floor.notes.extend(void_note(&floor.repetitions));
        outcome.add_floor(floor.repetitions, of_floor);
    }
    Ok(report("idle", &node.repetitions, outcome))
}

/// The range of connections over which steps of memory (growing tables, pages) average out.
const SPAN_MIN: usize = 5_000;
const LOST: &str = "connections lost";

fn notes_on(repetitions: &[Values], counts: &[usize]) -> Vec<String> {
    let span = counts[counts.len() - 1] - counts[0];
    let coarse = (span < SPAN_MIN).then(|| {
        format!("memory grows in steps: a slope over {span} connections is imprecise (use --counts over {SPAN_MIN} or more)")
    });
    void_note(repetitions).into_iter().chain(coarse).collect()
}

fn void_note(repetitions: &[Values]) -> Option<String> {
    let lost: f64 = repetitions.iter().filter_map(|values| values.get(LOST)).sum();
    (lost > 0.0)
        .then(|| format!("INVALID MEASUREMENT: {lost:.0} connections were lost, so not all were idle"))
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
    progress(&format!("observing for {} s", args.duration.as_secs_f64()));
    let from = Sample::take(bench);
    std::thread::sleep(args.duration);
    let to = Sample::take(bench);
    values.push_some(
        "server CPU while idle",
        "% of a core",
        from.server_cores(to).map(|cores| cores * 100.0),
    );
    if let Some(cpu) = from.server_until(to) {
        values.count_cpu(cpu.total_us());
    }
    // Waits for nothing: this reports the state of the connections.
    bench.crew.receive(0, Duration::ZERO)?;
    let lost = bench.crew.received()?.disconnected;
    values.push(LOST, "", lost.values().sum::<u64>() as f64);
    note_reasons(&mut bench.notes, "connections that ended", &lost);
    Ok(values)
}

/// Resident memory at each of the ascending `counts`, on a server without previous devices.
pub(super) fn weigh(bench: &mut Bench<'_>, counts: &[usize]) -> Result<Vec<(f64, f64)>, Error> {
    // The first log-in creates a device, which takes memory of its own: if possible, these log-ins use a
    // process that is not measured.
    if bench.target.can_restart() {
        bench.connect(counts.iter().copied().max().unwrap_or_default())?;
        bench.crew.disconnect()?;
        bench.target.restart()?;
    } else if bench.target.keeps_devices() {
        bench.notes.push("memory includes the creation of devices, if they were new".to_owned());
    }
    bench.connect_and_weigh(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_slopes_and_lost_connections_are_noted() {
        let repetition = |lost: f64| {
            let mut values = Values::default();
            values.push(LOST, "", lost);
            values
        };
        let few = notes_on(&[repetition(0.0)], &[1_000, 5_999]);
        assert!(few.len() == 1 && few[0].contains("4999"), "{few:?}");
        let lost = notes_on(&[repetition(3.0), repetition(0.0)], &[1_000, 6_000]);
        assert!(lost.len() == 1 && lost[0].contains("INVALID MEASUREMENT: 3"), "{lost:?}");
        assert!(notes_on(&[repetition(0.0)], &[1_000, 6_000]).is_empty());
    }
}
