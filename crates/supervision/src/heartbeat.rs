//! How a thread reports that it makes progress: a counter that only this thread writes, odd while the thread works, even
//! while it waits for work. Each report changes the counter, so an odd counter that does not change is one long piece of
//! work. A report costs one relaxed store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::failure::{Failure, What};
use crate::kind::OnFailure;
use crate::registry::{Registry, Slot};

/// Owned by the thread that it reports for. Dropping it reports the end of the thread, or its panic.
#[derive(Debug)]
pub struct Heartbeat {
    slot: Arc<Slot>,
    registry: Arc<Registry>,
}

impl Heartbeat {
    pub(crate) fn new(slot: Arc<Slot>, registry: Arc<Registry>) -> Self {
        Self { slot, registry }
    }

    /// The thread begins a piece of work, or the next one.
    pub fn working(&self) {
        self.report(1);
        #[cfg(debug_assertions)]
        crate::fault::strike(&self.slot.name);
    }

    /// The thread waits for work. Waiting is never a stall.
    pub fn waiting(&self) {
        self.report(0);
    }

    fn report(&self, odd: u64) {
        // A single writer needs no read-modify-write. Relaxed suffices: the watchdog samples repeatedly.
        let count = &self.slot.count;
        count.store((count.load(Ordering::Relaxed) + 2) & !1 | odd, Ordering::Relaxed);
    }

    /// Reports a failure that the thread survives but cannot repair: the node drains and exits.
    pub fn fail(&self, what: What) {
        self.registry.fail(Failure { kind: self.slot.kind, thread: self.slot.name.clone(), what });
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.slot.ended.store(true, Ordering::Release);
        let what = match std::thread::panicking() {
            true => What::Panicked,
            false if self.registry.may_end() => return,
            false => What::Ended,
        };
        match self.slot.kind.on_end() {
            OnFailure::Exit => self.fail(what),
            OnFailure::Report => {}
        }
    }
}
