//! Notices that this process did not run for a while, so that links discard what they still hold from before.
//!
//! A sender that gets no receipt in time takes another way, and other senders may go on. Had this node been suspended,
//! the kernel would still hold the first sender's frames, and handing them over now could put them behind frames that
//! were sent after them. So a node that did not run for [`STALL_MAX`], which is shorter than the sender's patience,
//! ends its links before it reads more. The senders send again over Redis what this node has not confirmed.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::clock::Moment;

/// Shorter than [`super::RECEIPT_TIMEOUT`] by the time that a confirmation takes.
pub(super) const STALL_MAX: Duration = Duration::from_millis(300);
const BEAT: Duration = Duration::from_millis(50);

pub(crate) struct Stall {
    /// When the process last ran, as `Moment` in nanoseconds.
    beat: AtomicU64,
    /// The number of stalls so far.
    count: AtomicU64,
}

impl Stall {
    pub(super) fn new() -> Self {
        Self { beat: AtomicU64::new(Moment::now().as_nanos()), count: AtomicU64::new(0) }
    }

    /// Beats until it is dropped.
    pub(super) async fn run(&self) {
        loop {
            self.look();
            tokio::time::sleep(BEAT).await;
        }
    }

    fn look(&self) {
        let now = Moment::now().as_nanos();
        if is_late(self.beat.swap(now, SeqCst), now) {
            self.count.fetch_add(1, SeqCst);
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(SeqCst)
    }

    /// Whether the process has not stalled since `count`, and what was read at `read_at` has not waited too long.
    pub(crate) fn is_fresh(&self, count: u64, read_at: Moment) -> bool {
        let now = Moment::now().as_nanos();
        !is_late(self.beat.load(SeqCst), now) && !is_late(read_at.as_nanos(), now) && self.count() == count
    }
}

fn is_late(then: u64, now: u64) -> bool {
    u128::from(now.saturating_sub(then)) > STALL_MAX.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_noticed_by_whoever_runs_first() {
        let now = Moment::now();
        let stall = Stall::new();
        assert!(stall.is_fresh(0, now));
        let ago = Moment::from_nanos(now.as_nanos() - 1_000_000_000);
        assert!(!stall.is_fresh(0, ago), "it waited");
        stall.beat.store(ago.as_nanos(), SeqCst);
        assert!(!stall.is_fresh(0, Moment::now()), "the reader runs first");
        stall.look();
        assert!(!stall.is_fresh(0, Moment::now()), "the beat runs first");
        assert!(stall.is_fresh(1, Moment::now()), "a later link");
    }
}
