//! The cost of emitting: each call is timed, on several threads concurrently, while the collector writes a
//! file.
//!
//! Threads pause between bursts, as serving threads do: a saturated machine would measure its scheduler.

use std::time::{Duration, Instant};

use noroshi_events::config::{File, Sink};

use super::{AT, Found, event, failed, found, log, percentile};
use crate::Error;
use crate::args::Events;
use crate::server::temporary_folder;

/// Calls between two pauses.
const BURST: u64 = 100;
const REST: Duration = Duration::from_millis(2);

pub(super) fn measure(args: &Events) -> Result<Found, Error> {
    let folder = temporary_folder()?;
    let (service, metrics) = log(&folder, Sink::File(File::new(folder.join("events"))), None)?;
    let events = service.events();
    let start = Instant::now();
    let mut times: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|_| scope.spawn(|| timed(args.each, |n| events.emit(AT, || event(n)))))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    service.drain();
    let _ = std::fs::remove_dir_all(folder);
    let mut clock = timed(args.each.min(100_000), |_| {});
    times.sort_unstable();
    clock.sort_unstable();
    if times.len() as u64 != args.each * args.threads as u64 {
        return Err(failed("a thread that emits events exited"));
    }
    let costs = [
        ("telling p50", percentile(&times, 0.5)),
        ("telling p99", percentile(&times, 0.99)),
        ("telling p99.9", percentile(&times, 0.999)),
        ("telling max", percentile(&times, 1.0)),
        ("clock alone p50", percentile(&clock, 0.5)),
    ];
    let told = found("events/s", [("told while measured", times.len() as f64 / seconds)]);
    let lost = found("events", [("lost while measured", metrics.lost_by_rings() as f64)]);
    Ok([found("ns", costs), told, lost].concat())
}

/// Nanoseconds of each call, including the clock.
fn timed(count: u64, call: impl Fn(u64)) -> Vec<u32> {
    let mut times = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for number in 0..count {
        if number % BURST == BURST - 1 {
            std::thread::sleep(REST);
        }
        let begin = Instant::now();
        call(number);
        times.push(u32::try_from(begin.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
    times
}
