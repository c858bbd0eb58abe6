//! Numbers of notifications over all nodes. [`crate::ids`] defines numbers; this module gives them out.
//!
//! Accepted notifications get *ordered* numbers, in one sequence for the whole database: the last one is in a row
//! that is read and updated under the order lock. Their counters are below 2,048. Notifications of which only the
//! trace is kept get *loose* numbers without coordination: the counters from 2,048 on are divided among 64 slots, and
//! each node has its own (`slot`).

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use noroshi_types::Timestamp;

use crate::ids::Num;

const COUNTER_BITS: u32 = 12;
const COUNTER_MASK: i64 = (1 << COUNTER_BITS) - 1;
/// Counters from here on belong to slots.
const LOOSE: i64 = 1 << (COUNTER_BITS - 1);
/// Slots, which limits the number of nodes.
pub(super) const SLOTS: i64 = 64;
/// Counters of a slot: 32 per millisecond, after which it borrows from the next.
const SLOT_COUNTERS: i64 = LOOSE / SLOTS;
/// 48 bits of milliseconds.
const MILLISECONDS_MASK: u64 = (1 << 48) - 1;

/// The first number of a time.
fn floor(now: Timestamp) -> Num {
    ((now.0 & MILLISECONDS_MASK) << COUNTER_BITS) as Num
}

/// The ordered number after `last`, which may be ordered or loose.
pub(super) fn ordered_after(last: Num, now: Timestamp) -> Num {
    let next = (last + 1).max(floor(now));
    if next & COUNTER_MASK < LOOSE { next } else { (next | COUNTER_MASK) + 1 }
}

/// Gives out loose numbers.
pub(super) struct Loose {
    /// The lock guards the last number; no other lock and no await happens under it.
    last: Mutex<Num>,
    slot: AtomicI64,
}

impl Loose {
    /// Continues after all numbers of the time of `last`.
    pub(super) fn new(last: Num, slot: i64) -> Self {
        Self { last: Mutex::new(last | COUNTER_MASK), slot: AtomicI64::new(slot) }
    }

    pub(super) fn slot(&self) -> i64 {
        self.slot.load(Ordering::Relaxed)
    }

    /// Changes the slot, from the next millisecond on.
    pub(super) fn set_slot(&self, slot: i64) {
        // No panic is possible while it is held, so a poisoned lock holds a valid number.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last |= COUNTER_MASK;
        self.slot.store(slot, Ordering::Relaxed);
    }

    pub(super) fn next(&self, now: Timestamp) -> Num {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let first = LOOSE + self.slot() * SLOT_COUNTERS;
        let next = (*last + 1).max(floor(now));
        let (time, counter) = (next & !COUNTER_MASK, next & COUNTER_MASK);
        *last = match counter {
            early if early < first => time + first,
            ours if ours < first + SLOT_COUNTERS => time + ours,
            _ => time + COUNTER_MASK + 1 + first,
        };
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_numbers_increase_and_avoid_the_slots() {
        let mut last = 0;
        // 10,000 in one millisecond is more than the counters below the slots'.
        for now in [1_000; 10_000].into_iter().chain([5, 0, 2_000_000, 7]) {
            let next = ordered_after(last, Timestamp(now));
            assert!(next > last && next & COUNTER_MASK < LOOSE, "{next} after {last}");
            last = next;
        }
    }

    #[test]
    fn loose_numbers_increase_within_their_slot() {
        let loose = Loose::new(0, 5);
        let mut last = 0;
        for now in [1_000; 200].into_iter().chain([5, 2_000_000, 2_000_001]) {
            let next = loose.next(Timestamp(now));
            assert!(next > last, "{next} after {last}");
            assert_eq!(((next & COUNTER_MASK) - LOOSE) / SLOT_COUNTERS, 5);
            last = next;
        }
        loose.set_slot(0);
        assert!(loose.next(Timestamp(0)) > last, "a lower slot is used from the next millisecond on");
    }

    #[test]
    fn slots_give_out_distinct_numbers() {
        let mut all: Vec<_> = (0..SLOTS)
            .flat_map(|slot| {
                let loose = Loose::new(0, slot);
                (0..100).map(move |_| loose.next(Timestamp(1_000))).collect::<Vec<_>>()
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6_400);
    }
}
