//! The registry: every supervised thread of one node, and the first failure.
//!
//! Cheap to clone; the default is a registry of its own that nobody watches. The lock guards the list only: it is taken
//! when a thread starts and when the watchdog looks, never by a thread at work.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LockResult, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use crate::kind::{Kind, OnFailure};
use crate::panics;
use crate::pulse::{Pulse, Slot};

/// What went wrong with a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Panicked,
    /// It returned although nobody had told it to.
    Ended,
    /// It made no progress for this long.
    Stalled(Duration),
    /// It found a lock whose holder had panicked.
    Poisoned(&'static str),
    /// An answer to a write that is committed panicked: whoever waited for it may never hear of it.
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

/// What the watchdog sees of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub kind: Kind,
    pub name: String,
    /// Differs from the last sample's if the thread made progress.
    pub count: u64,
    pub is_working: bool,
    /// How long the present piece of work takes, as noted by [`Threads::note_busy`].
    pub busy: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Guards the list only.
    slots: Mutex<Vec<Arc<Slot>>>,
    failure: OnceLock<Failure>,
    watchdog: OnceLock<Thread>,
    may_end: AtomicBool,
}

impl Shared {
    pub(crate) fn fail(&self, failure: Failure) {
        // The first one counts: others may follow from it.
        let _ = self.failure.set(failure);
        if let Some(watchdog) = self.watchdog.get() {
            watchdog.unpark();
        }
    }

    pub(crate) fn may_end(&self) -> bool {
        self.may_end.load(Ordering::Acquire)
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Slot>>> {
        // A list of handles is whole whatever panicked.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle to the registry of a node.
#[derive(Debug, Clone, Default)]
pub struct Threads(Arc<Shared>);

impl Threads {
    /// Starts a supervised thread. It waits until it reports work.
    pub fn spawn(
        &self,
        kind: Kind,
        name: impl Into<String>,
        body: impl FnOnce(&Pulse) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let name = name.into();
        let pulse = self.register(kind, name.clone());
        std::thread::Builder::new().name(name).spawn(move || {
            panics::enter(kind);
            body(&pulse);
        })
    }

    /// For a thread or a task that somebody else starts: it takes the pulse along.
    pub fn register(&self, kind: Kind, name: impl Into<String>) -> Pulse {
        let slot = Arc::new(Slot {
            kind,
            name: name.into(),
            count: AtomicU64::new(0),
            over: AtomicBool::new(false),
            busy_ms: Default::default(),
        });
        let mut slots = self.0.slots();
        slots.retain(|slot| !slot.over.load(Ordering::Acquire));
        slots.push(slot.clone());
        drop(slots);
        Pulse::new(slot, self.0.clone())
    }

    /// From now on a thread may end: the node drains.
    pub fn expect_ends(&self) {
        self.0.may_end.store(true, Ordering::Release);
    }

    /// Records the failure that ends the node, unless there is one already.
    pub fn fail(&self, failure: Failure) {
        self.0.fail(failure);
    }

    /// Takes a lock of the standard library. If its last holder panicked, what it guards is not to be trusted, which ends
    /// the node; until then the caller works with what is there.
    pub fn unpoison<G>(&self, lock: &'static str, kind: Kind, taken: LockResult<G>) -> G {
        taken.unwrap_or_else(|poisoned| {
            let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
            self.fail(Failure { kind, thread, what: What::Poisoned(lock) });
            poisoned.into_inner()
        })
    }

    /// The first failure; from then on the node is neither ready nor alive.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.failure.get()
    }

    // -- for the watchdog ---------------------------------------------------------------------------

    /// The calling thread is woken by each failure.
    pub fn wake_me(&self) {
        let _ = self.0.watchdog.set(std::thread::current());
    }

    /// Every thread that runs.
    pub fn sample(&self) -> Vec<Sample> {
        let slots = self.0.slots();
        let running = slots.iter().filter(|slot| !slot.over.load(Ordering::Acquire));
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

    /// How long the present piece of work of a thread takes.
    pub fn note_busy(&self, name: &str, busy: Duration) {
        let slots = self.0.slots();
        if let Some(slot) = slots.iter().find(|slot| slot.name == name) {
            slot.busy_ms.store(u32::try_from(busy.as_millis()).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// A stall that the watchdog found. True if it ends the node.
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

    fn one(threads: &Threads) -> Sample {
        threads.sample().pop().expect("one thread")
    }

    #[test]
    fn work_and_waiting_differ_and_each_report_shows() {
        let threads = Threads::default();
        let pulse = threads.register(Kind::Shard, "shard-0");
        assert!(!one(&threads).is_working);
        let mut last = one(&threads).count;
        for works in [true, true, false, false, true, false] {
            if works { pulse.working() } else { pulse.waiting() }
            let sample = one(&threads);
            assert_eq!(sample.is_working, works);
            assert_ne!(std::mem::replace(&mut last, sample.count), sample.count);
        }
    }

    #[test]
    fn a_panic_is_a_failure_at_once_and_the_first_one_counts() {
        let threads = Threads::default();
        for name in ["shard-0", "shard-1"] {
            let thread = threads.spawn(Kind::Shard, name, |_| panic!("as this test wants it"));
            assert!(thread.expect("started").join().is_err());
        }
        let failure = threads.failure().expect("a failure");
        assert_eq!(failure.to_string(), "the thread shard-0 panicked");
        assert!(threads.sample().is_empty());
    }

    #[test]
    fn a_thread_may_end_in_a_drain_alone() {
        let threads = Threads::default();
        threads.spawn(Kind::EventsArchive, "archive", |_| ()).expect("started").join().expect("ended");
        assert_eq!(threads.failure(), None, "the node works without it");
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
            panic!("as this test wants it");
        });
        assert!(holder.join().is_err());
        assert_eq!(*threads.unpoison("test", Kind::StoreWriter, lock.lock()), 7);
        assert_eq!(threads.failure().map(|failure| failure.what), Some(What::Poisoned("test")));
    }
}
