//! Which connections of one shard subscribe to which topic. A topic message reaches each shard once and is filtered
//! here.
//!
//! Invariant: an entry exists while a connection is in it; the node-wide counter of a topic is the sum of its entries'
//! sizes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{HashMap, HashSet};
use noroshi_types::{Position, Topic};
use slab::Slab;

use crate::session::catch_up::Reached;
use crate::session::registry::{Key, KeyMap, Registry, shrink};

/// How an arriving message relates to those before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The next, as far as is known.
    Next,
    /// At least one message between this position and the arriving one is missing.
    Gap { behind: Position },
    /// Later messages arrived before.
    Late,
}

#[derive(Default)]
pub(crate) struct TopicIndex {
    by_key: KeyMap<u32>,
    entries: Slab<Entry>,
}

pub(crate) struct Entry {
    key: Key,
    pub(crate) topic: Topic,
    pub(crate) subscribers: HashSet<u32>,
    /// Connections that got messages from the log, and which: the same ones may still arrive.
    skips: HashMap<u32, Reached>,
    /// Everything kept up to here arrived or was read.
    last: Option<Position>,
    counter: Arc<AtomicU64>,
}

impl TopicIndex {
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    pub(crate) fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)
    }

    /// The topics that a connection subscribed to for its session only.
    pub(crate) fn own(&self, subscriptions: &[Subscription]) -> Vec<Topic> {
        let own = subscriptions.iter().filter(|subscription| subscription.is_own());
        own.filter_map(|subscription| self.entry(subscription.index()))
            .map(|entry| entry.topic.clone())
            .collect()
    }

    pub(crate) fn key(&self, index: u32) -> Option<Key> {
        self.entry(index).map(|entry| entry.key)
    }

    pub(crate) fn is_subscribed(&self, key: Key, slot: u32) -> bool {
        let entry = self.find(key).and_then(|index| self.entry(index));
        entry.is_some_and(|entry| entry.subscribers.contains(&slot))
    }

    /// Adds a connection. Returns the entry's index, and whether the connection is new there.
    pub(crate) fn subscribe(
        &mut self,
        registry: &Registry,
        key: Key,
        topic: &Topic,
        slot: u32,
    ) -> (u32, bool) {
        let index = *self.by_key.entry(key).or_insert_with(|| {
            let entry = Entry {
                key,
                topic: topic.clone(),
                subscribers: HashSet::new(),
                skips: HashMap::new(),
                last: None,
                counter: registry.topic_counter(key),
            };
            u32::try_from(self.entries.insert(entry)).expect("fewer topics than 2^32 fit into memory")
        });
        let entry = &mut self.entries[index as usize];
        let new = entry.subscribers.insert(slot);
        entry.counter.fetch_add(u64::from(new), Ordering::Relaxed);
        (index, new)
    }

    /// Removes a connection, and the entry with the last one.
    pub(crate) fn unsubscribe(&mut self, registry: &Registry, index: u32, slot: u32) {
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        entry.skips.remove(&slot);
        if entry.subscribers.remove(&slot) {
            entry.counter.fetch_sub(1, Ordering::Relaxed);
        }
        if entry.subscribers.is_empty() {
            let entry = self.entries.remove(index as usize);
            self.by_key.remove(&entry.key);
            shrink(&mut self.by_key);
            if self.entries.is_empty() {
                self.entries.shrink_to_fit();
            }
            registry.release_topic_counter(entry.key, entry.counter);
        } else if entry.subscribers.len() * 8 < entry.subscribers.capacity() {
            entry.subscribers.shrink_to(entry.subscribers.len() * 2);
        }
    }

    /// A message arrives. If it shows a gap, so do the messages behind it until the gap is closed
    /// ([`TopicIndex::reach`]).
    pub(crate) fn pass(&mut self, index: u32, position: Position) -> Pass {
        let Some(entry) = self.entries.get_mut(index as usize) else { return Pass::Next };
        // A log that began again, or for the first time, begins with 1.
        let anew = Position { offset: 0, ..position };
        match entry.last.map(|last| if last.epoch == position.epoch { last } else { anew }) {
            Some(last) if position.offset <= last.offset => return Pass::Late,
            Some(behind) if position.offset > behind.offset + 1 => return Pass::Gap { behind },
            _ => {}
        }
        entry.last = Some(position);
        Pass::Next
    }

    /// Everything kept up to `position` was read and offered.
    pub(crate) fn reach(&mut self, index: u32, position: Position) {
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        let is_further = |last: &Position| last.epoch != position.epoch || last.offset < position.offset;
        if entry.last.as_ref().is_none_or(is_further) {
            entry.last = Some(position);
        }
    }

    /// The first subscriber here read the topic up to `position`, and nothing arrived since.
    pub(crate) fn begin(&mut self, index: u32, position: Position) {
        if let Some(entry) = self.entries.get_mut(index as usize) {
            entry.last.get_or_insert(position);
        }
    }

    /// A connection got messages from the log.
    pub(crate) fn skip(&mut self, index: u32, slot: u32, reached: Reached) {
        if let Some(entry) = self.entries.get_mut(index as usize) {
            entry.skips.insert(slot, reached);
        }
    }

    /// The slots that do not get the message at `position`, since they got it from the log. Forgets those that it has
    /// passed: offsets arrive in order.
    pub(crate) fn take_skips(&mut self, index: u32, position: Position) -> HashSet<u32> {
        let Some(entry) = self.entries.get_mut(index as usize) else { return HashSet::new() };
        let ahead = |reached: &Option<Position>| {
            reached.is_some_and(|until| until.epoch == position.epoch && until.offset >= position.offset)
        };
        entry.skips.retain(|_, Reached { last, retained_at }| ahead(last) || ahead(retained_at));
        if entry.skips.is_empty() {
            entry.skips = HashMap::new(); // a storm of recoveries made it large
        }
        let has = |reached: &Reached| ahead(&reached.last) || reached.retained_at == Some(position);
        let having = entry.skips.iter().filter(|(_, reached)| has(reached));
        having.map(|(slot, _)| *slot).collect()
    }
}

