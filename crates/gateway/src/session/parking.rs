//! Sessions without a connection, in this node's memory until a client resumes them or they expire.
//!
//! A device has at most one entry. A [`Lot`] bounds the number of its entries and their bytes. A full lot evicts the
//! oldest entry of the app that holds the most bytes, so no app evicts an entry of an app that holds less than itself.
//! The protocols decide what an entry is and what follows from its end.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use noroshi_types::{AppId, Timestamp};

use crate::session::registry::Key;

/// Entries of one lot, however small they are.
pub(crate) const ENTRIES_MAX: usize = 1 << 16;
/// What the lot's own maps hold for one entry: 24, 32 and 48 bytes in tables that are half full.
const PLACE_BYTES: usize = 208;

/// The limits of a [`Lot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) entries_max: usize,
    pub(crate) bytes_max: usize,
}

struct Entry<T> {
    value: T,
    app: AppId,
    bytes: usize,
    /// Its place in the order of its app.
    number: u64,
    due: Timestamp,
}

/// What one app holds.
#[derive(Default)]
struct Share {
    bytes: usize,
    /// Sorted by number: the oldest first.
    order: BTreeMap<u64, Key>,
}

/// Invariant: every entry is in `by_due` and in its app's `order`; `bytes` is the sum over all entries and over all
/// shares; `by_bytes` lists each share with its present bytes.
pub(crate) struct Lot<T> {
    capacity: Capacity,
    entries: HashMap<Key, Entry<T>>,
    by_due: BTreeSet<(Timestamp, Key)>,
    apps: HashMap<AppId, Share>,
    by_bytes: BTreeSet<(usize, AppId)>,
    bytes: usize,
    next: u64,
}

