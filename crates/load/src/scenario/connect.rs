//! Log-ins: connect, upgrade, token, session, subscriptions and inbox, until `ready`.

use super::{Bench, PER_LOG_IN, Sample, progress, report};
use crate::Error;
use crate::args::{Connect, check};
use crate::report::{LOG_IN, ReportDocument, Values};
use crate::worker::Connected;

pub(crate) fn run(args: &Connect) -> Result<ReportDocument, Error> {
    check(args.connections > 0, "at least one device is needed")?;
    let bench = Bench::open(&args.common, args.connections, None)?;
    let (repetitions, outcome) = bench.attempt(|bench| {
        let first = bench.connect(args.connections)?;
        let first_rate = log_ins_per_second(&first);
        let mut repetitions = Vec::new();
        for number in 1..=args.common.repeat {
            progress(&format!("measuring {number} of {}", args.common.repeat));
            bench.crew.disconnect()?;
            bench.settle();
            let mut values = round(bench, args.connections)?;
            if number == 1 {
                values.push("first log-ins, which make the devices", "1/s", first_rate);
                values.push("first log-in latency max", "ms", first.log_in.max_ms());
            }
            repetitions.push(values);
        }
        Ok(repetitions)
    })?;
    Ok(report("connect", &repetitions, outcome))
}

fn round(bench: &mut Bench<'_>, connections: usize) -> Result<Values, Error> {
    let from = Sample::take(bench);
    let connected = bench.connect(connections)?;
    let to = Sample::take(bench);
    let mut values = Values::default();
    values.push("log-ins", "1/s", log_ins_per_second(&connected));
    values.push_latency(&LOG_IN, &connected.log_in);
    from.push_cpu(to, &PER_LOG_IN, connections as u64, &mut values);
    Ok(values)
}

fn log_ins_per_second(connected: &Connected) -> f64 {
    let ns = connected.last_log_in_ns.saturating_sub(connected.first_open_ns).max(1);
    connected.devices as f64 / (ns as f64 / 1e9)
}
