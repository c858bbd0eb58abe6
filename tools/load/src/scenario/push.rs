//! The client for one push service in isolation, in this process: the client of a node, against a receiver in
//! another process. Two modes: the experiment (queue messages processed on arrival, time from dequeue to
//! response), and throughput (as many as the client accepts).
//!
//! In the experiment nothing delays the queue: every message is taken at once, so waiting within the client
//! counts.

mod client;
pub(super) mod token;

use std::time::Duration;

use noroshi_testkit::{Latency, is_late};
use noroshi_types::PushService as Service;
use serde_json::json;

use super::{Outcome, progress, report};
use crate::Error;
use crate::args::{Push, check};
use crate::clock;
use crate::process::{Cpu, Process};
use crate::report::{ReportDocument, Values};
use crate::target::PushService;
use client::{Client, Run};
use token::Tokens;

/// Sent before each measurement, so that a connection is open and authorized, as in a long-running node.
const WARM_UP_PUSHES: usize = 20;
const PUSHES_MAX: usize = 5_000_000;

pub(crate) fn run(args: &Push) -> Result<ReportDocument, Error> {
    let total = |messages: &usize| messages.saturating_mul(args.users);
    let sizes: Vec<usize> = match args.pushes {
        Some(pushes) => vec![pushes],
        None => args.messages.iter().map(total).collect(),
    };
    check(sizes.iter().all(|size| (1..=PUSHES_MAX).contains(size)), "a run must have 1 to 5000000 pushes")?;
    check(args.users > 0 && args.connections > 0, "--users and --connections must be at least 1")?;
    check(
        args.server.is_none() || args.service == Service::Apns,
        "--server is for --service apns only: a receiver of another service issues access tokens or subscriptions",
    )?;
    let mut service = match &args.server {
        Some(url) => PushService::foreign(args, url)?,
        None => PushService::start(args.service)?,
    };
    let latency = args.latency.unwrap_or(match args.experiment {
        true => Latency::LogNormal { median_ms: 300.0, p99_ms: 1_500.0 },
        false => Latency::None,
    });
    service.behave(&json!({
        "latency": latency, "late": args.late, "streams_max": args.streams, "connections_max": args.cap,
    }))?;
    let tokens = Tokens::new(&mut service, sizes.iter().copied().max().unwrap_or(1))?;
    let mut outcome = Outcome { server: service.describe(), ..Outcome::default() };
    outcome.notes.extend(tokens.note());
    if args.service == Service::Fcm {
        outcome.notes.push("FCM's rate of 10,000 pushes/s per project is not observed".to_owned());
    }
    let mut repetitions = Vec::new();
    for number in 1..=args.repeat {
        let mut values = Values::default();
        for size in &sizes {
            progress(&format!("measuring {number} of {}: {size} pushes", args.repeat));
            std::thread::sleep(args.settle);
            measure(args, &mut service, &tokens, *size, &mut values, &mut outcome.notes)?;
        }
        repetitions.push(values);
    }
    Ok(report("push", &repetitions, outcome))
}

fn measure(
    args: &Push,
    service: &mut PushService,
    tokens: &Tokens,
    count: usize,
    values: &mut Values,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let client = Client::new(args, service, count)?;
    service.forget()?;
    let warm_up = if args.cold { 0 } else { WARM_UP_PUSHES };
    if warm_up > 0 {
        client.push(tokens.first("warm", warm_up), 1, args.patience)?;
    }
    let to_send = tokens.first("bench", count);
    let fake = service.process;
    let cpu = || (Process::this().cpu(), fake.and_then(Process::cpu));
    let (from, from_ns) = (cpu(), client::cpu_ns());
    let together = if args.experiment { args.users } else { 1 };
    let run = client.push(to_send, together, args.patience)?;
    let (to, to_ns) = (cpu(), client::cpu_ns());
    // A connection that is being opened is aborted at the end, which is not the receiver's fault.
    let counts = service.counts()?;
    client.end();
    if run.errors() >= count as u64 {
        return Err(Error::NothingAccepted { reasons: show_reasons(&run) });
    }
    let seconds = run.last_ns.saturating_sub(run.first_ns).max(1) as f64 / 1e9;
    let mut figures = Figures { values, count, several: args.experiment };
    figures.push("pushes a second", "1/s", count as f64 / seconds);
    figures.push_latency(&run.latencies_ms(|_| true), "");
    if let Some(late) = args.late {
        let others = run.latencies_ms(|index| !is_late(&tokens.name("bench", index), late.share));
        figures.push_latency(&others, ", without the late ones");
    }
    figures.push("client CPU per push", "µs", (to_ns - from_ns) as f64 / 1e3 / count as f64);
    let each = |from: Option<Cpu>, to: Option<Cpu>, part: fn(Cpu) -> f64| {
        from.zip(to).map(|(from, to)| part(to - from) / count as f64)
    };
    figures.push_some("client CPU per push, kernel", "µs", each(from.0, to.0, |cpu| cpu.system_us));
    figures.push_some("receiver's CPU per push", "µs", each(from.1, to.1, Cpu::total_us));
    figures.push("errors", "", run.errors() as f64);
    if let Some(counts) = counts {
        let connections = counts.connections;
        figures.push("connections", "", connections.open_max as f64);
        figures.push("connections reset or failed", "", (connections.reset + connections.failed) as f64);
        figures.push("streams refused", "", connections.streams_refused as f64);
        // Only APNs has an id for each push.
        let doubled = match args.service {
            Service::Apns => counts.ids_repeated,
            _ => counts.accepted.saturating_sub((warm_up + count) as u64),
        };
        figures.push("pushes that were doubled", "", doubled as f64);
    }
    note_errors(&run, count, notes);
    Ok(())
}

fn note_errors(run: &Run, count: usize, notes: &mut Vec<String>) {
    if run.errors() > 0 {
        notes.push(format!("rejected pushes of {count}: {}", show_reasons(run)));
    }
}

fn show_reasons(run: &Run) -> String {
    let reasons: Vec<String> =
        run.reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    reasons.join(", ")
}

/// Figures of one run size; with several sizes, each name contains the size.
struct Figures<'a> {
    values: &'a mut Values,
    count: usize,
    several: bool,
}

impl Figures<'_> {
    fn push(&mut self, name: &str, unit: &'static str, value: f64) {
        let name = match self.several {
            true => format!("{} pushes: {name}", self.count),
            false => name.to_owned(),
        };
        self.values.push(name, unit, value);
    }

    fn push_some(&mut self, name: &str, unit: &'static str, value: Option<f64>) {
        if let Some(value) = value {
            self.push(name, unit, value);
        }
    }

    /// `sorted`: milliseconds.
    fn push_latency(&mut self, sorted: &[f64], what: &str) {
        let Some((min, max)) = sorted.first().zip(sorted.last()) else { return };
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let at =
            |share: f64| sorted[((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len()) - 1];
        let figures = [("mean", mean), ("median", at(0.5)), ("p99", at(0.99)), ("max", *max), ("min", *min)];
        for (name, ms) in figures {
            self.push(&format!("dequeue to answer, {name}{what}"), "ms", ms);
        }
    }
}

/// Responses are awaited until this time.
fn deadline_ns(patience: Duration) -> u64 {
    clock::now_ns() + clock::ns(patience)
}
