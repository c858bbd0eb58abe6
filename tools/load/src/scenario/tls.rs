//! The cost of TLS: handshakes with and without resumption, and the memory of an idle connection. Each
//! repetition has its own server, as required for memory.

use std::time::Duration;

use super::{Bench, Outcome, Sample, Subject, note_reasons, progress, report};
use crate::args::{Common, Tls, check};
use crate::report::{ReportDocument, Values};
use crate::stats::slope;
use crate::worker::{HandshakePlan, HandshakeResults, show_reasons};
use crate::{Error, clock};

/// The slowest rate of handshakes that is measured, per second.
const HANDSHAKES_PER_SECOND_MIN: u64 = 50;

pub(crate) fn run(args: &Tls) -> Result<ReportDocument, Error> {
    check(args.count > 0, "--count must be at least 1")?;
    check(args.count <= 50_000, "--count must be at most 50000, since a ticket is kept for each")?;
    check(args.counts.len() >= 2, "--counts requires at least two numbers, since memory is a slope")?;
    check(
        args.counts.is_sorted_by(|a, b| a < b) && args.counts[0] > 0,
        "--counts must be ascending and positive",
    )?;
    let secure = args.common.server.as_ref().is_none_or(|url| url.starts_with("https://"));
    check(secure, "--server must be https://… to measure TLS")?;
    let common = Common { tls: args.common.server.is_none(), ..args.common.clone() };
    let most = args.counts[args.counts.len() - 1].max(common.handshakes as usize);
    let subject = Subject::new(&common, most);
    subject.check()?;
    let (mut repetitions, mut last) = (Vec::new(), None);
    for number in 1..=common.repeat {
        progress(&format!("measuring {number} of {}", common.repeat));
        // A running server may keep memory that it once used: there it is measured once.
        let weigh = number == 1 || common.server.is_none();
        let (values, outcome) = subject.open()?.attempt(|bench| measure(bench, args, weigh))?;
        repetitions.push(values);
        last = Some(outcome);
    }
    let outcome = last.unwrap_or_else(Outcome::default);
    Ok(report("tls", &repetitions, outcome))
}

fn measure(bench: &mut Bench<'_>, args: &Tls, weigh: bool) -> Result<Values, Error> {
    let mut values = Values::default();
    if weigh {
        let memory = super::idle::weigh(bench, &args.counts)?;
        values.push_some("memory per idle TLS connection", "bytes", slope(&memory));
        bench.crew.disconnect()?;
        bench.settle();
    }
    shake(bench, args.count, "full", false, &mut values)?;
    bench.settle();
    let results = shake(bench, args.count, "resumed", true, &mut values)?;
    values.push("handshakes resumed, where tickets were used", "", results.handshakes.resumed as f64);
    values.push("handshakes full, where tickets were used", "", results.handshakes.full as f64);
    Ok(values)
}

fn shake(
    bench: &mut Bench<'_>,
    count: usize,
    kind: &str,
    resume: bool,
    values: &mut Values,
) -> Result<HandshakeResults, Error> {
    progress(&format!("{count} {kind} handshakes"));
    let timeout = Duration::from_secs(30 + count as u64 / HANDSHAKES_PER_SECOND_MIN);
    let from = Sample::take(bench);
    let results = bench.crew.shake(&HandshakePlan {
        count,
        opening_max: bench.common.handshakes as usize,
        resume,
        deadline_ns: clock::now_ns() + clock::ns(timeout),
    })?;
    let to = Sample::take(bench);
    let done = results.handshakes.total();
    if done == 0 {
        return Err(Error::NothingAccepted { reasons: show_reasons(&results.failed) });
    }
    note_reasons(&mut bench.notes, &format!("{kind} handshakes that failed"), &results.failed);
    let seconds = results.last_ns.saturating_sub(results.first_open_ns).max(1) as f64 / 1e9;
    values.push(format!("{kind} handshakes"), "1/s", done as f64 / seconds);
    values.push_latency(&format!("{kind} handshake latency"), &results.latency);
    from.push_cpu_each(to, &format!("server CPU per {kind} handshake"), done, values);
    values.push_some(&format!("server CPU, {kind} handshakes"), "cores", from.server_cores(to));
    Ok(results)
}
