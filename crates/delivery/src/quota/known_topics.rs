//! Topics of an app that exist, or that a request was just allowed to create.
//!
//! Only new topics need room in the app's quota. Each new topic is charged once, however many requests publish to it at
//! the same time. The store removes topics that nothing needs; [`KNOWN_FOR`] is shorter than it keeps them.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use noroshi_types::Topic;
use parking_lot::Mutex;

/// 8 bytes each and as much for the table, 256 KiB. Beyond it the store is asked again.
const KNOWN_MAX: usize = 1 << 14;
/// Then the store is asked again. Half of the shortest `store.unused_topic_retention`.
const KNOWN_FOR: Duration = Duration::from_secs(12 * 3_600);

#[derive(Default)]
pub(super) struct KnownTopics {
    /// The lock of [`super::counts::Counts`] is taken under this lock.
    known: Mutex<Known>,
    hasher: RandomState,
}

#[derive(Default)]
struct Known {
    /// Hashes under a random key of this app, so that clients cannot choose names that collide.
    hashes: HashSet<u64>,
    /// When the first of them was added.
    since: Option<Instant>,
}

impl Known {
    fn insert(&mut self, hash: u64, now: Instant) {
        if self.hashes.len() >= KNOWN_MAX {
            self.clear();
        }
        self.since.get_or_insert(now);
        self.hashes.insert(hash);
    }

    fn contains(&self, hash: u64) -> bool {
        self.hashes.contains(&hash)
    }

    fn clear(&mut self) {
        self.hashes.clear();
        self.since = None;
    }

    /// Forgets all of them together.
    fn expire(&mut self, now: Instant) {
        if self.since.is_some_and(|since| now.saturating_duration_since(since) >= KNOWN_FOR) {
            self.clear();
        }
    }
}

impl KnownTopics {
    /// Those of the topics that may be new to the store.
    pub(super) fn unknown<'a>(&self, topics: impl Iterator<Item = &'a Topic>) -> Vec<Topic> {
        self.unknown_at(topics, Instant::now())
    }

    fn unknown_at<'a>(&self, topics: impl Iterator<Item = &'a Topic>, now: Instant) -> Vec<Topic> {
        let mut known = self.known.lock();
        known.expire(now);
        topics.filter(|topic| !topic.is_everyone() && !known.contains(self.hash(topic))).cloned().collect()
    }

    /// These topics exist.
    pub(super) fn learn<'a>(&self, topics: impl Iterator<Item = &'a Topic>) {
        let (mut known, now) = (self.known.lock(), Instant::now());
        topics.for_each(|topic| known.insert(self.hash(topic), now));
    }

    /// Claims the topics that are not claimed yet, after `reserve` granted room for their number.
    pub(super) fn claim<'a, R, E>(
        &self,
        topics: impl Iterator<Item = &'a Topic>,
        reserve: impl FnOnce(u64) -> Result<R, E>,
    ) -> Result<(R, Vec<u64>), E> {
        let mut known = self.known.lock();
        let new: HashSet<u64> =
            topics.map(|topic| self.hash(topic)).filter(|hash| !known.contains(*hash)).collect();
        let (reserved, now) = (reserve(new.len() as u64)?, Instant::now());
        new.iter().for_each(|hash| known.insert(*hash, now));
        Ok((reserved, new.into_iter().collect()))
    }

    /// Topics that were claimed and not created after all.
    pub(super) fn forget(&self, claimed: &[u64]) {
        let mut known = self.known.lock();
        for hash in claimed {
            known.hashes.remove(hash);
        }
    }

    fn hash(&self, topic: &Topic) -> u64 {
        self.hasher.hash_one(topic.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(names: &[&str]) -> Vec<Topic> {
        names.iter().map(|name| Topic::parse(name).expect("a topic")).collect()
    }

    fn charged(known: &KnownTopics, names: &[&str]) -> (u64, Vec<u64>) {
        let claimed = known.claim(topics(names).iter(), Ok::<_, ()>);
        claimed.expect("room")
    }

    #[test]
    fn a_new_topic_is_charged_once() {
        let known = KnownTopics::default();
        assert_eq!(charged(&known, &["a", "b", "a"]).0, 2, "once in one request");
        assert_eq!(charged(&known, &["a"]).0, 0, "once while it is made");
        let asked = [topics(&["a", "b", "c"]), vec![Topic::everyone()]].concat();
        assert_eq!(known.unknown(asked.iter()), topics(&["c"]));
    }

    #[test]
    fn topics_are_looked_up_again_before_the_store_may_remove_them() {
        let (known, asked) = (KnownTopics::default(), topics(&["a", "b"]));
        known.learn(asked[..1].iter());
        let later = |time| Instant::now() + time;
        assert_eq!(known.unknown_at(asked.iter(), later(KNOWN_FOR / 2)), topics(&["b"]));
        assert_eq!(known.unknown_at(asked.iter(), later(KNOWN_FOR)), asked);
        known.learn(asked.iter());
        assert_eq!(known.unknown(asked.iter()), []);
    }

    #[test]
    fn a_topic_that_was_not_created_is_charged_again() {
        let known = KnownTopics::default();
        let (_, claimed) = charged(&known, &["a"]);
        known.forget(&claimed);
        assert_eq!(charged(&known, &["a"]).0, 1);
        let refused = known.claim(topics(&["b"]).iter(), |_| Err::<(), _>(()));
        assert_eq!(refused, Err(()));
        assert_eq!(known.unknown(topics(&["b"]).iter()), topics(&["b"]), "refused, it stays unknown");
    }
}
