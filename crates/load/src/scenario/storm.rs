//! All devices come back at once while notifications go on to others: how long until everyone is in again,
//! and what it does to deliveries meanwhile.

use super::direct::{LEAD_NS, note_trouble};
use super::{Bench, Measurement, Needs, Sample, Subject};
use crate::args::{Storm, check, check_counts};
use crate::payload::When;
use crate::report::{LatencyNames, ReportDocument, Values};
use crate::worker::{Pace, Plan, StormPlan, Stormed, show_reasons};
use crate::{Error, clock};

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
    let processes = usize::from(args.common.processes);
    check(
        args.targets <= args.steady / processes,
        "a request names more users than stay connected in a process of the client: ask for more --steady",
    )?;
    check(
        args.rate.is_finite() && (0.1..=1e5).contains(&args.rate),
        "--rate is 0.1 to 100000 requests per second",
    )?;
    check(!args.before.is_zero(), "--before must not be zero: the storm is compared with it")?;
    check(args.at_once != Some(0), "--at-once is at least 1")?;
    let connections = args.connections + args.steady;
    let needs = Needs { connections, ..Needs::default() };
    let subject = Subject { common: &args.common, foreign: None, floor: false, needs };
    super::run("storm", &subject, || Reconnects { args })
}

struct Reconnects<'a> {
    args: &'a Storm,
}

impl Measurement for Reconnects<'_> {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        bench.connect(self.args.steady + self.args.connections).map(drop)
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        bench.connect(self.args.steady + self.args.connections)?; // those that an earlier storm lost
        bench.settle();
        let start_ns = clock::now_ns() + LEAD_NS;
        let drop_ns = start_ns + clock::ns(self.args.before);
        bench.crew.storm(&self.plan(start_ns, drop_ns))?;
        clock::sleep_until(drop_ns);
        let from = Sample::take(bench);
        let stormed = bench.crew.stormed()?;
        let to = Sample::take(bench);
        self.check_back(&stormed, drop_ns)?;
        note(bench, &stormed);
        let seconds = stormed.back_ns.saturating_sub(drop_ns).max(1) as f64 / 1e9;
        let mut values = Values::default();
        values.push("time until all are back", "s", seconds);
        values.push("log-ins during the storm", "1/s", stormed.back as f64 / seconds);
        values.push("log-in latency during the storm, p99", "ms", stormed.log_in.percentile_ms(99.0));
        values.push("attempts told to come back, Retry-After", "", stormed.turned.retry_after as f64);
        values.push("attempts told to come back, close frame", "", stormed.turned.close_frame as f64);
        values.push("attempts that broke", "", stormed.turned.broken as f64);
        if stormed.handshakes.total() > 0 {
            values.push("TLS handshakes resumed", "", stormed.handshakes.resumed as f64);
            values.push("TLS handshakes in full", "", stormed.handshakes.full as f64);
        }
        values.push_latency(&BEFORE, &stormed.before);
        values.push_latency(&DURING, &stormed.during);
        values.push("deliveries during the storm", "", stormed.deliveries_during as f64);
        values.push("deliveries lost", "", stormed.published.lost() as f64);
        let steady_ended = stormed.steady_ended.values().sum::<u64>();
        values.push("connections lost that were to stay", "", steady_ended as f64);
        values.push_some("server CPU during the storm", "cores", from.server_cores(to));
        Ok(values)
    }
}

impl Reconnects<'_> {
    fn plan(&self, start_ns: u64, drop_ns: u64) -> StormPlan {
        let Storm { connections, steady, targets, rate, payload, in_flight, at_once, patience, .. } =
            *self.args;
        StormPlan {
            publish: Plan {
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
            },
            steady,
            others: connections,
            opening_max: at_once.unwrap_or(connections),
            drop_ns,
            deadline_ns: drop_ns + clock::ns(patience),
        }
    }

    fn check_back(&self, stormed: &Stormed, drop_ns: u64) -> Result<(), Error> {
        if stormed.back >= self.args.connections {
            return Ok(());
        }
        let fatal = stormed.fatal.iter().map(|reason| format!(" ({reason} ends it)")).collect::<String>();
        Err(Error::NotConnected {
            wanted: self.args.connections,
            connected: stormed.back,
            seconds: clock::now_ns().saturating_sub(drop_ns) as f64 / 1e9,
            reasons: format!("Attempts that failed: {}{fatal}. ", show_reasons(&stormed.turned.reasons)),
            advice: "More time is given with --patience".to_owned(),
        })
    }
}

/// Says what a figure does not.
fn note(bench: &mut Bench<'_>, stormed: &Stormed) {
    note_trouble(bench, &stormed.published);
    let turned = show_reasons(&stormed.turned.reasons);
    let ended = show_reasons(&stormed.steady_ended);
    for (what, reasons) in
        [("attempts that did not succeed", turned), ("connections that were to stay and ended", ended)]
    {
        if !reasons.is_empty() {
            bench.notes.push(format!("{what}: {reasons}"));
        }
    }
}
