//! The state that threads, their heartbeats and the watchdog share: the list of threads and the first failure. The lock
//! guards the list only; it is taken when a thread starts and when the watchdog samples, never by a working thread.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use crate::failure::Failure;
use crate::kind::Kind;

/// One supervised thread.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// Odd while the thread works; differs after each report.
    pub(crate) count: AtomicU64,
    pub(crate) ended: AtomicBool,
    /// Duration of the current piece of work, as the watchdog measured it.
    pub(crate) busy_ms: AtomicU32,
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// The lock guards the list only.
    slots: Mutex<Vec<Arc<Slot>>>,
    pub(crate) failure: OnceLock<Failure>,
    pub(crate) watchdog: OnceLock<Thread>,
    pub(crate) may_end: AtomicBool,
}

impl Registry {
    pub(crate) fn fail(&self, failure: Failure) {
        // Only the first counts: it may have caused the others.
        let _ = self.failure.set(failure);
        if let Some(watchdog) = self.watchdog.get() {
            watchdog.unpark();
        }
    }

    pub(crate) fn may_end(&self) -> bool {
        self.may_end.load(Ordering::Acquire)
    }

    pub(crate) fn slots(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Slot>>> {
        // The list is consistent even if a holder panicked.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
