//! All devices come back at once while notifications go on to others: how long until everyone is in again,
//! and what it does to deliveries meanwhile.
//!
//! Those others, and the requests to them, have a process of the client to themselves, the first.

use std::time::Duration;

use super::direct::{LEAD_NS, note_trouble};
use super::{Bench, Measurement, Needs, Sample, Subject};
use crate::args::{Common, Storm, check, check_counts};
use crate::payload::When;
use crate::report::{LatencyNames, ReportDocument, Values};
use crate::worker::{Pace, Plan, Steadied, SteadyPlan, StormPlan, Stormed, show_reasons};
use crate::{Error, clock};

/// Below what a worker is waited for.
const PATIENCE_MAX: Duration = Duration::from_secs(30 * 60);

const BEFORE: LatencyNames = LatencyNames {
    percentiles: [
        "delivery latency before, p50",
        "delivery latency before, p90",
        "delivery latency before, p99",
        "delivery latency before, p99.9",
    ],
    max: "delivery latency before, max",
};
const DURING: LatencyNames = LatencyNames {
    percentiles: [
        "delivery latency during, p50",
        "delivery latency during, p90",
        "delivery latency during, p99",
        "delivery latency during, p99.9",
    ],
    max: "delivery latency during, max",
};

pub(crate) fn run(args: &Storm) -> Result<ReportDocument, Error> {
    check_counts(args.connections, args.targets, args.payload, args.in_flight)?;
    check(
        args.targets <= args.steady,
        "a request names more users than stay connected: ask for more --steady, or fewer --targets",
    )?;
    check(
        args.rate.is_finite() && (0.1..=1e5).contains(&args.rate),
        "--rate is 0.1 to 100000 requests per second",
    )?;
    check(!args.before.is_zero(), "--before must not be zero: the storm is compared with it")?;
    check(args.at_once != Some(0), "--at-once is at least 1")?;
    check(args.patience <= PATIENCE_MAX, "--patience is at most 30m")?;
    // One process more: what is measured of those that stay must not wait for the client's own storm.
    let processes = usize::from(args.common.processes);
    let common = Common { processes: args.common.processes + 1, ..args.common.clone() };
    let most = args.connections.div_ceil(processes).max(args.steady);
    let needs = Needs { connections: most * (processes + 1), ..Needs::default() };
    let subject = Subject { common: &common, speech: None, foreign: None, floor: false, needs };
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
        bench.connect_apart(self.args.steady, self.args.connections)?; // those that were lost since
        bench.settle();
        let start_ns = clock::now_ns() + LEAD_NS;
        let storm_ns = start_ns + clock::ns(self.args.before);
        bench.crew.storm(&self.steady(start_ns, storm_ns), &self.storm(storm_ns))?;
        clock::sleep_until(storm_ns);
        let from = Sample::take(bench);
        let (steadied, stormed) = bench.crew.stormed()?;
        let to = Sample::take(bench);
        self.check_back(&stormed, storm_ns)?;
        note(bench, &steadied, &stormed);
        let mut values = Values::default();
        push_storm(&stormed, storm_ns, &mut values);
        values.push_latency(&BEFORE, &steadied.before);
        values.push_latency(&DURING, &steadied.during);
        values.push("deliveries during the storm", "", steadied.deliveries_during as f64);
        values.push("deliveries lost", "", steadied.published.lost() as f64);
        let ended = steadied.ended.values().sum::<u64>();
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
            away: 0,
            away_devices: 0,
            when: When::Connected,
            data_bytes: payload,
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

    fn check_back(&self, stormed: &Stormed, storm_ns: u64) -> Result<(), Error> {
        if stormed.back >= self.args.connections {
            return Ok(());
        }
        let fatal = stormed.fatal.as_ref().map(|reason| format!("No further attempt helps: {reason}. "));
        let failed = show_reasons(&stormed.turned.reasons);
        Err(Error::NotConnected {
            wanted: self.args.connections,
            connected: stormed.back,
            seconds: clock::now_ns().saturating_sub(storm_ns) as f64 / 1e9,
            reasons: format!("{}Attempts that failed: {failed}. ", fatal.unwrap_or_default()),
            advice: "More time is given with --patience".to_owned(),
        })
    }
}

fn push_storm(stormed: &Stormed, storm_ns: u64, values: &mut Values) {
    let Stormed { back, back_ns, log_in, handshakes, turned, .. } = stormed;
    let seconds = back_ns.saturating_sub(storm_ns).max(1) as f64 / 1e9;
    values.push("time until all are back", "s", seconds);
    values.push("log-ins during the storm", "1/s", *back as f64 / seconds);
    values.push("log-in latency during the storm, p99", "ms", log_in.percentile_ms(99.0));
    values.push("attempts told to come back, Retry-After", "", turned.retry_after as f64);
    values.push("attempts told to come back, close frame", "", turned.close_frame as f64);
    values.push("attempts that broke", "", turned.broken as f64);
    if handshakes.total() > 0 {
        values.push("TLS handshakes resumed", "", handshakes.resumed as f64);
        values.push("TLS handshakes in full", "", handshakes.full as f64);
    }
}

/// Says what a figure does not.
fn note(bench: &mut Bench<'_>, steadied: &Steadied, stormed: &Stormed) {
    note_trouble(bench, &steadied.published);
    let turned = show_reasons(&stormed.turned.reasons);
    let ended = show_reasons(&steadied.ended);
    for (what, reasons) in
        [("attempts that did not succeed", turned), ("connections that were to stay and ended", ended)]
    {
        if !reasons.is_empty() {
            bench.notes.push(format!("{what}: {reasons}"));
        }
    }
}
