//! Direct messages past messages of topics that have no place yet.
//!
//! A message keeps its place among the 64 under way ([`crate::fanout::marks`]) until its whole audience was
//! written to. Messages of topics and conditions may take all places but a few; one more waits here,
//! in the order of the mailbox, and what comes behind it is looked at: a direct message goes on for
//! every connection to which nothing here may be for. So a hot topic that is more than the sockets
//! take delays the direct messages of its own audience, and of nobody else.
//!
//! Invariant: what one connection gets, it gets in the order of the mailbox.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::fanout::mail::Mail;
use crate::session::registry::{Address, Key, KeyMap};

/// Mails that wait here; more stay in the mailbox, and direct messages behind them too.
pub(crate) const STALLED_MAX: usize = 1_024;

/// Of topics. Not their places in the index: one that nobody hears yet has none.
pub(crate) type Keys = SmallVec<[Key; 2]>;

/// Mail that waits for a place.
#[derive(Default)]
pub(crate) struct Stalled {
    /// Each with the topics that it may be for.
    pub(crate) mail: VecDeque<(Mail, Keys)>,
    /// How many of them may be for the connections of a topic, or for one connection by name. None is 0.
    pub(crate) by_topic: KeyMap<u32>,
    pub(crate) by_slot: HashMap<u32, u32>,
}

impl Stalled {
    pub(crate) fn is_empty(&self) -> bool {
        self.mail.is_empty()
    }

    /// Everything that waits, which will not be written.
    pub(crate) fn into_mail(self) -> impl Iterator<Item = Mail> {
        self.mail.into_iter().map(|(mail, _)| mail)
    }

    pub(crate) fn push(&mut self, mail: Mail, topics: Keys) {
        for topic in &topics {
            *self.by_topic.entry(*topic).or_default() += 1;
        }
        for address in named(&mail) {
            *self.by_slot.entry(address.slot).or_default() += 1;
        }
        self.mail.push_back((mail, topics));
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
        Mail::Direct { to, .. } | Mail::Reread { to, .. } => to,
        Mail::Subscribe { to, .. } | Mail::Unsubscribe { to, .. } | Mail::Stanza { to, .. } => {
            std::slice::from_ref(to)
        }
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
    fn what_waits_is_counted_until_it_goes_on() {
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
