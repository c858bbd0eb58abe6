//! How many batches of each walk wait on the queue: the collector stays a bounded number of them ahead of the senders,
//! so that a pause takes effect soon and the queue stays small.

use std::collections::{HashMap, HashSet};

use noroshi_store::Work;
use parking_lot::Mutex;

/// A hint in memory: each round of the collector sets it from the store.
pub(crate) struct WalkDepth {
    waiting: Mutex<HashMap<Work, usize>>,
    /// When this many are left, the collector continues.
    low: usize,
}

impl WalkDepth {
    /// The collector stays at most `max` batches ahead.
    pub(crate) fn new(max: usize) -> Self {
        Self { waiting: Mutex::default(), low: max / 2 }
    }

    pub(crate) fn set(&self, work: Work, batches: usize) {
        self.waiting.lock().insert(work, batches);
    }

    /// The collector added batches.
    pub(crate) fn add(&self, work: Work, batches: usize) {
        *self.waiting.lock().entry(work).or_default() += batches;
    }

    /// A sender took one. Returns true if the collector should continue.
    pub(crate) fn taken(&self, work: Work) -> bool {
        let mut works = self.waiting.lock();
        let Some(left) = works.get_mut(&work) else { return false };
        *left = left.saturating_sub(1);
        *left == self.low || *left == 0
    }

    /// Forgets all other walks.
    pub(crate) fn retain(&self, works: &HashSet<Work>) {
        self.waiting.lock().retain(|work, _| works.contains(work));
    }

    /// The walk has ended.
    pub(crate) fn forget(&self, work: Work) {
        self.waiting.lock().remove(&work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_types::NotificationId;

    #[test]
    fn the_collector_continues_at_half_and_at_zero() {
        let depth = WalkDepth::new(64);
        let work = Work::Notification(NotificationId::from_bytes([1; 16]));
        assert!(!depth.taken(work), "no walk has this id");
        depth.add(work, 64);
        let signals: Vec<usize> = (0..64).filter(|_| depth.taken(work)).collect();
        assert_eq!(signals, [31, 63]);
        depth.retain(&HashSet::from([work]));
        assert_eq!(depth.waiting.lock().len(), 1);
        depth.forget(work);
        assert!(depth.waiting.lock().is_empty());
    }
}
