//! All devices reconnect at once while other devices receive notifications: the time until all are back, and
//! the effect on deliveries.
//!
//! The other devices, and the requests to them, have the first client process to themselves.

use std::time::Duration;

use super::direct::{LEAD_NS, note_trouble};
use super::{Bench, Measurement, Sample, Subject, note_reasons};
use crate::args::{Common, Storm, check, check_counts};
use crate::report::{ReportDocument, Values};
use crate::worker::{Pace, Plan, Recovery, SteadyPlan, SteadyResults, StormPlan, StormResults};
use crate::{Error, clock};

/// The longest time that a worker waits.
const PATIENCE_MAX: Duration = Duration::from_secs(30 * 60);

pub(crate) fn run(args: &Storm) -> Result<ReportDocument, Error> {
    check_counts(args.connections, args.targets, args.payload, args.in_flight)?;
    check(
        args.targets <= args.steady,
        "a request names more users than stay connected: increase --steady or decrease --targets",
    )?;
    check(
        args.rate.is_finite() && (0.1..=1e5).contains(&args.rate),
        "--rate must be 0.1 to 100000 requests per second",
    )?;
    check(!args.before.is_zero(), "--before must not be zero: it is the reference for the storm")?;
    check(args.at_once != Some(0), "--at-once must be at least 1")?;
    check(args.patience <= PATIENCE_MAX, "--patience must be at most 30m")?;
    // An additional process, so that measurements of steady devices do not wait for the client's own storm.
    let processes = usize::from(args.common.processes);
    let common = Common { processes: args.common.processes + 1, ..args.common.clone() };
    let most = args.connections.div_ceil(processes).max(args.steady);
    let subject = Subject::new(&common, most * (processes + 1));
    super::run("storm", &subject, || Reconnects { args })
}

struct Reconnects<'a> {
    args: &'a Storm,
}

impl Measurement for Reconnects<'_> {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        bench.connect_apart(self.args.steady, self.args.connections).map(drop)
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        bench.connect_apart(self.args.steady, self.args.connections)?; // reconnects those lost in the meantime
        bench.settle();
        let start_ns = clock::now_ns() + LEAD_NS;
        let storm_ns = start_ns + clock::ns(self.args.before);
        bench.crew.start_storm(&self.steady(start_ns, storm_ns), &self.storm(storm_ns))?;
        clock::sleep_until(storm_ns);
        let from = Sample::take(bench);
        let (steady, storm) = bench.crew.storm_results()?;
        let to = Sample::take(bench);
        storm.recovery.check(self.args.connections, storm_ns)?;
        note(bench, &steady, &storm);
        let mut values = Values::default();
        push_storm(&storm, storm_ns, &mut values);
        values.push_latency("delivery latency before,", &steady.before);
        values.push_latency("delivery latency during,", &steady.during);
        values.push("deliveries during the storm", "", steady.deliveries_during as f64);
        values.push("deliveries lost", "", steady.published.lost() as f64);
        let ended = steady.ended.values().sum::<u64>();
        values.push("connections lost that were to stay", "", ended as f64);
        values.push_some("server CPU during the storm", "cores", from.server_cores(to));
        Ok(values)
    }
}

impl Reconnects<'_> {
    fn steady(&self, start_ns: u64, storm_ns: u64) -> SteadyPlan {
        let Storm { targets, rate, payload, in_flight, .. } = *self.args;
        let publish = Plan {
            start_ns,
            from_ns: start_ns,
            to_ns: u64::MAX,
            pace: Pace::Rate(rate),
            in_flight,
            connected: targets,
            data_bytes: payload,
            ..Plan::default()
        };
        SteadyPlan { publish, storm_ns }
    }

    fn storm(&self, storm_ns: u64) -> StormPlan {
        let Storm { connections, at_once, patience, .. } = *self.args;
        StormPlan {
            devices: connections,
            opening_max: at_once.unwrap_or(connections),
            storm_ns,
            deadline_ns: storm_ns + clock::ns(patience),
        }
    }
}

fn push_storm(storm: &StormResults, storm_ns: u64, values: &mut Values) {
    let StormResults { recovery, handshakes } = storm;
    let Recovery { back, back_ns, log_in, failed_attempts, .. } = recovery;
    let seconds = back_ns.saturating_sub(storm_ns).max(1) as f64 / 1e9;
    values.push("time until all are back", "s", seconds);
    values.push("log-ins during the storm", "1/s", *back as f64 / seconds);
    values.push("log-in latency during the storm, p99", "ms", log_in.percentile_ms(99.0));
    values.push("attempts told to come back, Retry-After", "", failed_attempts.retry_after as f64);
    values.push("attempts told to come back, close frame", "", failed_attempts.close_frame as f64);
    values.push("attempts that broke", "", failed_attempts.broken as f64);
    if handshakes.total() > 0 {
        values.push("TLS handshakes resumed", "", handshakes.resumed as f64);
        values.push("TLS handshakes in full", "", handshakes.full as f64);
    }
}

/// Adds notes about errors.
fn note(bench: &mut Bench<'_>, steady: &SteadyResults, storm: &StormResults) {
    note_trouble(&mut bench.notes, &steady.published, "connections that ended");
    note_reasons(&mut bench.notes, "failed attempts", &storm.recovery.failed_attempts.reasons);
    note_reasons(&mut bench.notes, "steady connections that ended", &steady.ended);
}
