//! Counts the accepted pushes that no write to the store has, over all batches of this process, and decides when batches
//! write a part of their results.
//!
//! A killed process repeats these pushes, besides those without an answer. So a part is due after [`PART_MIN`] of them
//! or [`PART_AFTER`]. A write costs the same for one push as for hundreds: with many batches in flight a part waits for
//! [`PER_BATCH`] pushes of each on average, which only happens at rates of tens of thousands of pushes a second.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Below 100 together with those that arrive while the last part is written: 50 + 5,000 a second × 10 ms.
const PART_MIN: usize = 50;
const PER_BATCH: usize = 32;
const PART_AFTER: Duration = Duration::from_millis(50);
/// Between two parts.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(crate) struct Unwritten {
    pushes: AtomicUsize,
    /// Batches with such pushes.
    batches: AtomicUsize,
    /// There are some.
    some: Notify,
    /// There are enough for a part.
    enough: Notify,
    due: Notify,
}

impl Unwritten {
    /// A push was accepted; `first`: its batch had no such push.
    pub(crate) fn add(&self, first: bool) {
        let batches = self.batches.fetch_add(usize::from(first), Ordering::Relaxed) + usize::from(first);
        let before = self.pushes.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            self.some.notify_one();
        }
        if before + 1 >= PART_MIN.max(PER_BATCH * batches) {
            self.enough.notify_one();
        }
    }

    /// All such pushes of a batch are on their way to the store, or the batch is given up.
    pub(crate) fn remove(&self, pushes: usize) {
        if pushes > 0 {
            self.pushes.fetch_sub(pushes, Ordering::Relaxed);
            self.batches.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Completes when the batches in flight should write a part.
    pub(crate) fn due(&self) -> Notified<'_> {
        self.due.notified()
    }

    /// Decides when parts are due, forever. Cancel-safe.
    pub(crate) async fn pace(&self) {
        self.pace_by(PART_AFTER).await;
    }

    async fn pace_by(&self, part_after: Duration) {
        loop {
            if self.pushes.load(Ordering::Relaxed) == 0 {
                self.some.notified().await;
            }
            let _ = tokio::time::timeout(part_after, self.enough.notified()).await;
            self.due.notify_waiters();
            tokio::time::sleep(PAUSE).await;
        }
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        (self.pushes.load(Ordering::Relaxed), self.batches.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const NEVER: Duration = Duration::from_secs(3_600);
    const DEADLINE: Duration = Duration::from_secs(60);

    /// Whether parts are due after these pushes, which belong to this many batches.
    async fn is_due(part_after: Duration, pushes: usize, batches: usize, deadline: Duration) -> bool {
        let unwritten = Arc::new(Unwritten::default());
        let pacing = unwritten.clone();
        let pacer = tokio::spawn(async move { pacing.pace_by(part_after).await });
        let due = unwritten.due();
        (0..pushes).for_each(|number| unwritten.add(number < batches));
        let due = tokio::time::timeout(deadline, due).await.is_ok();
        // Each batch takes its own.
        for number in 0..batches {
            unwritten.remove(pushes / batches + usize::from(number < pushes % batches));
        }
        assert_eq!(unwritten.counts(), (0, 0));
        pacer.abort();
        due
    }

    #[tokio::test]
    async fn a_part_is_due_by_number_or_by_time() {
        let soon = Duration::from_millis(50);
        assert!(is_due(Duration::from_millis(1), 1, 1, DEADLINE).await, "by time");
        assert!(!is_due(NEVER, PART_MIN - 1, 1, soon).await);
        assert!(is_due(NEVER, PART_MIN, 1, DEADLINE).await, "by number");
        assert!(!is_due(NEVER, 10 * PER_BATCH - 1, 10, soon).await);
        assert!(is_due(NEVER, 10 * PER_BATCH, 10, DEADLINE).await, "by number of each batch");
    }
}
