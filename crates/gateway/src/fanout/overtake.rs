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

use crate::fanout::mailbox::Mail;
use crate::fanout::marks::Fanout;
use crate::session::registry::{Address, Key, KeyMap};
use crate::shard::Shard;

/// Mails that wait here; more stay in the mailbox, and direct messages behind them too.
const STALLED_MAX: usize = 1_024;

/// Of topics. Not their places in the index: one that nobody hears yet has none.
type Keys = SmallVec<[Key; 2]>;

/// Mail that waits for a place.
#[derive(Default)]
pub(crate) struct Stalled {
    /// Each with the topics that it may be for.
    mail: VecDeque<(Mail, Keys)>,
    /// How many of them may be for the connections of a topic, or for one connection by name. None is 0.
    by_topic: KeyMap<u32>,
    by_slot: HashMap<u32, u32>,
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

    fn pop(&mut self) -> Option<Mail> {
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

impl Shard {
    /// Whether [`Shard::next_mail`] has something.
    pub(crate) fn has_next_mail(&self) -> bool {
        let Fanout { ring, stalled, .. } = &self.fanout;
        ring.has_room_for_topics() && !stalled.is_empty()
            || ring.has_room() && stalled.mail.len() < STALLED_MAX && !self.inlet.mail.is_empty()
    }

    /// The next mail that can be marked now, and whether it passes others.
    pub(crate) fn next_mail(&mut self) -> Option<(Mail, bool)> {
        if self.fanout.ring.has_room_for_topics()
            && let Some(mail) = self.fanout.stalled.pop()
        {
            return Some((mail, false));
        }
        while self.fanout.ring.has_room() && self.fanout.stalled.mail.len() < STALLED_MAX {
            let mail = self.inlet.mail.try_recv();
            // What was lost came before anything that is taken from now on. Looked for where nothing is
            // left as well: nothing may follow for long.
            if self.mailbox().take_lost() {
                self.resync(self.fanout.offered);
            }
            let mail = mail.ok()?;
            if self.fanout.ring.has_room_for_topics() && self.fanout.stalled.is_empty() {
                return Some((mail, false));
            }
            if let Some(mail) = self.pass(mail) {
                return Some((mail, true));
            }
        }
        None
    }

    /// What of a mail can go on past those that wait; the rest waits behind them.
    fn pass(&mut self, mail: Mail) -> Option<Mail> {
        let mut topics = Keys::new();
        match mail {
            Mail::Direct { dispatch, to } => {
                let (wait, pass): (Vec<_>, Vec<_>) = to.into_iter().partition(|to| self.waits(*to));
                if !wait.is_empty() {
                    self.fanout.stalled.push(Mail::Direct { dispatch: dispatch.clone(), to: wait }, topics);
                }
                return (!pass.is_empty()).then_some(Mail::Direct { dispatch, to: pass });
            }
            Mail::Topic { key, .. } => topics.push(key),
            Mail::Condition { ref audience, .. } => {
                topics.extend(audience.topics.iter().map(|(_, key)| *key));
                // Else who hears none of its topics is not meant.
                topics.extend(audience.condition.matches_none().then_some(audience.everyone));
            }
            Mail::Subscribe { .. }
            | Mail::Unsubscribe { .. }
            | Mail::Stanza { .. }
            | Mail::Offered { .. }
            | Mail::Reread { .. } => {}
        }
        self.fanout.stalled.push(mail, topics);
        None
    }

    /// Whether something that waits may be for this connection.
    fn waits(&self, to: Address) -> bool {
        let Stalled { by_topic, by_slot, .. } = &self.fanout.stalled;
        let connection = self.connections.get(to.slot as usize);
        let Some(connection) = connection.filter(|connection| connection.generation == to.generation) else {
            return false;
        };
        if by_slot.contains_key(&to.slot) {
            return true;
        }
        // Whichever are fewer: a device may hear 1,000 topics, and a request name 10,000 devices.
        if by_topic.len() < connection.topics.len() {
            return by_topic.keys().any(|key| self.topics.hears(*key, to.slot));
        }
        let mut keys = connection.topics.iter().filter_map(|topic| self.topics.key(topic.index()));
        keys.any(|key| by_topic.contains_key(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fanout::dispatch::Dispatch;

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
