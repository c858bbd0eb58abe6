//! The bounded queue from one thread to the collector: wait-free, one writer, one reader.
//!
//! Two limits: the number of records, and the bytes that records hold outside of themselves (lists of devices). A
//! record without room is returned to the caller, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::event::Record;

/// Bytes of device lists in one ring. A fan-out to a million devices has 8 MB.
const EXTRA_BYTES_MAX: usize = 16 << 20;

/// How often a filling ring wakes the collector between two flush intervals.
const WAKES: usize = 4;

/// Counters of both ends. On a cache line of their own: emitting threads share nothing with each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct State {
    extra_bytes: AtomicUsize,
    lost: AtomicU64,
}

/// The emitting thread's end.
pub(crate) struct Sender {
    pub(crate) log: u64,
    records: Producer<Record>,
    state: Arc<State>,
    /// Records until the collector is woken.
    countdown: usize,
}

/// The collector's end.
pub(crate) struct Receiver {
    records: Consumer<Record>,
    state: Arc<State>,
}

pub(crate) fn ring(log: u64, places: usize) -> (Sender, Receiver) {
    let (producer, consumer) = RingBuffer::new(places);
    let state = Arc::<State>::default();
    let sender = Sender { log, records: producer, state: state.clone(), countdown: (places / WAKES).max(1) };
    (sender, Receiver { records: consumer, state })
}

impl Sender {
    /// True if the caller has to wake the collector.
    #[allow(clippy::result_large_err)] // It is the record that was given: it is moved either way.
    pub(crate) fn push(&mut self, record: Record) -> Result<bool, Record> {
        let extra = record.extra_bytes();
        if extra > 0 {
            let held = self.state.extra_bytes.load(Ordering::Relaxed);
            // A record above the limit is accepted when it is alone.
            if held > 0 && held + extra > EXTRA_BYTES_MAX {
                return Err(record);
            }
            self.state.extra_bytes.fetch_add(extra, Ordering::Relaxed);
        }
        if let Err(PushError::Full(record)) = self.records.push(record) {
            if extra > 0 {
                self.state.extra_bytes.fetch_sub(extra, Ordering::Relaxed);
            }
            return Err(record);
        }
        self.countdown -= 1;
        if self.countdown > 0 {
            return Ok(false);
        }
        self.countdown = (self.records.buffer().capacity() / WAKES).max(1);
        Ok(true)
    }

    pub(crate) fn count_lost(&self, count: u64) {
        self.state.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// The collector is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.records.is_abandoned()
    }
}

impl Receiver {
    pub(crate) fn pop(&mut self) -> Option<Record> {
        let record = self.records.pop().ok()?;
        let extra = record.extra_bytes();
        if extra > 0 {
            self.state.extra_bytes.fetch_sub(extra, Ordering::Relaxed);
        }
        Some(record)
    }

    /// Records dropped since the last call.
    pub(crate) fn take_lost(&self) -> u64 {
        match self.state.lost.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.state.lost.swap(0, Ordering::Relaxed),
        }
    }

    pub(crate) fn places(&self) -> usize {
        self.records.buffer().capacity()
    }

    /// The thread has ended and the ring is empty.
    pub(crate) fn is_over(&self) -> bool {
        self.records.is_abandoned() && self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::{AppId, DeviceNum, Outcome, Timestamp};

    use super::*;
    use crate::event::{Event, Subject};

    fn record(devices: usize) -> Record {
        let devices = vec![DeviceNum(1); devices].into_boxed_slice();
        let (app, of, count) = (AppId(1), Subject::Several, devices.len() as u64);
        Record { at: Timestamp(0), event: Event::Outcome { app, of, outcome: Outcome::Kept, devices, count } }
    }

    #[test]
    fn a_full_ring_returns_the_record() {
        let (mut sender, mut receiver) = ring(1, 4);
        let wakes = (0..4).filter(|_| sender.push(record(0)) == Ok(true)).count();
        assert_eq!(wakes, 4);
        assert!(sender.push(record(0)).is_err());
        assert!(receiver.pop().is_some());
        assert!(sender.push(record(0)).is_ok());
        drop(sender);
        assert!(!receiver.is_over());
        while receiver.pop().is_some() {}
        assert!(receiver.is_over());
    }

    #[test]
    fn lists_of_devices_have_their_own_limit() {
        let (mut sender, mut receiver) = ring(1, 64);
        let half = EXTRA_BYTES_MAX / 2 / 8;
        assert!(sender.push(record(half)).is_ok() && sender.push(record(half)).is_ok());
        assert!(sender.push(record(1)).is_err());
        assert!(sender.push(record(0)).is_ok(), "a record without devices has room");
        receiver.pop();
        assert!(sender.push(record(1)).is_ok());
        while receiver.pop().is_some() {}
        assert!(sender.push(record(half * 4)).is_ok(), "alone it is accepted, whatever its size");
    }
}
