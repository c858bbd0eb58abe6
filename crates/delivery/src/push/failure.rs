//! Counts how often a batch made the code of this process fail. The counts are in memory: a batch that ends the whole
//! process takes them along. The store counts those ([`noroshi_store::TAKES_MAX`]).

use std::collections::HashMap;

use noroshi_types::BatchId;
use parking_lot::Mutex;

/// Batches that are remembered. Beyond it something else is wrong, and all counts restart.
const BATCHES_MAX: usize = 1_000;

#[derive(Default)]
pub(crate) struct Failures {
    /// Guards only the map.
    counts: Mutex<HashMap<BatchId, u32>>,
}

impl Failures {
    /// Counts a failure. Returns the number of failures of the batch.
    pub(crate) fn count(&self, batch: BatchId) -> u32 {
        let mut counts = self.counts.lock();
        if counts.len() >= BATCHES_MAX && !counts.contains_key(&batch) {
            counts.clear();
        }
        let count = counts.entry(batch).or_default();
        *count += 1;
        *count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_batch_is_counted_for_itself_and_memory_is_bounded() {
        let failures = Failures::default();
        assert_eq!([7, 8, 7].map(|batch| failures.count(BatchId(batch))), [1, 1, 2]);
        for batch in 0..BATCHES_MAX as u64 {
            failures.count(BatchId(batch));
        }
        assert!(failures.counts.lock().len() <= BATCHES_MAX);
    }
}
