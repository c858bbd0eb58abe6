//! Texts in the order in which they were added, each once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct OrderedSet {
    places: HashMap<Arc<str>, u64>,
    order: BTreeMap<u64, Arc<str>>,
    next: u64,
}

impl OrderedSet {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.places.contains_key(text)
    }

    /// Returns false if it is there already.
    pub(super) fn insert(&mut self, text: &str) -> bool {
        if self.contains(text) {
            return false;
        }
        let text: Arc<str> = text.into();
        self.places.insert(Arc::clone(&text), self.next);
        self.order.insert(self.next, text);
        self.next += 1;
        true
    }

    pub(super) fn remove(&mut self, text: &str) -> bool {
        match self.places.remove(text) {
            Some(place) => self.order.remove(&place).is_some(),
            None => false,
        }
    }

    pub(super) fn remove_oldest(&mut self) {
        if let Some((_, text)) = self.order.pop_first() {
            self.places.remove(&text);
        }
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.order.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.order.values().map(|text| &**text)
    }

    pub(super) fn to_vec(&self) -> Vec<String> {
        self.iter().map(str::to_owned).collect()
    }

    /// Empties the set.
    pub(super) fn take(&mut self) -> Vec<String> {
        let all = self.to_vec();
        self.clear();
        all
    }
}
