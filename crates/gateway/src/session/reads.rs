//! Reads of the store that connections which catch up wait for.

use std::collections::VecDeque;

/// Reads of one shard out at once: log-ins of a storm take turns.
pub(crate) const READS_MAX: usize = 64;

/// Reads that wait for their turn.
#[derive(Default)]
pub(crate) struct Reads {
    pub(crate) waiting: VecDeque<(u32, u64)>,
    pub(crate) out: usize,
    /// The number of the last recovery.
    pub(crate) recoveries: u64,
}
