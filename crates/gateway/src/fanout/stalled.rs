//! Lets direct messages pass messages of topics that have no place yet.
//!
//! A message keeps its place among the 64 in flight ([`crate::fanout::ring`]) until it was written to its whole
//! audience. Messages of topics and conditions may take all places but a few. The next ones wait here, in the order of
//! the mailbox, while the shard examines the mail behind them: a direct message is delivered to every connection that
//! no waiting message may be for. So a hot topic that exceeds what the sockets take delays the direct messages of its
//! own audience only.
//!
//! Invariant: each connection gets its messages in the order of the mailbox.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::fanout::mail::Mail;
use crate::session::registry::{Address, Key, KeyMap};
use crate::session::topic_index::{Subscription, TopicIndex};

/// Mails that may wait here; more stay in the mailbox, with the direct messages behind them.
const STALLED_MAX: usize = 1_024;

/// Keys of topics, and not their places in the index: a topic without a subscriber has none.
type Keys = SmallVec<[Key; 2]>;

/// Mail that waits for a place.
#[derive(Default)]
pub(crate) struct Stalled {
    /// Each with the topics that it may be for.
    mail: VecDeque<(Mail, Keys)>,
    /// How many of them may be for the subscribers of a topic, or for one connection by name. Zero has no entry.
    by_topic: KeyMap<u32>,
    by_slot: HashMap<u32, u32>,
}

impl Stalled {
    pub(crate) fn is_empty(&self) -> bool {
        self.mail.is_empty()
    }

    /// All mail that waits, which will not be written.
    pub(crate) fn into_mail(self) -> impl Iterator<Item = Mail> {
        self.mail.into_iter().map(|(mail, _)| mail)
    }

    fn push(&mut self, mail: Mail, topics: Keys) {
        for topic in &topics {
            *self.by_topic.entry(*topic).or_default() += 1;
        }
        for address in named(&mail) {
            *self.by_slot.entry(address.slot).or_default() += 1;
        }
        self.mail.push_back((mail, topics));
    }

    /// Whether nothing more may wait here.
    pub(crate) fn is_full(&self) -> bool {
        self.mail.len() >= STALLED_MAX
    }

    /// Keeps a mail that is for connections only, behind everything that waits.
    pub(crate) fn keep(&mut self, mail: Mail) {
        self.push(mail, Keys::new());
    }

    /// Returns the part of a mail that may pass those that wait; the rest waits behind them. `waits`: whether something
    /// here may be for a connection ([`Stalled::may_concern`]).
    pub(crate) fn pass(&mut self, mail: Mail, waits: impl Fn(&Self, Address) -> bool) -> Option<Mail> {
        let mut topics = Keys::new();
        match mail {
            Mail::Direct { dispatch, to } => {
                let (wait, pass): (Vec<_>, Vec<_>) = to.into_iter().partition(|to| waits(self, *to));
                if !wait.is_empty() {
                    self.push(Mail::Direct { dispatch: dispatch.clone(), to: wait }, topics);
                }
                return (!pass.is_empty()).then_some(Mail::Direct { dispatch, to: pass });
            }
            Mail::Topic { key, .. } => topics.push(key),
            Mail::Condition { ref audience, .. } => {
                topics.extend(audience.topics.iter().map(|(_, key)| *key));
                // Otherwise a device that is subscribed to none of its topics is no recipient.
                topics.extend(audience.condition.matches_none().then_some(audience.everyone));
            }
            Mail::Subscribe { .. }
            | Mail::Unsubscribe { .. }
            | Mail::Offered { .. }
            | Mail::Stanza { .. }
            | Mail::Follow { .. }
            | Mail::Items { .. }
            | Mail::Reread { .. } => {}
        }
        self.push(mail, topics);
        None
    }

    /// Whether something that waits may be for the connection of a slot with these subscriptions.
    pub(crate) fn may_concern(&self, slot: u32, subscriptions: &[Subscription], index: &TopicIndex) -> bool {
        if self.by_slot.contains_key(&slot) {
            return true;
        }
        // Whichever are fewer: a device may have 1,000 topics, and a request name 10,000 devices.
        if self.by_topic.len() < subscriptions.len() {
            return self.by_topic.keys().any(|key| index.is_subscribed(*key, slot));
        }
        let mut keys = subscriptions.iter().filter_map(|topic| index.key(topic.index()));
        keys.any(|key| self.by_topic.contains_key(&key))
    }

    pub(crate) fn pop(&mut self) -> Option<Mail> {
        let (mail, topics) = self.mail.pop_front()?;
        for topic in &topics {
            take_one(&mut self.by_topic, topic);
        }
        for address in named(&mail) {
            take_one(&mut self.by_slot, &address.slot);
        }
        Some(mail)
    }
}

fn take_one<K: Hash + Eq, S: BuildHasher>(counts: &mut HashMap<K, u32, S>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// The connections that a mail names.
fn named(mail: &Mail) -> &[Address] {
    match mail {
        Mail::Direct { to, .. } | Mail::Reread { to, .. } | Mail::Items { to, .. } => to,
        Mail::Subscribe { to, .. }
        | Mail::Unsubscribe { to, .. }
        | Mail::Follow { to, .. }
        | Mail::Stanza { to, .. } => std::slice::from_ref(to),
        Mail::Topic { .. } | Mail::Condition { .. } | Mail::Offered { .. } => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dispatch::Dispatch;

    fn direct(slots: &[u32]) -> Mail {
        let to = slots.iter().map(|slot| Address { shard: 0, slot: *slot, generation: 1 }).collect();
        Mail::Direct { dispatch: Dispatch::for_tests(), to }
    }

    #[test]
    fn stalled_mail_is_counted_until_it_continues() {
        let mut stalled = Stalled::default();
        let topic = Mail::Topic { dispatch: Dispatch::for_tests(), key: 7, deliveries: 3 };
        stalled.push(topic, Keys::from_slice(&[7]));
        stalled.push(direct(&[1, 2]), Keys::new());
        stalled.push(direct(&[2]), Keys::new());
        assert!(stalled.by_topic.contains_key(&7) && stalled.by_slot.len() == 2);
        assert!(matches!(stalled.pop(), Some(Mail::Topic { key: 7, .. })));
        assert!(stalled.by_topic.is_empty());
        assert!(matches!(stalled.pop(), Some(Mail::Direct { to, .. }) if to.len() == 2));
        assert_eq!(stalled.by_slot.keys().collect::<Vec<_>>(), [&2]);
        assert!(stalled.pop().is_some() && stalled.by_slot.is_empty() && stalled.is_empty());
    }
}
