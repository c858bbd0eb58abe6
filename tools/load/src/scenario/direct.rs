//! Requests to many users, of whom a share is connected: the main workload of the product.

use super::{Bench, Measurement, PER_DELIVERY, Sample, Subject, note_reasons};
use crate::args::{Direct, Pacing, check, check_counts};
use crate::payload::When;
use crate::report::{ReportDocument, Values};
use crate::stats::slope;
use crate::worker::{Pace, Plan, Published, show_reasons};
use crate::{Error, clock};

/// Time between the command to the workers and the first request.
pub(super) const LEAD_NS: u64 = 50_000_000;

pub(crate) fn run(args: &Direct) -> Result<ReportDocument, Error> {
    check_counts(args.connections, args.targets, args.payload, args.in_flight)?;
    check((0.0..=1.0).contains(&args.connected_share), "--connected-share must be 0 to 1")?;
    args.pacing.check()?;
    let connected = (args.targets as f64 * args.connected_share).round() as usize;
    let processes = usize::from(args.common.processes);
    check(
        connected <= args.connections / processes,
        "a request names more connected users than a client process has: increase --connections",
    )?;
    let away = args.targets - connected;
    // As many as are connected, so that look-ups miss realistically.
    let away_devices = if away == 0 { 0 } else { args.connections.max(away) };
    check(!args.floor || args.when == When::Connected, "--floor stores nothing: omit --when")?;
    let plan = Plan {
        pace: if args.closed_loop { Pace::Answered } else { pace(&args.pacing) },
        in_flight: args.in_flight,
        connected,
        away,
        away_devices,
        when: args.when,
        data_bytes: args.payload,
        ..Plan::default()
    };
    let subject = Subject {
        speech: Some(&args.speech),
        floor: args.floor,
        deliveries: connected,
        when: args.when,
        ..Subject::new(&args.common, args.connections)
    };
    super::run("direct", &subject, || Requests { args, plan: plan.clone(), memory: None })
}

struct Requests<'a> {
    args: &'a Direct,
    plan: Plan,
    /// Bytes per connection.
    memory: Option<f64>,
}

impl Measurement for Requests<'_> {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        // Before anything else increases the server's memory.
        self.memory = slope(&bench.connect_and_weigh(&steps(self.args.connections))?);
        if self.args.when == When::Stored {
            bench.notes.push("devices ack every message; rows of offline devices are kept".to_owned());
        }
        bench.register_away(self.plan.away_devices)
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        let mut values = Values::default();
        let head = |published: &Published, seconds: f64, values: &mut Values| {
            values.push("deliveries", "1/s", published.deliveries as f64 / seconds);
            values.push("requests", "1/s", published.accepted as f64 / seconds);
            (PER_DELIVERY, published.deliveries)
        };
        let published = measure(bench, &self.plan, &self.args.pacing, head, &mut values)?;
        if published.rejected > 0 {
            let answered = published.rejected + published.accepted;
            values.push("requests rejected", "%", 100.0 * published.rejected as f64 / answered as f64);
            values.push_latency("rejection latency", &published.reject);
        }
        values.push("deliveries lost", "", published.lost() as f64);
        values.push_some("memory per connection", "bytes", self.memory);
        note_trouble(&mut bench.notes, &published, "connections that ended");
        Ok(values)
    }
}

pub(super) fn pace(pacing: &Pacing) -> Pace {
    pacing.rate.map_or(Pace::Max, Pace::Rate)
}

/// Four counts up to the total.
fn steps(connections: usize) -> Vec<usize> {
    let mut steps: Vec<usize> =
        [10, 40, 70, 100].map(|percent| (connections * percent / 100).max(1)).to_vec();
    steps.dedup();
    steps
}

/// Warms up, measures and waits for the end. `head` pushes the first figures, and returns the name and count
/// for CPU figures.
pub(super) fn measure(
    bench: &mut Bench<'_>,
    plan: &Plan,
    pacing: &Pacing,
    head: impl FnOnce(&Published, f64, &mut Values) -> (&'static str, u64),
    values: &mut Values,
) -> Result<Published, Error> {
    bench.settle();
    let plan = scheduled(plan.clone(), pacing);
    bench.crew.publish(&plan)?;
    clock::sleep_until(plan.from_ns);
    let from = Sample::take(bench);
    clock::sleep_until(plan.to_ns);
    let to = Sample::take(bench);
    let published = bench.crew.published()?;
    check_accepted(&published)?;
    let (name, count) = head(&published, pacing.duration.as_secs_f64(), values);
    values.push_latency("delivery latency", &published.latency);
    values.push_latency("accept latency", &published.accept);
    from.push_cpu(to, name, count, values);
    Ok(published)
}

/// The plan, starting soon.
pub(super) fn scheduled(plan: Plan, pacing: &Pacing) -> Plan {
    let start_ns = clock::now_ns() + LEAD_NS;
    let from_ns = start_ns + clock::ns(pacing.warm_up);
    Plan { start_ns, from_ns, to_ns: from_ns + clock::ns(pacing.duration), ..plan }
}

pub(super) fn check_accepted(published: &Published) -> Result<(), Error> {
    match (published.accepted, published.refused.is_empty()) {
        (0, true) => Err(Error::NothingAccepted { reasons: "No response arrived in time.".to_owned() }),
        (0, false) => Err(Error::NothingAccepted { reasons: show_reasons(&published.refused) }),
        _ => Ok(()),
    }
}

/// Adds notes about errors. `ended` names connections that ended.
pub(super) fn note_trouble(notes: &mut Vec<String>, published: &Published, ended: &str) {
    note_reasons(notes, "rejected requests", &published.refused);
    note_reasons(notes, ended, &published.disconnected);
    if published.unsent > 0 {
        let unsent = published.unsent;
        notes.push(format!("{unsent} requests were due but could not be sent: the rate is too high"));
    }
}
