//! One coarse timer wheel for all connections of a shard: four bytes a connection and no allocation.
//!
//! A connection has at most one entry that counts, at the tick it stores (`Connection::timer`). To move a deadline
//! back, nothing is done: the entry fires, the connection checks its deadlines and arms itself again. To move it
//! forward, a second entry is added; the first one finds that it no longer counts. An entry that fires for a connection
//! that took over the slot finds nothing due.

//! Deadlines are seconds long in service, so a tick is at most a hundredth of one. [`Precise`] keeps heartbeats of a
//! few ticks, which only the conformance suites use.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use noroshi_types::Timestamp;

/// A deadline is met up to one tick late. A shard with many connections wakes up for each tick, so a finer one would
/// cost CPU time while nothing happens.
pub(crate) const TICK_MS: u64 = 100;
/// A turn of the wheel takes 410 seconds, more than a ping interval; a later deadline takes several turns.
const TICKS: u32 = 4_096;

/// Slots of connections, by the tick at which they are due.
pub(crate) struct Wheel {
    buckets: Vec<Vec<u32>>,
    /// Everything before this tick has fired.
    next_tick: u32,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![Vec::new(); TICKS as usize], next_tick: 0 }
    }

    /// Arms for `tick`, or for the last tick of this turn if that is earlier. Returns the tick.
    pub(crate) fn arm(&mut self, slot: u32, tick: u32) -> u32 {
        let tick = tick.clamp(self.next_tick, self.next_tick + TICKS - 1);
        self.buckets[(tick % TICKS) as usize].push(slot);
        tick
    }

    /// How many ticks from `now_tick` on have nothing due, at most `limit`.
    pub(crate) fn quiet_ticks(&self, now_tick: u32, limit: u32) -> u32 {
        let quiet =
            (1..=limit).take_while(|ahead| self.buckets[((now_tick + ahead) % TICKS) as usize].is_empty());
        u32::try_from(quiet.count()).unwrap_or(limit)
    }

    /// The slots of the next tick that is due.
    pub(crate) fn take_due(&mut self, now_tick: u32) -> Option<(u32, Vec<u32>)> {
        if self.next_tick > now_tick {
            return None;
        }
        let tick = self.next_tick;
        self.next_tick += 1;
        Some((tick, std::mem::take(&mut self.buckets[(tick % TICKS) as usize])))
    }
}

/// Deadlines to the millisecond. Empty, and without memory, unless a protocol's heartbeat is shorter than
/// `socket_io::SPREAD_FROM_MS`. At most one deadline per slot.
#[derive(Default)]
pub(crate) struct Precise {
    due: BTreeSet<(u64, u32)>,
    by_slot: HashMap<u32, u64>,
}

impl Precise {
    /// Replaces the slot's deadline.
    pub(crate) fn arm(&mut self, slot: u32, at_ms: u64) {
        if let Some(earlier_ms) = self.by_slot.insert(slot, at_ms) {
            self.due.remove(&(earlier_ms, slot));
        }
        self.due.insert((at_ms, slot));
    }

    /// Removes the deadline of a slot that another connection may take.
    pub(crate) fn remove(&mut self, slot: u32) {
        if let Some(at_ms) = self.by_slot.remove(&slot) {
            self.due.remove(&(at_ms, slot));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.due.first().map(|(at_ms, _)| *at_ms)
    }

    /// A slot whose deadline is due; removes the deadline.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<u32> {
        let (_, slot) = self.due.first().filter(|(at_ms, _)| *at_ms <= now_ms).copied()?;
        self.due.pop_first();
        self.by_slot.remove(&slot);
        Some(slot)
    }
}

pub(crate) fn ticks(time: std::time::Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(u128::from(TICK_MS))).unwrap_or(u32::MAX).max(1)
}

/// The time, read once a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Since the shard's start.
    pub(crate) ms: u64,
    /// Ticks of [`TICK_MS`] since the shard's start, from 1: 0 is no tick.
    pub(crate) tick: u32,
    pub(crate) wall: Timestamp,
}

impl Now {
    pub(crate) fn ms32(&self) -> u32 {
        // Wrapped on purpose: only differences are used.
        (self.ms & u64::from(u32::MAX)) as u32
    }

    /// The first tick at which `after` has passed.
    pub(crate) fn tick_after(&self, after: Duration) -> u32 {
        let ms = self.ms.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        u32::try_from(ms.div_ceil(TICK_MS).saturating_add(1)).unwrap_or(u32::MAX)
    }
}

/// Random numbers to spread things out; not for secrets (splitmix64).
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `below`.
    pub(crate) fn draw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fire(wheel: &mut Wheel, until: u32) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| wheel.take_due(until))
            .flat_map(|(tick, slots)| slots.into_iter().map(move |slot| (tick, slot)))
            .collect()
    }

    #[test]
    fn entries_fire_at_their_tick_in_order() {
        let mut wheel = Wheel::new();
        assert_eq!(wheel.arm(1, 3), 3);
        assert_eq!(wheel.arm(2, 1), 1);
        assert_eq!(fire(&mut wheel, 2), [(1, 2)]);
        assert_eq!(wheel.arm(3, 0), 3, "the past is the next tick");
        assert_eq!(fire(&mut wheel, 9), [(3, 1), (3, 3)]);
    }

    #[test]
    fn precise_deadlines_are_met_to_the_millisecond_and_replaced() {
        let mut precise = Precise::default();
        assert_eq!((precise.next_ms(), precise.take_due(u64::MAX)), (None, None));
        precise.arm(1, 301);
        precise.arm(2, 250);
        precise.arm(2, 302);
        assert_eq!((precise.next_ms(), precise.take_due(300)), (Some(301), None));
        assert_eq!((precise.take_due(301), precise.take_due(301)), (Some(1), None));
        assert_eq!((precise.take_due(400), precise.take_due(400)), (Some(2), None));
        assert!(precise.due.is_empty() && precise.by_slot.is_empty());
    }

    #[test]
    fn a_far_deadline_fires_once_a_turn_of_the_wheel() {
        let mut wheel = Wheel::new();
        assert_eq!(wheel.arm(7, 10_000), TICKS - 1);
        assert_eq!(fire(&mut wheel, 10_000), [(TICKS - 1, 7)]);
    }
}
