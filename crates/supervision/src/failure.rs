//! A failure of a supervised thread: which thread, and what happened. `node` reports it and exits.

use std::fmt;
use std::time::Duration;

use crate::kind::Kind;

/// Why a thread failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Panicked,
    /// It returned before the node began to drain.
    Ended,
    /// It made no progress for this long.
    Stalled(Duration),
    /// It found a lock whose holder had panicked.
    Poisoned(&'static str),
    /// The callback of a committed write panicked: the caller may never get its answer.
    Unanswered,
}

/// A failure that ends the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: Kind,
    pub thread: String,
    pub what: What,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Panicked => f.write_str("panicked"),
            What::Ended => f.write_str("ended unexpectedly"),
            What::Stalled(time) => write!(f, "made no progress for {} s", time.as_secs()),
            What::Poisoned(lock) => write!(f, "found the lock of {lock} poisoned"),
            What::Unanswered => f.write_str("panicked while it answered a committed write"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the thread {} {}", self.thread, self.what)
    }
}
