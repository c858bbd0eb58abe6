//! An outage of Firehose at a constant rate: every arriving event is counted, so that loss and duplicates are
//! known exactly, and memory is sampled continuously.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_events::Metrics;
use noroshi_testkit::firehose::{Firehose, Mood};

use super::arrived::Arrived;
use super::{AT, Found, STREAM, emit, failed, found, log_to_firehose};
use crate::Error;
use crate::args::Events;
use crate::process::Process;
use crate::server::temporary_folder;

/// The time before and after the outage.
const AROUND: Duration = Duration::from_secs(5);
/// Maximum time to drain the backlog at the end.
const DRAIN: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(5);
pub(super) const MIB: f64 = 1_048_576.0;

pub(super) fn measure(args: &Events) -> Result<Found, Error> {
    let seconds = (args.outage + 2 * AROUND).as_secs() + 1;
    let events_max = usize::try_from(args.rate * seconds).unwrap_or(usize::MAX);
    let arrived = Arc::new(Arrived::new(events_max, 1));
    let records = arrived.clone();
    let fake = Firehose::start(STREAM, Arc::new(move |record: &[u8]| records.record(record)))
        .map_err(Error::system("a fake of Firehose"))?;
    fake.delay(args.answer);
    let folder = temporary_folder()?;
    let (service, metrics, _runtime) = log_to_firehose(&folder, &fake, args)?;
    let events = service.events();

    let mut run =
        Run { start: Instant::now(), emitted: 0, rate: args.rate, resident_max: 0.0, spool_max: 0.0 };
    run.until(AROUND, &events, &metrics);
    let before = resident();
    fake.behave(Mood::Away);
    run.until(AROUND + args.outage, &events, &metrics);
    let rate_at_end = run.emitted as f64 / run.start.elapsed().as_secs_f64();
    fake.behave(Mood::Well);
    let back = Instant::now();
    run.until(2 * AROUND + args.outage, &events, &metrics);
    while arrived.all() < run.emitted && back.elapsed() < DRAIN {
        std::thread::sleep(STEP);
        run.look(&metrics);
    }
    let drained = back.elapsed().as_secs_f64();
    service.drain();
    if let Some(violation) = fake.violation() {
        return Err(failed(&violation));
    }
    let fate = arrived.fate(usize::try_from(run.emitted).unwrap_or(0));
    let _ = std::fs::remove_dir_all(folder);
    let told = run.emitted as f64;
    let counts = [
        ("outage: lost", fate.lost),
        ("outage: doubled", fate.doubled),
        ("outage: out of order", fate.late),
        ("outage: told", told),
    ];
    let sizes = [
        ("outage: resident memory before", before / MIB),
        ("outage: resident memory, the most", run.resident_max / MIB),
        ("outage: spool, the most", run.spool_max / MIB),
    ];
    Ok([
        found("events/s", [("told during the outage", rate_at_end)]),
        found("events", counts),
        found("s", [("outage: drained in", drained)]),
        found("MiB", sizes),
    ]
    .concat())
}

struct Run {
    start: Instant,
    emitted: u64,
    rate: u64,
    resident_max: f64,
    spool_max: f64,
}

impl Run {
    /// Emits at the rate until `end` after the start.
    fn until(&mut self, end: Duration, events: &noroshi_events::Events, metrics: &Metrics) {
        while self.start.elapsed() < end {
            let due = (self.start.elapsed().as_secs_f64() * self.rate as f64) as u64;
            while self.emitted < due {
                emit(events, self.emitted, AT);
                self.emitted += 1;
            }
            self.look(metrics);
            std::thread::sleep(STEP);
        }
    }

    fn look(&mut self, metrics: &Metrics) {
        self.resident_max = self.resident_max.max(resident());
        self.spool_max = self.spool_max.max(metrics.waiting_bytes("firehose").1 as f64);
    }
}

pub(super) fn resident() -> f64 {
    Process::this().resident_bytes().map_or(0.0, |bytes| bytes as f64)
}
