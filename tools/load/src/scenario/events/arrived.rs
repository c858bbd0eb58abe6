//! Counts the arrivals of each event in the records of the fake Firehose, so that loss, duplicates and order are
//! known exactly. Events are numbered by the devices in their lines; the number modulo the number of threads is
//! the thread that emitted it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub(super) struct Arrived {
    counts: Vec<AtomicU8>,
    all: AtomicU64,
    /// The highest number so far, by thread.
    highest: Vec<AtomicU64>,
    late: AtomicU64,
    start: Instant,
    /// When the first and the last event arrived, in nanoseconds after the start.
    first: AtomicU64,
    last: AtomicU64,
}

/// The fate of some events.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fate {
    pub(super) lost: f64,
    pub(super) doubled: f64,
    /// Arrived for the first time after a later event of the same thread.
    pub(super) late: f64,
    /// From the first arrival to the last one.
    pub(super) lasted: Duration,
}

impl Arrived {
    /// For numbers below `events_max`.
    pub(super) fn new(events_max: usize, threads: usize) -> Self {
        let counts = (0..events_max).map(|_| AtomicU8::new(0)).collect();
        let highest = (0..threads.max(1)).map(|_| AtomicU64::new(0)).collect();
        let (all, late, first, last) =
            (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX), AtomicU64::new(0));
        Self { counts, all, highest, late, start: Instant::now(), first, last }
    }

    pub(super) fn record(&self, record: &[u8]) {
        for line in record.split(|byte| *byte == b'\n') {
            // `"devices":[NUMBER]}` ends a line.
            let number = line.strip_suffix(b"]}").and_then(|line| line.rsplit(|byte| *byte == b'[').next());
            let number = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            let Some((number, count)) = number.and_then(|number| Some((number, self.counts.get(number)?)))
            else {
                continue;
            };
            self.all.fetch_add(1, Ordering::Relaxed);
            let highest = &self.highest[number % self.highest.len()];
            if count.fetch_add(1, Ordering::Relaxed) == 0
                && highest.fetch_max(number as u64, Ordering::Relaxed) > number as u64
            {
                self.late.fetch_add(1, Ordering::Relaxed);
            }
        }
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.first.fetch_min(now, Ordering::Relaxed);
        self.last.fetch_max(now, Ordering::Relaxed);
    }

    /// The total, including duplicates.
    pub(super) fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// Considers the numbers below `told`.
    pub(super) fn fate(&self, told: usize) -> Fate {
        let counts = || self.counts.iter().take(told).map(|count| count.load(Ordering::Relaxed));
        let doubled: u64 = counts().map(|count| u64::from(count.saturating_sub(1))).sum();
        let (first, last) = (self.first.load(Ordering::Relaxed), self.last.load(Ordering::Relaxed));
        Fate {
            lost: counts().filter(|count| *count == 0).count() as f64,
            doubled: doubled as f64,
            late: self.late.load(Ordering::Relaxed) as f64,
            lasted: Duration::from_nanos(last.saturating_sub(first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_duplicates_and_order_are_counted_per_thread() {
        let arrived = Arrived::new(8, 2);
        for numbers in [[1, 0], [4, 3], [2, 2], [7, 5]] {
            let line = |number| format!("{{\"devices\":[{number}]}}\n");
            arrived.record((line(numbers[0]) + &line(numbers[1])).as_bytes());
        }
        let fate = arrived.fate(8);
        // 6 is missing, 2 came twice and after 4, 5 after 7.
        assert_eq!((fate.lost, fate.doubled, fate.late), (1.0, 1.0, 2.0));
    }
}
