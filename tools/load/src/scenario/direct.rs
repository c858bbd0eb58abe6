//! Requests to many users, of whom a share is connected: the main workload of the product.

use super::{Bench, Measurement, Needs, PER_DELIVERY, Sample, Subject};
use crate::args::{Direct, Pacing, check, check_counts};
use crate::payload::When;
use crate::report::{ACCEPT, DELIVERY, ReportDocument, Values};
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
        start_ns: 0,
        from_ns: 0,
        to_ns: 0,
        pace: pace(&args.pacing),
        in_flight: args.in_flight,
        connected,
        away,
        away_devices,
        when: args.when,
        data_bytes: args.payload,
    };
    let subject = Subject {
        common: &args.common,
        speech: Some(&args.speech),
        foreign: None,
        floor: args.floor,
        needs: Needs { connections: args.connections, topic: None, deliveries: connected, when: args.when },
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
        values.push("deliveries lost", "", published.lost() as f64);
        values.push_some("memory per connection", "bytes", self.memory);
        note_trouble(bench, &published);
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
    head: impl FnOnce(&Published, f64, &mut Values) -> (super::CpuNames, u64),
    values: &mut Values,
) -> Result<Published, Error> {
    bench.settle();
    let start_ns = clock::now_ns() + LEAD_NS;
    let from_ns = start_ns + clock::ns(pacing.warm_up);
    let to_ns = from_ns + clock::ns(pacing.duration);
    bench.crew.publish(&Plan { start_ns, from_ns, to_ns, ..plan.clone() })?;
    clock::sleep_until(from_ns);
    let from = Sample::take(bench);
    clock::sleep_until(to_ns);
    let to = Sample::take(bench);
    let published = bench.crew.published()?;
    if published.accepted == 0 {
        let reasons = show_reasons(&published.refused);
        let reasons = if reasons.is_empty() { "No response arrived in time.".to_owned() } else { reasons };
        return Err(Error::NothingAccepted { reasons });
    }
    let (names, count) = head(&published, (to_ns - from_ns) as f64 / 1e9, values);
    values.push_latency(&DELIVERY, &published.latency);
    values.push_latency(&ACCEPT, &published.accept);
    from.push_cpu(to, &names, count, values);
    Ok(published)
}

/// Adds notes about errors.
pub(super) fn note_trouble(bench: &mut Bench<'_>, published: &Published) {
    let refused = show_reasons(&published.refused);
    let disconnected = show_reasons(&published.disconnected);
    for (what, reasons) in [("rejected requests", refused), ("connections that ended", disconnected)] {
        if !reasons.is_empty() {
            bench.notes.push(format!("{what}: {reasons}"));
        }
    }
    if published.unsent > 0 {
        let text =
            format!("{} requests were due but could not be sent: the rate is too high", published.unsent);
        bench.notes.push(text);
    }
}
