//! The subscriptions of one connection, with matching. Filters without wildcards use binary search; the few
//! with wildcards are scanned. Shared subscriptions are stored with the former, under their whole text, which
//! no topic name equals.

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
    /// Made by the client. Otherwise it is a durable subscription of the device that was made elsewhere.
    pub is_of_client: bool,
    /// Its position in the order of commits: it delivers nothing accepted up to here.
    pub since: i64,
    /// The retained messages are still to be delivered, because its connection ended before.
    pub retained_due: bool,
}

/// Invariant: both lists are sorted by filter, without duplicates.
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

    /// Limits the bytes of filters that are longer than usual; the count limits the others.
    fn is_full_of_bytes(&self, filter: &TopicFilter) -> bool {
        let held = || self.iter().map(|held| held.filter.as_str().len()).sum::<usize>();
        bytes_max() > limits::TOPIC_BYTES_MAX && held() + filter.as_str().len() > limits::FILTERS_BYTES_MAX
    }

    /// Replaces a subscription with the same filter (§3.8.4) and keeps its start. Returns whether it is new,
    /// or `None` if there is no room.
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

    /// Returns whether it was present.
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

    /// The subscriptions that receive a message: the shared subscription that it was assigned to, or all that
    /// match its topic.
    pub(super) fn receiving<'s>(&'s self, outgoing: &'s Outgoing) -> impl Iterator<Item = &'s Subscription> {
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
    fn all_matching_subscriptions_are_found() {
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
    fn wildcard_filters_are_limited() {
        let mut subscriptions = Subscriptions::default();
        for at in 0..WILDCARDS_MAX {
            assert_eq!(subscriptions.put(subscription(&format!("{at}/+"), 0), 1_000), Some(true));
        }
        assert_eq!(subscriptions.put(subscription("x/+", 0), 1_000), None);
        assert_eq!(subscriptions.put(subscription("x", 0), 1_000), Some(true));
    }
}
