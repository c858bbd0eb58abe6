//! The event log: the speed of writing files, the cost of emitting, the effect of a slow sink on requests, the
//! loss in an outage, the speed of sending a backlog, and order when records fail.
//!
//! Each part runs in its own process, so that its memory is separate, and with the credentials of the fake
//! Firehose in its environment, where the SDK looks for them. It prints its figures as lines of
//! `name<TAB>unit<TAB>value`.

mod arrived;
mod backlog;
mod emit;
mod fake;
mod file;
mod latency;
mod outage;
mod partial;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::ValueEnum;
use noroshi_egress::Egress;
use noroshi_events::config::{Firehose, Sink};
use noroshi_events::sink::FIREHOSE;
use noroshi_events::{Config, Metrics, Service};
use noroshi_testkit::firehose::{ENVIRONMENT, Firehose as Fake};
use noroshi_types::{AppId, DeviceNum, NotificationId, Outcome as Step, Timestamp};

use super::{Outcome, progress, report};
use crate::Error;
use crate::args::{Events, Part, check, word};
use crate::report::{ReportDocument, Values};

/// The figures of a part with their units, in display order.
type Found = Vec<(String, String, f64)>;

pub(crate) fn run(args: &Events) -> Result<ReportDocument, Error> {
    check(!args.counts.is_empty() && args.counts.is_sorted(), "--counts must be ascending numbers")?;
    check((1..=64).contains(&args.threads), "--threads must be 1 to 64")?;
    check(
        args.rate > 0 && args.each > 0 && args.requests > 0,
        "--rate, --each and --requests must be positive",
    )?;
    let mut outcome = Outcome { server: "in the processes of the parts".to_owned(), ..Outcome::default() };
    let wanted = |part: &Part| args.only.is_empty() || args.only.contains(part);
    let (parts, left): (Vec<Part>, Vec<Part>) = Part::value_variants()
        .iter()
        .copied()
        .filter(wanted)
        .partition(|part| FIREHOSE || !part.needs_firehose());
    for part in left {
        let note = format!("{} requires a build with the feature firehose", word(&part));
        outcome.notes.push(note);
    }
    let mut repetitions = vec![Values::default(); args.common.repeat as usize];
    for (number, values) in repetitions.iter_mut().enumerate() {
        for part in &parts {
            // Repeating a minute of outage gives the same result.
            if *part == Part::Outage && number > 0 {
                continue;
            }
            progress(&format!("measuring {} ({} of {})", word(part), number + 1, args.common.repeat));
            std::thread::sleep(args.common.settle);
            for (name, unit, value) in in_a_process(*part)? {
                values.push(name, unit, value);
            }
        }
    }
    Ok(report("events", &repetitions, outcome))
}

/// Runs one part in this process.
pub(crate) fn run_part(args: &Events, part: Part) -> Result<(), Error> {
    let found = match part {
        Part::File => file::measure(args),
        Part::Emit => emit::measure(args),
        Part::Latency => latency::measure(args),
        Part::Outage => outage::measure(args),
        Part::Backlog => backlog::measure(args),
        Part::Partial => partial::measure(args),
    };
    for (name, unit, value) in found? {
        println!("{name}\t{unit}\t{value}");
    }
    Ok(())
}

/// Runs the fake Firehose for another program.
pub(crate) fn run_fake(args: &Events) -> Result<(), Error> {
    fake::run(args, std::io::stdin().lock(), std::io::stdout().lock())
}

/// Runs this command in a process for one part.
fn in_a_process(part: Part) -> Result<Found, Error> {
    let program = std::env::current_exe().map_err(Error::system("own executable"))?;
    let output = Command::new(program)
        .args(std::env::args_os().skip(1))
        .args(["--part", &word(&part)])
        .envs(ENVIRONMENT)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(Error::system("a process for a part"))?;
    if !output.status.success() {
        return Err(failed(&format!("{} exited with {}", word(&part), output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = |line: &str| {
        let (name, rest) = line.split_once('\t')?;
        let (unit, value) = rest.split_once('\t')?;
        Some((name.to_owned(), unit.to_owned(), value.parse().ok()?))
    };
    Ok(text.lines().filter_map(line).collect())
}

fn failed(why: &str) -> Error {
    Error::Events(why.to_owned())
}

/// A typical event: a write to one device.
fn event(number: u64) -> noroshi_events::Event {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    let of = noroshi_events::Subject::Notification(NotificationId::from_bytes(id));
    let (app, devices) = (AppId(1), Box::new([DeviceNum(number)]));
    noroshi_events::Event::Outcome { app, of, outcome: Step::Written, devices, count: 1 }
}

/// Emits an event; waits for space if there is none.
fn emit(events: &noroshi_events::Events, number: u64, at: Timestamp) {
    let mut record = noroshi_events::Record { at, event: event(number) };
    while let Err(back) = events.try_emit(record) {
        record = back;
        std::thread::yield_now();
    }
}

fn found<const N: usize>(unit: &str, figures: [(&str, f64); N]) -> Found {
    figures.into_iter().map(|(name, value)| (name.to_owned(), unit.to_owned(), value)).collect()
}

/// What sinks on the network need.
type Network = (tokio::runtime::Handle, Arc<Egress>);

/// The stream of the fake Firehose.
const STREAM: &str = "bench";

/// A running event log to a fake of Firehose, with its metrics and its runtime.
fn log_to_firehose(
    folder: &Path,
    fake: &Fake,
    args: &Events,
) -> Result<(Service, Metrics, tokio::runtime::Runtime), Error> {
    let connection = noroshi_egress::aws::Connection { endpoint: Some(fake.origin()), region: None };
    let mut firehose = Firehose::new(connection, STREAM);
    if let Some(calls) = args.calls {
        firehose.calls = calls;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(Error::system("a runtime"))?;
    let egress = noroshi_egress::Egress::new(noroshi_egress::Config::default());
    let egress = Arc::new(egress.map_err(|error| failed(&error.to_string()))?);
    let network = Some((runtime.handle().clone(), egress));
    let (service, metrics) = log(folder, Sink::Firehose(firehose), network)?;
    Ok((service, metrics, runtime))
}

/// Emits the events below `count` on several threads: each emits those whose number, modulo the number of threads,
/// is its own. `pace` is called before each one.
fn emit_on_threads(events: &noroshi_events::Events, count: u64, threads: usize, pace: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let pace = &pace;
            scope.spawn(move || {
                for number in (thread as u64..count).step_by(threads) {
                    pace(number);
                    emit(events, number, AT);
                }
            });
        }
    });
}

/// A running event log with its metrics.
fn log(folder: &Path, sink: Sink, network: Option<Network>) -> Result<(Service, Metrics), Error> {
    let config = Config { sinks: vec![sink], ..Config::new("bench", folder.join("spool")) };
    let metrics = Metrics::new(&mut noroshi_telemetry::registry());
    // Names of apps are not needed.
    let service = Service::start(&config, Arc::new(|_| None), network, &Default::default(), &metrics);
    Ok((service.map_err(|error| failed(&error.to_string()))?, metrics))
}

/// The timestamp of events that the scenario does not read.
const AT: Timestamp = Timestamp(1_800_000_000_000);

/// The value of a sorted list that a share of the others is below.
fn percentile(sorted: &[u32], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().map_or(0.0, f64::from)
}
