//! Counts the arrivals of each event in the records of the fake Firehose, so that loss and duplicates are
//! known exactly. Events are numbered by the devices in their lines.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

pub(super) struct Arrived {
    counts: Vec<AtomicU8>,
    all: AtomicU64,
}

impl Arrived {
    /// For numbers below `events_max`.
    pub(super) fn new(events_max: usize) -> Self {
        let counts = (0..events_max).map(|_| AtomicU8::new(0)).collect();
        Self { counts, all: AtomicU64::new(0) }
    }

    pub(super) fn record(&self, record: &[u8]) {
        for line in record.split(|byte| *byte == b'\n') {
            // `"devices":[NUMBER]}` ends a line.
            let number = line.strip_suffix(b"]}").and_then(|line| line.rsplit(|byte| *byte == b'[').next());
            let number = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            if let Some(count) = number.and_then(|number| self.counts.get(number)) {
                count.fetch_add(1, Ordering::Relaxed);
                self.all.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The total, including duplicates.
    pub(super) fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// Considers the numbers below `told`.
    pub(super) fn lost_and_duplicated(&self, told: usize) -> (f64, f64) {
        let counts = || self.counts.iter().take(told).map(|count| count.load(Ordering::Relaxed));
        let doubled: u64 = counts().map(|count| u64::from(count.saturating_sub(1))).sum();
        (counts().filter(|count| *count == 0).count() as f64, doubled as f64)
    }
}
