//! How one thread reports that it is alive.
//!
//! A counter that only its own thread writes: odd while the thread works, even while it waits for work. Each report
//! changes the counter, so an odd counter that stays the same is one piece of work. Reports cost one relaxed store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::kind::{Kind, OnFailure};
use crate::threads::{Failure, Shared, What};

/// What the registry keeps of a thread.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) count: AtomicU64,
    pub(crate) over: AtomicBool,
    /// Of the present piece of work, as the watchdog saw it.
    pub(crate) busy_ms: AtomicU32,
}

/// Held by the thread it is about; dropped at its end. Dropped by a panic, it reports the failure.
#[derive(Debug)]
pub struct Pulse {
    slot: Arc<Slot>,
    shared: Arc<Shared>,
}

impl Pulse {
    pub(crate) fn new(slot: Arc<Slot>, shared: Arc<Shared>) -> Self {
        Self { slot, shared }
    }

    /// A piece of work begins, or the next one does.
    pub fn working(&self) {
        self.report(1);
        #[cfg(debug_assertions)]
        crate::fault::strike(&self.slot.name);
    }

    /// The thread waits for work: however long that takes, it is no stall.
    pub fn waiting(&self) {
        self.report(0);
    }

    fn report(&self, odd: u64) {
        // One writer: no read-modify-write is needed. Relaxed: the watchdog looks again a moment later.
        let count = &self.slot.count;
        count.store((count.load(Ordering::Relaxed) + 2) & !1 | odd, Ordering::Relaxed);
    }

    /// The thread goes on, but cannot make good what happened: the node drains and exits.
    pub fn fail(&self, what: What) {
        self.shared.fail(Failure { kind: self.slot.kind, thread: self.slot.name.clone(), what });
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.slot.over.store(true, Ordering::Release);
        let what = match std::thread::panicking() {
            true => What::Panicked,
            false if self.shared.may_end() => return,
            false => What::Ended,
        };
        match self.slot.kind.on_end() {
            OnFailure::Exit => self.fail(what),
            OnFailure::Report => {}
        }
    }
}
