//! How fast the log sends a backlog to Firehose: events of several threads that waited while Firehose throttled all
//! calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_testkit::firehose::{Firehose, Mood};

use super::arrived::Arrived;
use super::outage::{MIB, resident};
use super::{Found, STREAM, emit_on_threads, failed, found, log_to_firehose};
use crate::Error;
use crate::args::Events;
use crate::process::Process;
use crate::server::temporary_folder;

/// Maximum time to send all of it.
const LIMIT: Duration = Duration::from_secs(300);
const STEP: Duration = Duration::from_millis(5);

pub(super) fn measure(args: &Events) -> Result<Found, Error> {
    let arrived = Arc::new(Arrived::new(usize::try_from(args.backlog).unwrap_or(usize::MAX), args.threads));
    let records = arrived.clone();
    let fake = Firehose::start(STREAM, Arc::new(move |record: &[u8]| records.record(record)))
        .map_err(Error::system("a fake of Firehose"))?;
    fake.delay(args.answer);
    fake.behave(Mood::Throttling);
    let folder = temporary_folder()?;
    let (service, metrics, _runtime) = log_to_firehose(&folder, &fake, args)?;
    emit_on_threads(&service.events(), args.backlog, args.threads, |_| {});
    let cpu = cpu_seconds();
    fake.behave(Mood::Well);
    let (since, mut resident_max) = (Instant::now(), 0.0_f64);
    while arrived.all() < args.backlog && since.elapsed() < LIMIT {
        std::thread::sleep(STEP);
        resident_max = resident_max.max(resident());
    }
    let cpu = cpu_seconds() - cpu;
    service.drain();
    let _ = std::fs::remove_dir_all(folder);
    if let Some(violation) = fake.violation() {
        return Err(failed(&violation));
    }
    let fate = arrived.fate(usize::try_from(args.backlog).unwrap_or(0));
    let lost_in_rings = metrics.lost_by_rings() as f64;
    let count = args.backlog as f64;
    Ok([
        found("events/s", [("backlog: sent", count / fate.lasted.as_secs_f64())]),
        found("µs", [("backlog: CPU of the log and the fake, per event", cpu * 1e6 / count)]),
        found(
            "events",
            [
                ("backlog: lost", fate.lost + lost_in_rings),
                ("backlog: doubled", fate.doubled),
                ("backlog: out of order", fate.late),
            ],
        ),
        found("calls", [("backlog: most in flight", fake.counts().in_flight_max as f64)]),
        found("MiB", [("backlog: resident memory, the most", resident_max / MIB)]),
    ]
    .concat())
}

fn cpu_seconds() -> f64 {
    Process::this().cpu().map_or(0.0, |cpu| cpu.total_us() / 1e6)
}
