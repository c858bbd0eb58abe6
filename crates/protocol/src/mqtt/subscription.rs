//! What one connection has subscribed to, and which of it a topic matches. Filters without wildcards are
//! found by halving, the few with wildcards are gone through. A share is among the former, under its whole text: no topic has
//! that name.

use noroshi_types::limits;
use noroshi_types::topic::bytes_max;

use super::config::WILDCARDS_MAX;
use super::{Outgoing, SubscribeOptions, TopicFilter};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    pub filter: TopicFilter,
    pub options: SubscribeOptions,
    /// The subscription identifier (§3.8.2.1.2); 0 is none.
    pub id: u32,
    /// The client subscribed. Otherwise it is a durable subscription of the device that was made elsewhere.
    pub is_of_client: bool,
    /// Where in the order of commits it was made: it brings nothing of what was accepted up to here.
    pub since: i64,
    /// Its connection ended before what its topics retain was read for it.
    pub retained_due: bool,
}

/// Invariant: both lists are ordered by filter, and each filter is there once.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    exact: Vec<Subscription>,
    wild: Vec<Subscription>,
}

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.exact.len() + self.wild.len()
    }

    pub(super) fn held_bytes(&self) -> usize {
        let filters: usize = self.iter().map(|held| held.filter.as_str().len()).sum();
        size_of::<Self>()
            + (self.exact.capacity() + self.wild.capacity()) * size_of::<Subscription>()
            + filters
    }

    /// Only where filters may be longer than usual: the number bounds the others.
    fn is_full_of_bytes(&self, filter: &TopicFilter) -> bool {
        let held = || self.iter().map(|held| held.filter.as_str().len()).sum::<usize>();
        bytes_max() > limits::TOPIC_BYTES_MAX && held() + filter.as_str().len() > limits::FILTERS_BYTES_MAX
    }

    /// Replaces one of the same filter (§3.8.4), which goes on from where that began. Whether it is new; `None` if there
    /// is no room.
    pub(super) fn put(&mut self, subscription: Subscription, max: usize) -> Option<bool> {
        let full = self.len() >= max || self.is_full_of_bytes(&subscription.filter);
        let wild = subscription.filter.has_wildcards();
        let list = if wild { &mut self.wild } else { &mut self.exact };
        match list.binary_search_by(|held| held.filter.cmp(&subscription.filter)) {
            Ok(at) => list[at] = Subscription { since: list[at].since, ..subscription },
            Err(_) if full || wild && list.len() >= WILDCARDS_MAX => return None,
            Err(at) => {
                list.insert(at, subscription);
                return Some(true);
            }
        }
        Some(false)
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, filter: &TopicFilter) -> bool {
        let list = if filter.has_wildcards() { &mut self.wild } else { &mut self.exact };
        let found = list.binary_search_by(|held| held.filter.cmp(filter));
        found.is_ok_and(|at| {
            list.remove(at);
            true
        })
    }

    pub(super) fn matching<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Subscription> {
        let exact = self.exact.binary_search_by(|held| held.filter.as_str().cmp(name));
        let exact = exact.ok().map(|at| &self.exact[at]);
        exact.into_iter().chain(self.wild.iter().filter(|held| held.filter.matches(name)))
    }

    /// Those that a message is for: the share that it was assigned by, or all that its topic matches.
    pub(super) fn hearing<'s>(&'s self, outgoing: &'s Outgoing) -> impl Iterator<Item = &'s Subscription> {
        let share = outgoing.share.as_deref();
        let of_share = share.and_then(|share| {
            let at = self.exact.binary_search_by(|held| held.filter.as_str().cmp(share)).ok()?;
            Some(&self.exact[at])
        });
        let by_topic = share.is_none().then(|| self.matching(&outgoing.topic));
        of_share.into_iter().chain(by_topic.into_iter().flatten())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Subscription> {
        self.exact.iter().chain(&self.wild)
    }

    pub(super) fn into_list(self) -> Vec<Subscription> {
        let mut list = self.exact;
        list.extend(self.wild);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::super::Qos;
    use super::*;

    fn subscription(filter: &str, id: u32) -> Subscription {
        let filter = TopicFilter::parse(filter).unwrap();
        let options = SubscribeOptions::new(Qos::AtLeastOnce);
        let (is_of_client, since, retained_due) = (true, i64::from(id), false);
        Subscription { filter, options, id, is_of_client, since, retained_due }
    }

    fn matching(subscriptions: &Subscriptions, name: &str) -> Vec<u32> {
        subscriptions.matching(name).map(|subscription| subscription.id).collect()
    }

    #[test]
    fn all_that_match_are_found() {
        let mut subscriptions = Subscriptions::default();
        for (at, filter) in ["b", "a", "a/+", "#", "a/b"].into_iter().enumerate() {
            assert_eq!(subscriptions.put(subscription(filter, at as u32 + 1), 9), Some(true));
        }
        assert_eq!(matching(&subscriptions, "a/b"), [5, 4, 3]);
        assert_eq!(matching(&subscriptions, "a"), [2, 4]);
        assert_eq!(subscriptions.put(subscription("a", 9), 5), Some(false), "replaced, though it is full");
        assert_eq!(subscriptions.matching("a").next().unwrap().since, 2, "it goes on");
        assert_eq!(subscriptions.put(subscription("c", 9), 5), None);
        assert_eq!(matching(&subscriptions, "a"), [9, 4]);
        let hash = TopicFilter::parse("#").unwrap();
        assert!(subscriptions.remove(&hash) && !subscriptions.remove(&hash));
        assert_eq!(matching(&subscriptions, "a"), [9]);
    }

    #[test]
    fn wildcards_are_few() {
        let mut subscriptions = Subscriptions::default();
        for at in 0..WILDCARDS_MAX {
            assert_eq!(subscriptions.put(subscription(&format!("{at}/+"), 0), 1_000), Some(true));
        }
        assert_eq!(subscriptions.put(subscription("x/+", 0), 1_000), None);
        assert_eq!(subscriptions.put(subscription("x", 0), 1_000), Some(true));
    }
}
