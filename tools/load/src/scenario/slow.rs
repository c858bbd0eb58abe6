//! Slow subscribers among others: the effect on healthy ones, the cost for the server, and whether the server
//! closes slow ones.
//!
//! Each repetition publishes the same twice: to healthy devices only, and with slow ones present.

use std::time::Duration;

use super::{Bench, Measurement, Sample, Subject, note_reasons, progress};
use crate::args::{Slow, check, check_counts};
use crate::http::{Client, Request};
use crate::metrics::Metrics;
use crate::payload::push_topic_body;
use crate::process::Process;
use crate::report::{ReportDocument, Values};
use crate::worker::{Reasons, SlowPlan, SlowResults, add_reasons, show_reasons};
use crate::{Error, clock};

/// A healthy device that has not received everything this long after the last message is considered to have
/// lost messages.
const STALL_TIMEOUT_NS: u64 = 10_000_000_000;
/// Before the first phase: connections grow their socket buffers, the server its queues.
const WARM_UP: Duration = Duration::from_secs(1);
/// The interval of memory samples.
const WEIGH_EACH_NS: u64 = 100_000_000;
const CLOSED: &str = "noroshi_connections_closed_total";
const DROPPED: &str = "noroshi_slow_drops_total";

pub(crate) fn run(args: &Slow) -> Result<ReportDocument, Error> {
    check_counts(args.connections, 1, args.payload, 1)?;
    let share = |share: f64| share.is_finite() && (0.0..1.0).contains(&share);
    check(
        share(args.silent_share) && share(args.sipping_share),
        "--silent-share and --sipping-share must be 0 to 1",
    )?;
    let (silent, trickling) = slow(args);
    check(silent + trickling > 0, "no device is slow: increase the shares or --connections")?;
    check(silent + trickling < args.connections, "no device is healthy: decrease the shares")?;
    check(
        args.rate.is_finite() && (1.0..=1e4).contains(&args.rate),
        "--rate must be 1 to 10000 messages per second",
    )?;
    check(messages(args, args.duration) > 0, "--duration is too short for a message at this --rate")?;
    let plain =
        !args.common.tls && !args.common.server.as_ref().is_some_and(|url| url.starts_with("https://"));
    check(plain, "slow devices read single bytes, which TLS prevents: omit --tls")?;
    let topic = Some(format!("{}-topic", args.common.name));
    let subject = Subject { topic, when: args.when, ..Subject::new(&args.common, args.connections) };
    super::run("slow", &subject, || Slowness { args, metrics: None })
}

/// The number of devices that read nothing, and of those that read single bytes.
fn slow(args: &Slow) -> (usize, usize) {
    let of = |share: f64| (args.connections as f64 * share).round() as usize;
    (of(args.silent_share), of(args.sipping_share))
}

fn messages(args: &Slow, duration: Duration) -> u32 {
    (duration.as_secs_f64() * args.rate) as u32
}

struct Slowness<'a> {
    args: &'a Slow,
    /// `None` if unavailable.
    metrics: Option<Metrics>,
}

/// The results of one phase.
struct Outcome {
    accepted: u64,
    refused: Reasons,
    resident_before: Option<u64>,
    /// The maximum sample.
    resident_most: Option<u64>,
    watched: SlowResults,
}

impl Measurement for Slowness<'_> {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        self.metrics = bench.target.admin.as_ref().map(Metrics::open).transpose()?;
        bench.connect(self.args.connections).map(drop) // the first log-ins create the devices
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        let (silent, trickling) = slow(self.args);
        let healthy = self.args.connections - silent - trickling;
        let mut values = Values::default();
        bench.crew.disconnect()?;
        bench.crew.narrow(healthy)?;
        bench.connect(healthy)?;
        let (warm_up, each) = (messages(self.args, WARM_UP), messages(self.args, self.args.duration));
        let alone = SlowPlan { healthy, silent: 0, trickling: 0, each: warm_up, until_ns: 0, deadline_ns: 0 };
        self.publish(bench, &alone, WARM_UP)?;
        let alone = SlowPlan { each: warm_up + each, ..alone };
        self.phase(bench, &alone, "without slow peers", &mut values)?;
        bench.connect(self.args.connections)?;
        let before = self.closed_and_dropped()?;
        let beside = SlowPlan { silent, trickling, each: warm_up + 2 * each, ..alone };
        let outcome = self.phase(bench, &beside, "beside slow peers", &mut values)?;
        let grown = outcome
            .resident_most
            .zip(outcome.resident_before)
            .map(|(most, before)| most.saturating_sub(before) as f64 / (silent + trickling) as f64);
        values.push_some("server memory per slow peer", "bytes", grown);
        let after = self.closed_and_dropped()?;
        let (closed, dropped) = match before.zip(after) {
            Some((before, after)) => (after.0 - before.0, Some(after.1 - before.1)),
            None => (closed_by_client(&outcome.watched.slow_ended), None),
        };
        values.push("slow peers", "", (silent + trickling) as f64);
        values.push("slow peers closed as slow_consumer", "", closed);
        values.push_some("messages dropped at slow peers", "", dropped);
        note_reasons(&mut bench.notes, "final state of slow peers", &outcome.watched.slow_ended);
        Ok(values)
    }
}

