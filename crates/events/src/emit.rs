//! The handle for emitting events.
//!
//! Emitting reads a thread-local variable and writes into the thread's ring: no lock, no allocation. A thread's first
//! event creates its ring and takes a lock once (of the list of new rings). An event without room is dropped and
//! counted: emitting never waits.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use noroshi_types::Timestamp;
use parking_lot::Mutex;

use crate::event::{Event, Record};
use crate::ring::{self, Receiver, Sender};

/// Numbers the logs, because a thread may emit to several.
static LOGS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SENDERS: RefCell<Vec<Sender>> = const { RefCell::new(Vec::new()) };
}

/// Emits events. Cheap to clone; without a log it does nothing.
#[derive(Clone, Default)]
pub struct Events(Option<Arc<Shared>>);

/// What handles and the collector share.
pub(crate) struct Shared {
    log: u64,
    ring_places: usize,
    /// Rings that the collector has not seen yet. No other lock is taken under this one.
    pub(crate) new: Mutex<Vec<Receiver>>,
    /// Set once, before anyone can emit.
    pub(crate) collector: OnceLock<Thread>,
    pub(crate) ending: AtomicBool,
    /// Events of ending threads whose ring was gone.
    pub(crate) lost: AtomicU64,
}

impl Shared {
    pub(crate) fn new(ring_places: usize) -> Self {
        Self {
            log: LOGS.fetch_add(1, Ordering::Relaxed),
            ring_places,
            new: Mutex::default(),
            collector: OnceLock::new(),
            ending: AtomicBool::new(false),
            lost: AtomicU64::new(0),
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

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Emits an event; calls `event` only if there is a log. Never waits: without room the event counts as lost.
    pub fn emit(&self, at: Timestamp, event: impl FnOnce() -> Event) {
        let Some(shared) = &self.0 else { return };
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
        let Some(shared) = &self.0 else { return Ok(()) };
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
