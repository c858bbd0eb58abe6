//! Identifies a node's lease: 8 random bytes, drawn each time a node gains a lease, so unique over all nodes and all
//! time. It represents the node and its incarnation. Not related to `types::topic::Epoch`, which belongs to a topic's
//! log.

use std::fmt;

/// Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