/// From the devices' view; a close frame may not reach a slow one.
fn closed_by_client(ended: &Reasons) -> f64 {
    let told = ended.iter().filter(|(reason, _)| reason.contains("slow_consumer"));
    told.map(|(_, count)| *count).sum::<u64>() as f64
}

impl Slowness<'_> {
    /// `phase` ends the names of the figures.
    fn phase(
        &self,
        bench: &mut Bench<'_>,
        plan: &SlowPlan,
        phase: &str,
        values: &mut Values,
    ) -> Result<Outcome, Error> {
        bench.settle();
        let slow = plan.silent + plan.trickling;
        progress(&format!("publishing to {} healthy and {slow} slow devices", plan.healthy));
        let from = Sample::take(bench);
        let outcome = self.publish(bench, plan, self.args.duration)?;
        let to = Sample::take(bench);
        values.push_latency(&format!("delivery latency {phase},"), &outcome.watched.latency);
        let expected = outcome.accepted * plan.healthy as u64;
        values.push(
            format!("deliveries lost {phase}"),
            "",
            expected.saturating_sub(outcome.watched.deliveries) as f64,
        );
        let cpu_us = from.server_cores(to).map(|cores| cores * from.seconds_until(to) * 1e6);
        let deliveries = outcome.watched.deliveries.max(1) as f64;
        let name = format!("server CPU per delivery {phase}");
        values.push_some(&name, "µs", cpu_us.map(|us| us / deliveries));
        note_reasons(&mut bench.notes, "rejected requests", &outcome.refused);
        note_reasons(&mut bench.notes, "healthy connections that ended", &outcome.watched.healthy_ended);
        Ok(outcome)
    }

    /// Publishes at the rate, and samples the server's memory until slow devices are released.
    fn publish(&self, bench: &mut Bench<'_>, plan: &SlowPlan, duration: Duration) -> Result<Outcome, Error> {
        let resident = |bench: &Bench<'_>| bench.target.process.and_then(Process::resident_bytes);
        let count = messages(self.args, duration);
        let start_ns = clock::now_ns();
        let end_ns = start_ns + clock::ns(duration);
        let linger_ns = if plan.silent + plan.trickling > 0 { clock::ns(self.args.linger) } else { 0 };
        let until_ns = end_ns + linger_ns;
        let deadline_ns = until_ns + STALL_TIMEOUT_NS;
        bench.crew.start_slow(&SlowPlan { until_ns, deadline_ns, ..plan.clone() })?;
        let mut provider = Provider::new(bench, self.args)?;
        let resident_before = resident(bench);
        let mut most = resident_before;
        let mut weighed_ns = start_ns;
        let mut weigh = |now_ns: u64| {
            if now_ns >= weighed_ns + WEIGH_EACH_NS {
                weighed_ns = now_ns;
                most = most.max(resident(bench));
            }
        };
        for number in 0..count {
            let due_ns = start_ns + (f64::from(number) * 1e9 / self.args.rate) as u64;
            clock::sleep_until(due_ns);
            provider.publish(due_ns)?;
            weigh(clock::now_ns());
        }
        while clock::now_ns() < until_ns {
            clock::sleep_until(until_ns.min(clock::now_ns() + WEIGH_EACH_NS));
            weigh(clock::now_ns());
        }
        let watched = bench.crew.slow_results()?;
        if provider.accepted == 0 {
            return Err(Error::NothingAccepted { reasons: show_reasons(&provider.refused) });
        }
        let Provider { accepted, refused, .. } = provider;
        Ok(Outcome { accepted, refused, resident_before, resident_most: most, watched })
    }

    fn closed_and_dropped(&mut self) -> Result<Option<(f64, f64)>, Error> {
        let Some(metrics) = &mut self.metrics else { return Ok(None) };
        metrics.refresh()?;
        let closed = metrics.sum_of(CLOSED, "reason=\"slow_consumer\"");
        Ok(Some((closed, metrics.sum(DROPPED))))
    }
}

/// Publishes messages one by one to the common topic.
struct Provider<'a> {
    args: &'a Slow,
    client: Client,
    topic: String,
    key: String,
    body: Vec<u8>,
    accepted: u64,
    refused: Reasons,
}

impl<'a> Provider<'a> {
    fn new(bench: &Bench<'_>, args: &'a Slow) -> Result<Self, Error> {
        Ok(Self {
            args,
            client: bench.provider()?,
            topic: bench.setup().topic.clone().unwrap_or_default(),
            key: bench.setup().api_key.clone(),
            body: Vec::new(),
            accepted: 0,
            refused: Reasons::new(),
        })
    }

    fn publish(&mut self, due_ns: u64) -> Result<(), Error> {
        self.body.clear();
        push_topic_body(&mut self.body, &self.topic, self.args.when, due_ns, self.args.payload);
        let response = self.client.request(Request::notification(&self.key), &self.body)?;
        match response.status {
            200..=299 => self.accepted += 1,
            _ => add_reasons(&mut self.refused, Reasons::from([(response.problem_code(), 1)])),
        }
        Ok(())
    }
}
