//! The name of one node's lease: drawn at random each time a lease is gained, so it is unique over all nodes and
//! all time, and stands for the pair of node and incarnation in 8 bytes. Not to be confused with
//! `types::topic::Epoch`, which belongs to a topic's log.

use std::fmt;

/// Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
