//! Order, loss and duplicates when Firehose rejects every twentieth record, at a constant rate on several threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_testkit::firehose::{Firehose, Mood};

use super::arrived::Arrived;
use super::{Found, STREAM, emit_on_threads, failed, found, log_to_firehose};
use crate::Error;
use crate::args::Events;
use crate::server::temporary_folder;

/// Every n-th record fails.
const EVERY: u64 = 20;
const LASTS: Duration = Duration::from_secs(10);
/// Maximum time for the rest at the end.
const LIMIT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(5);

pub(super) fn measure(args: &Events) -> Result<Found, Error> {
    let count = args.rate * LASTS.as_secs();
    let arrived = Arc::new(Arrived::new(usize::try_from(count).unwrap_or(usize::MAX), args.threads));
    let records = arrived.clone();
    let fake = Firehose::start(STREAM, Arc::new(move |record: &[u8]| records.record(record)))
        .map_err(Error::system("a fake of Firehose"))?;
    fake.delay(args.answer);
    fake.behave(Mood::Failing { every: EVERY });
    let folder = temporary_folder()?;
    let (service, _metrics, _runtime) = log_to_firehose(&folder, &fake, args)?;
    let start = Instant::now();
    let rate = args.rate as f64;
    emit_on_threads(&service.events(), count, args.threads, |number| {
        let due = Duration::from_secs_f64(number as f64 / rate);
        if start.elapsed() < due {
            std::thread::sleep(STEP);
        }
    });
    let since = Instant::now();
    while arrived.all() < count && since.elapsed() < LIMIT {
        std::thread::sleep(STEP);
    }
    service.drain();
    let _ = std::fs::remove_dir_all(folder);
    if let Some(violation) = fake.violation() {
        return Err(failed(&violation));
    }
    let fate = arrived.fate(usize::try_from(count).unwrap_or(0));
    let counts = [
        ("failing records: events", count as f64),
        ("failing records: lost", fate.lost),
        ("failing records: doubled", fate.doubled),
        ("failing records: out of order", fate.late),
    ];
    Ok([
        found("events", counts),
        found("records", [("failing records: sent again", fake.counts().failed as f64)]),
        found("s", [("failing records: complete after the last event", since.elapsed().as_secs_f64())]),
    ]
    .concat())
}
