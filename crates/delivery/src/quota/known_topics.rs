//! Topics of an app that exist, or that a request was just allowed to create.
//!
//! Only new topics need room in the app's quota. Each new topic is charged once, however many requests publish to it at
//! the same time.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use noroshi_types::Topic;
use parking_lot::Mutex;

/// 8 bytes each and as much for the table, 256 KiB. Beyond it the store is asked again.
const KNOWN_MAX: usize = 1 << 14;

#[derive(Default)]
pub(super) struct KnownTopics {
    /// Hashes under a random key of this app, so that clients cannot choose names that collide. The
    /// lock of [`super::counts::Counts`] is taken under this lock.
    known: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl KnownTopics {
    /// Those of the topics that may be new to the store.
    pub(super) fn unknown<'a>(&self, topics: impl Iterator<Item = &'a Topic>) -> Vec<Topic> {
        let known = self.known.lock();
        topics.filter(|topic| !topic.is_everyone() && !known.contains(&self.hash(topic))).cloned().collect()
    }

    /// These topics exist.
    pub(super) fn learn<'a>(&self, topics: impl Iterator<Item = &'a Topic>) {
        let mut known = self.known.lock();
        topics.for_each(|topic| insert(&mut known, self.hash(topic)));
    }

    /// Claims the topics that are not claimed yet, after `reserve` granted room for their number.
    pub(super) fn claim<'a, R, E>(
        &self,
        topics: impl Iterator<Item = &'a Topic>,
        reserve: impl FnOnce(u64) -> Result<R, E>,
    ) -> Result<(R, Vec<u64>), E> {
        let mut known = self.known.lock();
        let new: HashSet<u64> =
            topics.map(|topic| self.hash(topic)).filter(|hash| !known.contains(hash)).collect();
        let reserved = reserve(new.len() as u64)?;
        new.iter().for_each(|hash| insert(&mut known, *hash));
        Ok((reserved, new.into_iter().collect()))
    }

    /// Topics that were claimed and not created after all.
    pub(super) fn forget(&self, claimed: &[u64]) {
        let mut known = self.known.lock();
        for hash in claimed {
            known.remove(hash);
        }
    }

    fn hash(&self, topic: &Topic) -> u64 {
        self.hasher.hash_one(topic.as_str())
    }
}

fn insert(known: &mut HashSet<u64>, hash: u64) {
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(hash);
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
