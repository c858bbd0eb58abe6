//! How many batches of each walk wait on the queue: the collector stays a bounded number of them ahead of
//! the senders, so that a pause takes effect soon and the queue stays small.

use std::collections::{HashMap, HashSet};

use noroshi_store::Work;
use parking_lot::Mutex;

/// A hint, kept in memory: it is set anew from the store at each of the collector's rounds.
pub(crate) struct Ahead {
    waiting: Mutex<HashMap<Work, usize>>,
    /// At so few the collector is told.
    low: usize,
}

impl Ahead {
    /// The collector stays `max` ahead.
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

    /// A sender took one. True if the collector should go on.
    pub(crate) fn taken(&self, work: Work) -> bool {
        let mut works = self.waiting.lock();
        let Some(left) = works.get_mut(&work) else { return false };
        *left = left.saturating_sub(1);
        *left == self.low || *left == 0
    }

    /// Forgets all but these.
    pub(crate) fn retain(&self, works: &HashSet<Work>) {
        self.waiting.lock().retain(|work, _| works.contains(work));
    }

    /// The walk is at its end.
    pub(crate) fn forget(&self, work: Work) {
        self.waiting.lock().remove(&work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_types::NotificationId;

    #[test]
    fn the_collector_is_told_when_it_is_half_used_and_when_nothing_is_left() {
        let ahead = Ahead::new(64);
        let work = Work::Notification(NotificationId::from_bytes([1; 16]));
        assert!(!ahead.taken(work), "nobody walks it");
        ahead.add(work, 64);
        let told: Vec<usize> = (0..64).filter(|_| ahead.taken(work)).collect();
        assert_eq!(told, [31, 63]);
        ahead.retain(&HashSet::from([work]));
        assert_eq!(ahead.waiting.lock().len(), 1);
        ahead.forget(work);
        assert!(ahead.waiting.lock().is_empty());
    }
}