/// A topic of the shard's index, and whether the subscription is for the connection's session only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription(u32);

impl Subscription {
    const OWN: u32 = 1 << 31;

    pub(crate) fn durable(index: u32) -> Self {
        Self(index)
    }

    pub(crate) fn own(index: u32) -> Self {
        Self(index | Self::OWN)
    }

    pub(crate) fn index(self) -> u32 {
        self.0 & !Self::OWN
    }

    pub(crate) fn is_own(self) -> bool {
        self.0 & Self::OWN != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_types::Epoch;

    fn at(offset: u64) -> Position {
        Position { epoch: Epoch(1), offset }
    }

    #[test]
    fn the_last_subscriber_removes_the_entry() {
        let registry = Registry::new(None);
        let mut index = TopicIndex::default();
        let topic = Topic::parse("news").expect("topic");
        let (entry, new) = index.subscribe(&registry, 5, &topic, 1);
        assert!(new);
        assert!(!index.subscribe(&registry, 5, &topic, 1).1);
        index.subscribe(&registry, 5, &topic, 2);
        assert_eq!((registry.topic_sessions(5), index.key(entry)), (2, Some(5)));
        assert!(index.is_subscribed(5, 2) && !index.is_subscribed(5, 3) && !index.is_subscribed(6, 2));
        index.unsubscribe(&registry, entry, 1);
        index.unsubscribe(&registry, entry, 1);
        assert_eq!(registry.topic_sessions(5), 1);
        index.unsubscribe(&registry, entry, 2);
        assert_eq!(index.find(5), None);
        assert_eq!(registry.topic_sessions(5), 0);
    }

    #[test]
    fn a_missing_message_shows_as_a_gap() {
        let registry = Registry::new(None);
        let mut index = TopicIndex::default();
        let (entry, _) = index.subscribe(&registry, 5, &Topic::everyone(), 1);
        assert_eq!([3, 4].map(|offset| index.pass(entry, at(offset))), [Pass::Next, Pass::Next]);
        assert_eq!(index.pass(entry, at(7)), Pass::Gap { behind: at(4) });
        assert_eq!(index.pass(entry, at(8)), Pass::Gap { behind: at(4) }, "it is still open");
        index.reach(entry, at(7));
        assert_eq!(
            [5, 7, 8].map(|offset| index.pass(entry, at(offset))),
            [Pass::Late, Pass::Late, Pass::Next]
        );
        index.reach(entry, at(6));
        assert_eq!(index.pass(entry, at(8)), Pass::Late, "it never goes back");
        let anew = |offset| Position { epoch: Epoch(2), offset };
        assert_eq!(index.pass(entry, anew(2)), Pass::Gap { behind: anew(0) }, "a log that began anew");
        assert_eq!(index.pass(entry, anew(1)), Pass::Next);
    }

    #[test]
    fn a_topic_begins_at_its_first_read() {
        let registry = Registry::new(None);
        let mut index = TopicIndex::default();
        let (entry, _) = index.subscribe(&registry, 5, &Topic::everyone(), 1);
        index.begin(entry, at(9));
        index.begin(entry, at(3));
        assert_eq!(index.pass(entry, at(11)), Pass::Gap { behind: at(9) });
        assert_eq!([10, 11].map(|offset| index.pass(entry, at(offset))), [Pass::Next, Pass::Next]);
        let (unused, _) = index.subscribe(&registry, 6, &Topic::everyone(), 1);
        index.begin(unused, Position { epoch: Epoch(0), offset: 0 });
        assert_eq!(index.pass(unused, at(2)), Pass::Gap { behind: at(0) });
    }

    #[test]
    fn a_skip_ends_behind_its_position() {
        let registry = Registry::new(None);
        let mut index = TopicIndex::default();
        let (entry, _) = index.subscribe(&registry, 5, &Topic::everyone(), 1);
        let last = |offset| Reached { last: Some(at(offset)), retained_at: None };
        index.skip(entry, 1, last(3));
        assert!(index.take_skips(entry, at(2)).contains(&1));
        assert!(index.take_skips(entry, at(3)).contains(&1));
        assert!(index.take_skips(entry, at(4)).is_empty());
        assert!(index.take_skips(entry, at(3)).is_empty(), "forgotten once passed");
        index.skip(entry, 1, Reached { last: None, retained_at: Some(at(6)) });
        let skipped = [5, 6, 7].map(|offset| index.take_skips(entry, at(offset)).contains(&1));
        assert_eq!(skipped, [false, true, false], "of a retained message nothing but itself");
    }
}
