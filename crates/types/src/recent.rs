//! A bounded map that evicts entries that were not used recently.
//!
//! It has two halves. New and used entries go into the young half; when it is full, the old half is dropped
//! and the young one becomes old. Entries in use stay, and insertion and eviction take constant time.

use std::collections::HashMap;
use std::hash::Hash;

#[derive(Debug)]
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half_max: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Holds at most `entries_max` entries, and always keeps the `entries_max / 2` used last.
    pub fn new(entries_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half_max: (entries_max / 2).max(1) }
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.insert(key, value);
        }
        self.young.get_mut(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half_max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_not_used_recently_are_evicted() {
        let mut recent = Recent::new(8);
        recent.insert("kept", 0);
        for number in 0..100 {
            let name: &'static str = Box::leak(number.to_string().into_boxed_str());
            recent.insert(name, number);
            assert!(recent.get_mut(&"kept").is_some(), "after {number}");
            assert!(recent.len() <= 8);
        }
        assert!(recent.get_mut(&"99").is_some() && recent.get_mut(&"3").is_none());
    }

    #[test]
    fn entries_are_unique() {
        let mut recent = Recent::new(4);
        for key in [1, 2, 3, 1] {
            recent.insert(key, key);
        }
        assert_eq!(recent.len(), 3);
        *recent.get_mut(&1).expect("there") = 7;
        assert_eq!(recent.get_mut(&1), Some(&mut 7));
    }
}
