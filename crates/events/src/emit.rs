//! The handle for emitting events.
//!
//! Emitting reads a thread-local variable and writes into the thread's ring without a lock. A thread's first
//! event creates its ring and takes a lock once (of the list of new rings). An event without room is dropped and
//! counted: emitting never waits. While neither a sink nor a tap reads, emitting is one relaxed load.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;

use noroshi_types::Timestamp;
use parking_lot::Mutex;

use crate::event::{Event, Record};
use crate::ring::{self, Receiver, Sender};
use crate::tap::Tap;

/// Named recipients of an acceptance that a tap gets unless it selects by them.
const RECIPIENTS_SHOWN: usize = 20;

/// Numbers the logs, because a thread may emit to several.
static LOGS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SENDERS: RefCell<Vec<Sender>> = const { RefCell::new(Vec::new()) };
}

/// Emits events. Cheap to clone; without a log, or while nothing reads it, it does nothing.
#[derive(Clone, Default)]
pub struct Events(Option<Arc<Shared>>);

/// What handles and the collector share.
pub(crate) struct Shared {
    /// A sink or a tap reads events. Like the three below, it rarely changes.
    is_on: AtomicBool,
    is_tapped: AtomicBool,
    /// The tap selects by the recipients of notifications.
    wants_recipients: AtomicBool,
    has_sinks: bool,
    log: u64,
    ring_places: usize,
    /// Set once. Weak: what reads may hold a handle for emitting.
    tap: OnceLock<Weak<dyn Tap>>,
    /// Rings that the collector has not seen yet. No other lock is taken under this one.
    pub(crate) new: Mutex<Vec<Receiver>>,
    /// Set once, before anyone can emit.
    pub(crate) collector: OnceLock<Thread>,
    pub(crate) ending: AtomicBool,
    /// Events of ending threads whose ring was gone.
    pub(crate) lost: AtomicU64,
}

impl Shared {
    pub(crate) fn new(ring_places: usize, has_sinks: bool) -> Self {
        Self {
            is_on: AtomicBool::new(has_sinks),
            is_tapped: AtomicBool::new(false),
            wants_recipients: AtomicBool::new(false),
            has_sinks,
            tap: OnceLock::new(),
            log: LOGS.fetch_add(1, Ordering::Relaxed),
            ring_places,
            new: Mutex::default(),
            collector: OnceLock::new(),
            ending: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        }
    }

    pub(crate) fn has_sinks(&self) -> bool {
        self.has_sinks
    }

    /// What reads records now beside the sinks.
    pub(crate) fn tap(&self) -> Option<Arc<dyn Tap>> {
        match self.is_tapped.load(Ordering::Acquire) {
            true => self.tap.get()?.upgrade(),
            false => None,
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(thread) = self.collector.get() {
            thread.unpark();
        }
    }

    fn wake_if(&self, wake: bool) {
        if wake {
            self.wake();
        }
    }

    /// The thread's end of its ring, created on first use.
    fn sender<'a>(&self, senders: &'a mut Vec<Sender>) -> &'a mut Sender {
        let index = match senders.iter().position(|sender| sender.log == self.log) {
            Some(index) => index,
            None => {
                senders.retain(|sender| !sender.is_abandoned());
                let (sender, receiver) = ring::ring(self.log, self.ring_places);
                self.new.lock().push(receiver);
                senders.push(sender);
                senders.len() - 1
            }
        };
        &mut senders[index]
    }
}

impl Events {
    /// A handle without a log.
    pub const fn off() -> Self {
        Self(None)
    }

    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(Some(shared))
    }

    /// Whether a sink or a tap reads events.
    pub fn is_on(&self) -> bool {
        self.reader().is_some()
    }

    /// Whether a tap reads events.
    pub fn is_tapped(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.is_tapped.load(Ordering::Relaxed))
    }

    fn reader(&self) -> Option<&Arc<Shared>> {
        self.0.as_ref().filter(|shared| shared.is_on.load(Ordering::Relaxed))
    }

    /// Attaches what reads records while the tap is open. A second call is ignored. Without a log, nothing reads.
    pub fn attach_tap(&self, tap: Weak<dyn Tap>) {
        if let Some(shared) = &self.0 {
            let _ = shared.tap.set(tap);
        }
    }

    /// How many named recipients of a notification the tap wants with its acceptance: none while it is closed.
    pub fn recipients_wanted(&self) -> usize {
        match &self.0 {
            Some(shared) if shared.wants_recipients.load(Ordering::Relaxed) => usize::MAX,
            _ if self.is_tapped() => RECIPIENTS_SHOWN,
            _ => 0,
        }
    }

    /// The tap selects by recipients, so it needs all of them.
    pub fn set_wants_recipients(&self, wants: bool) {
        if let Some(shared) = &self.0 {
            shared.wants_recipients.store(wants, Ordering::Relaxed);
        }
    }

    /// Opens or closes the tap. Each emitting thread sees the change soon. False: there is no log.
    pub fn set_tapped(&self, is_tapped: bool) -> bool {
        let Some(shared) = &self.0 else { return false };
        shared.is_tapped.store(is_tapped, Ordering::Release);
        shared.is_on.store(is_tapped || shared.has_sinks, Ordering::Relaxed);
        shared.wake();
        true
    }

    /// Emits an event; calls `event` only if it is read. Never waits: without room the event counts as lost.
    pub fn emit(&self, at: Timestamp, event: impl FnOnce() -> Event) {
        let Some(shared) = self.reader() else { return };
        let record = Record { at, event: event() };
        let weight = record.weight();
        let sent = SENDERS.try_with(|senders| {
            let mut senders = senders.borrow_mut();
            let sender = shared.sender(&mut senders);
            match sender.push(record) {
                Ok(wake) => shared.wake_if(wake),
                Err(_) => sender.count_lost(weight),
            }
        });
        // The thread is ending and its ring is gone.
        if sent.is_err() {
            shared.lost.fetch_add(weight, Ordering::Relaxed);
        }
    }

    /// Emits an event, or returns it if there is no room, for callers that prefer to wait.
    #[allow(clippy::result_large_err)] // It is the record that was given: it is moved either way.
    pub fn try_emit(&self, record: Record) -> Result<(), Record> {
        let Some(shared) = self.reader() else { return Ok(()) };
        let mut given = Some(record);
        let sent = SENDERS.try_with(|senders| match given.take() {
            Some(record) => shared.sender(&mut senders.borrow_mut()).push(record),
            None => Ok(false),
        });
        match (sent, given) {
            (Ok(Ok(wake)), _) => {
                shared.wake_if(wake);
                Ok(())
            }
            (Ok(Err(record)), _) | (Err(_), Some(record)) => Err(record),
            (Err(_), None) => Ok(()),
        }
    }
}
