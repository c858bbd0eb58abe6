//! How much a shard has to deliver, and how long that takes.
//!
//! A delivery counts from its arrival in the mailbox until it is written or given up: first as queued, then as marked
//! ([`crate::fanout::ring`]). The shard measures how long a delivery takes while there are others ([`Meter`]);
//! publishing reads the product ([`Load::delay`]).
//!
//! Connections get all messages of the ring with one write. So messages of a topic that fit into the ring take little
//! more time than one: up to [`TOGETHER`] of them are accepted whatever their deliveries would take one by one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use noroshi_delivery::{Fan, Pace};

use crate::fanout::ring::{Marked, TOPIC_PLACES};

/// Deliveries of each kind for which there is always room: two writes' worth of a turn.
const ALWAYS: usize = 1_024;
/// Messages of topics that are written together.
const TOGETHER: usize = TOPIC_PLACES as usize;
/// A write to a socket, until the first measurement.
const DELIVERY_NS: u64 = 8_000;

/// The deliveries of one kind. Other threads add to it and read it.
pub(crate) struct Load {
    /// In the mailbox.
    queued: AtomicUsize,
    queued_messages: AtomicUsize,
    /// In the ring.
    marked: AtomicUsize,
    marked_messages: AtomicUsize,
    delivery_ns: AtomicU64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            queued: AtomicUsize::new(0),
            queued_messages: AtomicUsize::new(0),
            marked: AtomicUsize::new(0),
            marked_messages: AtomicUsize::new(0),
            delivery_ns: AtomicU64::new(DELIVERY_NS),
        }
    }
}

impl Load {
    /// A message with this many deliveries is queued.
    pub(crate) fn add(&self, deliveries: usize) {
        self.queued.fetch_add(deliveries, Relaxed);
        self.queued_messages.fetch_add(1, Relaxed);
    }

    /// A message that was not queued in the end.
    pub(crate) fn remove(&self, deliveries: usize) {
        self.queued.fetch_sub(deliveries, Relaxed);
        self.queued_messages.fetch_sub(1, Relaxed);
    }

    /// A message goes from the mailbox to the ring. The next [`Meter::settle`] corrects the number of its recipients.
    pub(crate) fn mark(&self, deliveries: usize) {
        // Counted twice for a moment, rather than not at all.
        self.marked.fetch_add(deliveries, Relaxed);
        self.marked_messages.fetch_add(1, Relaxed);
        self.remove(deliveries);
    }

    /// Deliveries that are not written yet.
    pub(crate) fn deliveries(&self) -> usize {
        self.queued.load(Relaxed) + self.marked.load(Relaxed)
    }

    fn messages(&self) -> usize {
        self.queued_messages.load(Relaxed) + self.marked_messages.load(Relaxed)
    }

    /// How long it takes until `more` deliveries behind these are written.
    pub(crate) fn delay(&self, more: usize) -> Duration {
        let deliveries = (self.deliveries() + more) as u64;
        Duration::from_nanos(deliveries.saturating_mul(self.delivery_ns.load(Relaxed)))
    }

    pub(crate) fn has_room(&self, fan: Fan, more: usize, delay_max: Duration) -> bool {
        self.delay(more) < delay_max
            || self.deliveries() + more < ALWAYS
            || fan == Fan::Topic && self.messages() < TOGETHER
    }
}

/// Measures one kind of delivery. Owned by the shard.
pub(crate) struct Meter {
    pace: Pace,
    /// Marked and not written at the end of the last turn.
    before: usize,
}

impl Default for Meter {
    fn default() -> Self {
        Self { pace: Pace::new(DELIVERY_NS), before: 0 }
    }
}

impl Meter {
    /// Ends a turn. `marked`: what the ring has now; `added`: deliveries that were marked in this turn.
    pub(crate) fn settle(&mut self, load: &Load, marked: Marked, added: usize, now_ns: u64) {
        let done = (self.before + added).saturating_sub(marked.deliveries);
        self.before = marked.deliveries;
        load.marked.store(marked.deliveries, Relaxed);
        load.marked_messages.store(marked.messages, Relaxed);
        self.pace.observe(now_ns, done as u64, load.deliveries() > 0);
        load.delivery_ns.store(self.pace.unit_ns(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY_MAX: Duration = Duration::from_millis(100);

    #[test]
    fn deliveries_count_until_they_are_written() {
        let (load, mut meter) = (Load::default(), Meter::default());
        load.add(3_000);
        load.add(2_000);
        assert_eq!(load.deliveries(), 5_000);
        load.mark(3_000);
        assert_eq!(load.deliveries(), 5_000);
        // 1,000 of 3,000 are written.
        meter.settle(&load, Marked { deliveries: 2_000, messages: 1 }, 3_000, 0);
        assert_eq!((load.deliveries(), load.messages()), (4_000, 2));
        load.mark(2_000);
        meter.settle(&load, Marked::default(), 2_000, 1);
        assert_eq!((load.deliveries(), load.messages()), (0, 0));
    }

    #[test]
    fn a_slow_shard_has_room_for_less() {
        let (load, mut meter) = (Load::default(), Meter::default());
        load.add(5_000);
        assert!(load.has_room(Fan::Named, 0, DELAY_MAX));
        assert!(!load.has_room(Fan::Named, 8_000, DELAY_MAX), "13,000 deliveries of 8 us");
        // 1,000 deliveries in 100 ms.
        load.mark(5_000);
        meter.settle(&load, Marked { deliveries: 5_000, messages: 1 }, 5_000, 0);
        for turn in 1..=4 {
            let left = Marked { deliveries: 5_000 - 1_000 * turn, messages: 1 };
            meter.settle(&load, left, 0, turn as u64 * 100_000_000);
        }
        load.add(1_000);
        assert!(load.delay(0) > DELAY_MAX, "{:?}", load.delay(0));
        assert!(!load.has_room(Fan::Named, 0, DELAY_MAX));
    }

    #[test]
    fn messages_that_are_written_together_have_room() {
        let load = Load::default();
        (0..TOGETHER - 1).for_each(|_| load.add(10_000));
        assert!(load.has_room(Fan::Topic, 0, DELAY_MAX) && !load.has_room(Fan::Named, 0, DELAY_MAX));
        load.add(10_000);
        assert!(!load.has_room(Fan::Topic, 0, DELAY_MAX));
    }
}