impl<T> Lot<T> {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            entries: HashMap::new(),
            by_due: BTreeSet::new(),
            apps: HashMap::new(),
            by_bytes: BTreeSet::new(),
            bytes: 0,
            next: 0,
        }
    }

    /// Inserts `value`, which holds `value_bytes`, and drops the device's previous entry. Returns the evicted values;
    /// `value` itself may be among them.
    pub(crate) fn insert(
        &mut self,
        key: Key,
        app: AppId,
        due: Timestamp,
        value_bytes: usize,
        value: T,
    ) -> Vec<T> {
        self.remove(key);
        let (number, bytes) = (self.next, value_bytes.saturating_add(PLACE_BYTES));
        self.next += 1;
        self.entries.insert(key, Entry { value, app, bytes, number, due });
        self.by_due.insert((due, key));
        self.bytes += bytes;
        let share = self.apps.entry(app).or_default();
        share.order.insert(number, key);
        let before = share.bytes;
        share.bytes += bytes;
        let after = share.bytes;
        self.by_bytes.remove(&(before, app));
        self.by_bytes.insert((after, app));
        self.evict()
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let Entry { value, app, bytes, number, due } = self.entries.remove(&key)?;
        self.by_due.remove(&(due, key));
        self.bytes -= bytes;
        if let Some(share) = self.apps.get_mut(&app) {
            self.by_bytes.remove(&(share.bytes, app));
            share.order.remove(&number);
            share.bytes -= bytes;
            match share.order.is_empty() {
                true => drop(self.apps.remove(&app)),
                false => drop(self.by_bytes.insert((share.bytes, app))),
            }
        }
        if self.entries.is_empty() {
            // A storm leaves large tables behind.
            *self = Self { next: self.next, ..Self::new(self.capacity) };
        }
        Some(value)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.entries.get(&key).map(|entry| &entry.value)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries.get_mut(&key).map(|entry| &mut entry.value)
    }

    /// Removes one entry that is due.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<(Key, T)> {
        let (due, key) = self.by_due.first().copied()?;
        if due > now {
            return None;
        }
        self.remove(key).map(|value| (key, value))
    }

    /// Removes every entry of an app.
    pub(crate) fn remove_app(&mut self, app: AppId) {
        while let Some((_, key)) = self.apps.get(&app).and_then(|share| share.order.first_key_value()) {
            let key = *key;
            self.remove(key);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Includes the lot's own memory for each entry.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn evict(&mut self) -> Vec<T> {
        let Capacity { entries_max, bytes_max } = self.capacity;
        let mut evicted = Vec::new();
        while self.entries.len() > entries_max || self.bytes > bytes_max {
            let largest = self.by_bytes.last().and_then(|(_, app)| self.apps.get(app));
            let Some((_, key)) = largest.and_then(|share| share.order.first_key_value()) else { break };
            let key = *key;
            evicted.extend(self.remove(key));
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOUD: AppId = AppId(1);
    const QUIET: AppId = AppId(2);

    fn lot(entries_max: usize, bytes_max: usize) -> Lot<u64> {
        Lot::new(Capacity { entries_max, bytes_max })
    }

    #[test]
    fn an_app_that_floods_the_lot_evicts_its_own() {
        let mut lot = lot(10, usize::MAX);
        for key in 0..3 {
            assert!(lot.insert(key, QUIET, Timestamp(9), 100, 0).is_empty());
        }
        let evicted: Vec<u64> =
            (100..1_100).flat_map(|n| lot.insert(u128::from(n), LOUD, Timestamp(9), 100, n)).collect();
        assert_eq!(evicted, (100..1_093).collect::<Vec<u64>>(), "the oldest first");
        assert!((0..3).all(|key| lot.get(key).is_some()), "the other app lost nothing");
    }

    #[test]
    fn bytes_are_bounded_and_one_that_never_fits_evicts_itself() {
        let mut lot = lot(usize::MAX, 1_000);
        assert!(lot.insert(1, QUIET, Timestamp(9), 100, 1).is_empty());
        assert_eq!(lot.insert(2, LOUD, Timestamp(9), 2_000, 2), [2]);
        assert!(lot.insert(3, LOUD, Timestamp(9), 400, 3).is_empty());
        assert_eq!(lot.insert(4, LOUD, Timestamp(9), 400, 4), [3]);
        assert_eq!((lot.len(), lot.get(1)), (2, Some(&1)));
        lot.remove_app(LOUD);
        assert_eq!((lot.len(), lot.remove(1), lot.bytes()), (1, Some(1), 0));
    }

    #[test]
    fn entries_are_due_in_order() {
        let mut lot = lot(10, usize::MAX);
        for (key, due) in [(1, 30), (2, 10), (3, 20)] {
            lot.insert(key, LOUD, Timestamp(due), 1, due);
        }
        lot.insert(3, LOUD, Timestamp(40), 1, 40);
        assert_eq!(lot.take_due(Timestamp(9)), None);
        assert_eq!(lot.take_due(Timestamp(30)), Some((2, 10)));
        assert_eq!(lot.take_due(Timestamp(30)), Some((1, 30)));
        assert_eq!(lot.take_due(Timestamp(30)), None);
    }

    #[test]
    fn bytes_and_entries_stay_consistent() {
        let bytes_max = 20 * (PLACE_BYTES + 100);
        let mut lot = lot(20, bytes_max);
        let mut random = 1u64;
        for _ in 0..5_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [key, app, bytes, put, ..] = (random >> 16).to_be_bytes();
            let (key, app) = (u128::from(key % 40), AppId(u32::from(app % 4)));
            match put % 4 > 0 {
                true => drop(lot.insert(key, app, Timestamp(bytes.into()), bytes.into(), 0)),
                false => drop(lot.remove(key)),
            }
            assert!(lot.len() <= 20 && lot.bytes() <= bytes_max);
            assert_eq!(lot.by_due.len(), lot.len());
            assert_eq!(lot.apps.values().map(|share| share.order.len()).sum::<usize>(), lot.len());
            assert_eq!(lot.apps.values().map(|share| share.bytes).sum::<usize>(), lot.bytes());
            assert_eq!(lot.entries.values().map(|entry| entry.bytes).sum::<usize>(), lot.bytes());
            assert_eq!(lot.by_bytes.len(), lot.apps.len());
        }
    }
}
