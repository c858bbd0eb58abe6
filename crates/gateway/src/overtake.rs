//! Direct messages past messages of topics that have no place yet.
//!
//! A message keeps its place among the 64 under way ([`crate::fanout`]) until its whole audience was
//! written to. Messages of topics and conditions may take all places but a few; one more waits here,
//! in the order of the mailbox, and what comes behind it is looked at: a direct message goes on for
//! every connection to which nothing here may be for. So a hot topic that is more than the sockets
//! take delays the direct messages of its own audience, and of nobody else.
//!
//! Invariant: what one connection gets, it gets in the order of the mailbox.

use std::collections::{HashMap, VecDeque};

use smallvec::SmallVec;

use crate::mailbox::Mail;
use crate::registry::Address;
use crate::shard::Shard;

/// Mails that wait here; more stay in the mailbox, and direct messages behind them too.
const STALLED_MAX: usize = 1_024;

type Topics = SmallVec<[u32; 2]>;

/// Mail that waits for a place.
#[derive(Default)]
pub(crate) struct Stalled {
    /// Each with the topics (by index) that it may be for.
    mail: VecDeque<(Mail, Topics)>,
    /// How many of them may be for the connections of a topic, or for one connection by name. None is 0.
    by_topic: HashMap<u32, u32>,
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

    fn push(&mut self, mail: Mail, topics: Topics) {
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
        for topic in topics {
            take_one(&mut self.by_topic, topic);
        }
        for address in named(&mail) {
            take_one(&mut self.by_slot, address.slot);
        }
        Some(mail)
    }
}

fn take_one(counts: &mut HashMap<u32, u32>, key: u32) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// The connections that a mail names.
fn named(mail: &Mail) -> &[Address] {
    match mail {
        Mail::Direct { to, .. } => to,
        Mail::Subscribe { to, .. } | Mail::Unsubscribe { to, .. } => std::slice::from_ref(to),
        Mail::Topic { .. } | Mail::Condition { .. } => &[],
    }
}

impl Shard {
    /// Whether [`Shard::next_mail`] has something.
    pub(crate) fn has_next_mail(&self) -> bool {
        let fanout = &self.fanout;
        fanout.has_room_for_topics() && !fanout.stalled.is_empty()
            || fanout.has_room() && fanout.stalled.mail.len() < STALLED_MAX && !self.inlet.mail.is_empty()
    }

    /// The next mail that can be marked now, and whether it passes others.
    pub(crate) fn next_mail(&mut self) -> Option<(Mail, bool)> {
        if self.fanout.has_room_for_topics()
            && let Some(mail) = self.fanout.stalled.pop()
        {
            return Some((mail, false));
        }
        while self.fanout.has_room() && self.fanout.stalled.mail.len() < STALLED_MAX {
            let mail = self.inlet.mail.try_recv().ok()?;
            // What was lost came before anything that is taken from now on.
            if self.mailbox().take_lost() {
                self.resync(self.fanout.offered);
            }
            if self.fanout.has_room_for_topics() && self.fanout.stalled.is_empty() {
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
        let mut topics = Topics::new();
        match mail {
            Mail::Direct { dispatch, to } => {
                let (wait, pass): (Vec<_>, Vec<_>) = to.into_iter().partition(|to| self.waits(*to));
                if !wait.is_empty() {
                    self.fanout.stalled.push(Mail::Direct { dispatch: dispatch.clone(), to: wait }, topics);
                }
                return (!pass.is_empty()).then_some(Mail::Direct { dispatch, to: pass });
            }
            Mail::Topic { key, .. } => topics.extend(self.topics.find(key)),
            Mail::Condition { ref audience, .. } => {
                topics.extend(audience.topics.iter().filter_map(|(_, key)| self.topics.find(*key)));
                // Else who hears none of its topics is not meant.
                if audience.condition.matches_none() {
                    topics.extend(self.topics.find(audience.everyone));
                }
            }
            Mail::Subscribe { .. } | Mail::Unsubscribe { .. } => {}
        }
        self.fanout.stalled.push(mail, topics);
        None
    }

    /// Whether something that waits may be for this connection.
    fn waits(&self, to: Address) -> bool {
        let stalled = &self.fanout.stalled;
        let connection = self.connections.get(to.slot as usize);
        connection.filter(|connection| connection.generation == to.generation).is_some_and(|connection| {
            stalled.by_slot.contains_key(&to.slot)
                || connection.topics.iter().any(|topic| stalled.by_topic.contains_key(&topic.index()))
        })
    }
}
