//! Topics of an app that are known to exist, or that somebody was just let make: only what is new needs room in the
//! app's quota, and each new topic is charged once, however many publish to it at the same time.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use noroshi_types::Topic;
use parking_lot::Mutex;

use super::OfApp;

/// 8 bytes each and as much for the table, 256 KiB. More are asked for again.
const KNOWN_MAX: usize = 1 << 14;

#[derive(Default)]
pub(super) struct KnownTopics {
    /// Hashes under a key of this app's own: nobody can choose names that collide. Counts are locked under this lock.
    known: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl KnownTopics {
    /// Of these topics those that may be new to the store.
    pub(super) fn unknown<'a>(&self, topics: impl Iterator<Item = &'a Topic>) -> Vec<Topic> {
        let known = self.known.lock();
        topics.filter(|topic| !topic.is_everyone() && !known.contains(&self.hash(topic))).cloned().collect()
    }

    /// They exist.
    pub(super) fn learn<'a>(&self, topics: impl Iterator<Item = &'a Topic>) {
        let mut known = self.known.lock();
        topics.for_each(|topic| insert(&mut known, self.hash(topic)));
    }

    /// Claims the topics that nobody has claimed; calls `reserve` with their number.
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

    fn forget(&self, claimed: &[u64]) {
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

/// New topics that somebody was let make. Dropped, they are unknown again: whoever published to one of them meanwhile may
/// have made it uncharged, which the next count corrects.
pub(super) struct Claim {
    of: Arc<OfApp>,
    topics: Vec<u64>,
}

impl Claim {
    pub(super) fn new(of: Arc<OfApp>, topics: Vec<u64>) -> Self {
        Self { of, topics }
    }

    /// They were made.
    pub(super) fn settle(mut self) {
        self.topics.clear();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.topics.is_empty() {
            self.of.topics.forget(&self.topics);
        }
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
    fn what_was_not_made_is_charged_again() {
        let known = KnownTopics::default();
        let (_, claimed) = charged(&known, &["a"]);
        known.forget(&claimed);
        assert_eq!(charged(&known, &["a"]).0, 1);
        let refused = known.claim(topics(&["b"]).iter(), |_| Err::<(), _>(()));
        assert_eq!(refused, Err(()));
        assert_eq!(known.unknown(topics(&["b"]).iter()), topics(&["b"]), "refused, it stays unknown");
    }
}
