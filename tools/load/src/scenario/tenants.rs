//! The isolation of tenants: an app publishes at a constant rate to connected devices, first alone and then
//! next to an app that uses its resources as fast as possible ([`noise`]). Reports both results and their
//! ratio.
//!
//! The clients of both apps share the machine with the server. The noisy ones have the lowest priority, so
//! that they take no CPU from the steady ones, as if they ran elsewhere. The report contains the CPU of the
//! server and of all clients with noise, and of the server without. A third measurement, next to threads that
//! only use as much CPU ([`control`]), shows how much of the difference the machine causes.

mod control;
mod crowd;
mod noise;
mod tenant;
mod wire;

use super::{Bench, Load, Sample, Subject, progress, report};
use crate::Error;
use crate::args::Tenants;
use crate::report::{ReportDocument, Values};
use crate::scenario::direct;
use crate::worker::{Pace, Plan, Published};
use noise::Noise;
use tenant::Tenant;

/// Requests of the steady app per second, by default.
const RATE: f64 = 100.0;
/// Maximum requests of the steady app in flight: more than its rate needs.
const IN_FLIGHT: usize = 64;

const P50_RATIO: &str = "p50, beside / alone";
const P99_RATIO: &str = "p99, beside / alone";
const DELIVERIES_RATIO: &str = "deliveries, beside / alone";

/// The report, and why it violates the requested margin, if it does.
pub(crate) type ReportWithVerdict = (ReportDocument, Option<String>);

pub(crate) fn run(args: &Tenants) -> Result<ReportWithVerdict, Error> {
    args.check()?;
    let subject = Subject::new(&args.common, args.connections);
    subject.check()?;
    let (repetitions, outcome) = subject.open()?.attempt(|bench| measure_all(args, bench))?;
    let verdict = args.within.and_then(|within| broken(&repetitions, within));
    Ok((report("tenants", &repetitions, outcome), verdict))
}

fn measure_all(args: &Tenants, bench: &mut Bench<'_>) -> Result<Vec<Values>, Error> {
    bench.connect(args.connections)?;
    progress(&format!("creating the noisy app, with {} retained messages", args.retained));
    let tenant = Tenant::make(args, bench)?;
    let mut repetitions = Vec::new();
    for number in 1..=args.common.repeat {
        progress(&format!("measuring {number} of {}, alone", args.common.repeat));
        let mut values = Values::default();
        let from = Sample::take(bench);
        measure(args, bench, "alone", &mut values)?;
        let alone = from.load_until(Sample::take(bench));
        values.push_some("alone, server CPU", "cores", alone.map(|load| load.server));
        progress(&format!("measuring {number} of {}, beside the noisy app", args.common.repeat));
        let noise = Noise::start(&tenant, args.threads)?;
        let from = Sample::take(bench);
        let measured = measure(args, bench, "beside", &mut values);
        let to = Sample::take(bench);
        let made = noise.stop();
        measured?;
        made.push(from.seconds_until(to), &mut values);
        from.push_cores(to, &mut values);
        if let (Some(alone), Some(beside)) = (alone, from.load_until(to)) {
            progress(&format!("measuring {number} of {}, the control", args.common.repeat));
            let load = Load { server: beside.server - alone.server, clients: beside.clients - alone.clients };
            let _control = control::start(load)?;
            measure(args, bench, "control", &mut values)?;
        }
        for (name, beside, compared) in [
            (P50_RATIO, "beside p50", "alone p50"),
            (P99_RATIO, "beside p99", "alone p99"),
            (DELIVERIES_RATIO, "beside, deliveries", "alone, deliveries"),
            ("p99, beside / control", "beside p99", "control p99"),
        ] {
            let value = |name| values.get(name).unwrap_or(f64::NAN);
            let ratio = value(beside) / value(compared);
            values.push(name, "", ratio);
        }
        repetitions.push(values);
    }
    bench.notes.push(
        "noisy: publishes to topics and users, wildcard subscriptions over its retained messages, log-ins with \
         bogus tokens, connections that come and go, a JWK set and Web Push services that never answer"
            .to_owned(),
    );
    Ok(repetitions)
}

fn measure(args: &Tenants, bench: &mut Bench<'_>, phase: &str, values: &mut Values) -> Result<(), Error> {
    bench.settle();
    let plan = Plan {
        pace: Pace::Rate(args.pacing.rate.unwrap_or(RATE)),
        in_flight: IN_FLIGHT,
        connected: args.targets,
        data_bytes: args.payload,
        ..Plan::default()
    };
    bench.crew.publish(&direct::scheduled(plan, &args.pacing))?;
    let published: Published = bench.crew.published()?;
    let seconds = args.pacing.duration.as_secs_f64();
    values.push(format!("{phase}, deliveries"), "1/s", published.deliveries as f64 / seconds);
    values.push_latency(phase, &published.latency);
    direct::note_trouble(&mut bench.notes, &published, "connections that ended");
    Ok(())
}

/// Compares the median of each ratio.
fn broken(repetitions: &[Values], within: f64) -> Option<String> {
    let median = |name: &str| {
        let all: Vec<f64> = repetitions.iter().filter_map(|values| values.get(name)).collect();
        crate::stats::median(&all)
    };
    let (p99, deliveries) = (median(P99_RATIO), median(DELIVERIES_RATIO));
    let percent = within * 100.0;
    if let Some(kind) = noise::kinds().find(|kind| median(kind) == 0.0) {
        return Some(format!("there were no {kind}: nothing was tested"));
    }
    // NaN is not within the margin.
    if p99.is_nan() || p99 > 1.0 + within {
        return Some(format!(
            "p99 beside the noisy app is {p99:.2} times the reference: above {percent:.0}%"
        ));
    }
    if deliveries.is_nan() || deliveries < 1.0 - within {
        return Some(format!(
            "deliveries beside the noisy app are {deliveries:.2} of the reference: below {percent:.0}%"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margin_is_compared_with_the_median() {
        let values = |p99: f64, deliveries: f64| {
            let mut values = Values::default();
            values.push(P99_RATIO, "", p99);
            values.push(DELIVERIES_RATIO, "", deliveries);
            noise::kinds().for_each(|kind| values.push(kind, "1/s", 1.0));
            values
        };
        assert_eq!(broken(&[values(1.1, 1.0), values(9.0, 0.1), values(1.0, 1.0)], 0.2), None);
        assert!(broken(&[values(1.3, 1.0)], 0.2).is_some_and(|why| why.contains("p99")));
        assert!(broken(&[values(1.0, 0.7)], 0.2).is_some_and(|why| why.contains("deliveries")));
        assert!(broken(&[values(f64::NAN, 1.0)], 0.2).is_some());
        let mut quiet = Values::default();
        quiet.push(P99_RATIO, "", 1.0);
        quiet.push(DELIVERIES_RATIO, "", 1.0);
        noise::kinds().for_each(|kind| quiet.push(kind, "1/s", 0.0));
        assert!(broken(&[quiet], 0.2).is_some_and(|why| why.contains("publishes")));
    }
}
