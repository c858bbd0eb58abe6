//! The handle of the crate: starts supervised threads, and gives the watchdog what it needs. Cheap to clone; the default
//! is a registry of its own that no watchdog samples.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LockResult};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::failure::{Failure, What};
use crate::heartbeat::Heartbeat;
use crate::kind::{Kind, OnFailure};
use crate::panics;
use crate::registry::{Registry, Slot};

/// The state of a thread, as the watchdog sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub kind: Kind,
    pub name: String,
    /// Differs from the previous sample if the thread made progress.
    pub count: u64,
    pub is_working: bool,
    /// Duration of the current piece of work, as recorded by [`Threads::note_busy`].
    pub busy: Duration,
}

/// A handle to the registry of a node.
#[derive(Debug, Clone, Default)]
pub struct Threads(Arc<Registry>);

impl Threads {
    /// Starts a supervised thread. It counts as waiting until it reports work.
    pub fn spawn(
        &self,
        kind: Kind,
        name: impl Into<String>,
        body: impl FnOnce(&Heartbeat) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let name = name.into();
        let pulse = self.register(kind, name.clone());
        std::thread::Builder::new().name(name).spawn(move || {
            panics::enter(kind);
            body(&pulse);
        })
    }

    /// Registers a thread or task that the caller starts and that owns the returned heartbeat.
    pub fn register(&self, kind: Kind, name: impl Into<String>) -> Heartbeat {
        let slot = Arc::new(Slot {
            kind,
            name: name.into(),
            count: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            busy_ms: Default::default(),
        });
        let mut slots = self.0.slots();
        slots.retain(|slot| !slot.ended.load(Ordering::Acquire));
        slots.push(slot.clone());
        drop(slots);
        Heartbeat::new(slot, self.0.clone())
    }

    /// The node drains: from now on threads may end.
    pub fn expect_ends(&self) {
        self.0.may_end.store(true, Ordering::Release);
    }

    /// Records the failure that ends the node, unless one is recorded.
    pub fn fail(&self, failure: Failure) {
        self.0.fail(failure);
    }

    /// Unwraps a lock of the standard library. A poisoned lock guards data that may be inconsistent, which ends the node;
    /// until it exits, the caller continues with the data.
    pub fn unpoison<G>(&self, lock: &'static str, kind: Kind, taken: LockResult<G>) -> G {
        taken.unwrap_or_else(|poisoned| {
            let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
            self.fail(Failure { kind, thread, what: What::Poisoned(lock) });
            poisoned.into_inner()
        })
    }

    /// The first failure. With a failure the node is neither ready nor alive.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.failure.get()
    }

    // -- for the watchdog ---------------------------------------------------------------------------

    /// Makes the calling thread the watchdog: each failure unparks it.
    pub fn wake_me(&self) {
        let _ = self.0.watchdog.set(std::thread::current());
    }

    /// All running threads.
    pub fn sample(&self) -> Vec<Sample> {
        let slots = self.0.slots();
        let running = slots.iter().filter(|slot| !slot.ended.load(Ordering::Acquire));
        let sample = |slot: &Arc<Slot>| {
            let count = slot.count.load(Ordering::Relaxed);
            Sample {
                kind: slot.kind,
                name: slot.name.clone(),
                count,
                is_working: count % 2 == 1,
                busy: Duration::from_millis(u64::from(slot.busy_ms.load(Ordering::Relaxed))),
            }
        };
        running.map(sample).collect()
    }

    /// Records how long a thread's current piece of work takes.
    pub fn note_busy(&self, name: &str, busy: Duration) {
        let slots = self.0.slots();
        if let Some(slot) = slots.iter().find(|slot| slot.name == name) {
            slot.busy_ms.store(u32::try_from(busy.as_millis()).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Reports a stall. True if it ends the node.
    pub fn stalled(&self, kind: Kind, name: &str, time: Duration) -> bool {
        let ends = kind.on_stall() == OnFailure::Exit;
        if ends {
            self.fail(Failure { kind, thread: name.to_owned(), what: What::Stalled(time) });
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn one(threads: &Threads) -> Sample {
        threads.sample().pop().expect("one thread")
    }

    #[test]
    fn each_report_changes_the_count_and_its_parity_is_the_state() {
        let threads = Threads::default();
        let pulse = threads.register(Kind::Shard, "shard-0");
        assert!(!one(&threads).is_working);
        let mut last = one(&threads).count;
        for works in [true, true, false, false, true, false] {
            if works {
                pulse.working()
            } else {
                pulse.waiting()
            }
            let sample = one(&threads);
            assert_eq!(sample.is_working, works);
            assert_ne!(std::mem::replace(&mut last, sample.count), sample.count);
        }
    }

    #[test]
    fn the_first_panic_is_the_failure() {
        let threads = Threads::default();
        for name in ["shard-0", "shard-1"] {
            let thread = threads.spawn(Kind::Shard, name, |_| panic!("expected by this test"));
            assert!(thread.expect("started").join().is_err());
        }
        let failure = threads.failure().expect("a failure");
        assert_eq!(failure.to_string(), "the thread shard-0 panicked");
        assert!(threads.sample().is_empty());
    }

    #[test]
    fn a_thread_may_end_only_in_a_drain() {
        let threads = Threads::default();
        threads.spawn(Kind::EventsArchive, "archive", |_| ()).expect("started").join().expect("ended");
        assert_eq!(threads.failure(), None, "the node does not need it");
        threads.expect_ends();
        threads.spawn(Kind::Acceptor, "acceptor", |_| ()).expect("started").join().expect("ended");
        assert_eq!(threads.failure(), None);

        let threads = Threads::default();
        threads.spawn(Kind::Acceptor, "acceptor", |_| ()).expect("started").join().expect("ended");
        assert_eq!(threads.failure().map(|failure| failure.what), Some(What::Ended));
    }

    #[test]
    fn a_poisoned_lock_is_a_failure() {
        let (threads, lock) = (Threads::default(), Arc::new(Mutex::new(7)));
        assert_eq!(*threads.unpoison("test", Kind::StoreWriter, lock.lock()), 7);
        assert_eq!(threads.failure(), None);
        let held = lock.clone();
        let holder = std::thread::spawn(move || {
            let _held = held.lock();
            panic!("expected by this test");
        });
        assert!(holder.join().is_err());
        assert_eq!(*threads.unpoison("test", Kind::StoreWriter, lock.lock()), 7);
        assert_eq!(threads.failure().map(|failure| failure.what), Some(What::Poisoned("test")));
    }
}
