//! How many batches of each walk wait on the queue: the collector stays a bounded number of them ahead of
//! the senders, so that a pause takes effect soon and the queue stays small.

use std::collections::{HashMap, HashSet};

use noroshi_store::Work;
use parking_lot::Mutex;

/// Batches of one walk or campaign that wait at most; what is due later does not count.
pub(crate) const AHEAD_MAX: usize = 64;

/// At so few the collector is told.
const AHEAD_LOW: usize = 32;

/// A hint, kept in memory: it is set anew from the store at each of the collector's rounds.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<HashMap<Work, usize>>);

impl Ahead {
    pub(crate) fn set(&self, work: Work, batches: usize) {
        self.0.lock().insert(work, batches);
    }

    /// The collector added batches.
    pub(crate) fn add(&self, work: Work, batches: usize) {
        *self.0.lock().entry(work).or_default() += batches;
    }

    /// A sender took one. True if the collector should go on.
    pub(crate) fn taken(&self, work: Work) -> bool {
        let mut works = self.0.lock();
        let Some(left) = works.get_mut(&work) else { return false };
        *left = left.saturating_sub(1);
        *left == AHEAD_LOW || *left == 0
    }

    /// Forgets all but these.
    pub(crate) fn retain(&self, works: &HashSet<Work>) {
        self.0.lock().retain(|work, _| works.contains(work));
    }

    /// The walk is at its end.
    pub(crate) fn forget(&self, work: Work) {
        self.0.lock().remove(&work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_types::NotificationId;

    #[test]
    fn the_collector_is_told_when_it_is_half_used_and_when_nothing_is_left() {
        let ahead = Ahead::default();
        let work = Work::Notification(NotificationId::from_bytes([1; 16]));
        assert!(!ahead.taken(work), "nobody walks it");
        ahead.add(work, AHEAD_MAX);
        let told: Vec<usize> = (0..AHEAD_MAX).filter(|_| ahead.taken(work)).collect();
        assert_eq!(told, [AHEAD_MAX - AHEAD_LOW - 1, AHEAD_MAX - 1]);
        ahead.retain(&HashSet::from([work]));
        assert_eq!(ahead.0.lock().len(), 1);
        ahead.forget(work);
        assert!(ahead.0.lock().is_empty());
    }
}
