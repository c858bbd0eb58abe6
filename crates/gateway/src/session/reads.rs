//! Reads of the store that connections wait for while they catch up.
//!
//! Reads of one shard take turns, and the next one of a connection begins only when its socket took what the last one
//! brought: a slow reader slows only itself. What is read is decided by [`crate::session::catch_up`].

use std::collections::VecDeque;

/// Reads of one shard in progress: log-ins of a storm take turns.
pub(crate) const READS_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Reads {
    waiting: VecDeque<(u32, u64)>,
    /// Reads in progress, at most [`READS_MAX`].
    pub(crate) out: usize,
    /// The number of the last recovery.
    recoveries: u64,
}

impl Reads {
    /// A connection (slot and generation) waits for its turn.
    pub(crate) fn push(&mut self, connection: (u32, u64)) {
        self.waiting.push_back(connection);
    }

    /// The connection whose turn it is.
    pub(crate) fn next(&mut self) -> Option<(u32, u64)> {
        match self.out < READS_MAX {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// Numbers a read of one topic.
    pub(crate) fn next_recovery(&mut self) -> u64 {
        self.recoveries += 1;
        self.recoveries
    }
}
