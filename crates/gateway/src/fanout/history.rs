//! What a shard of one of several nodes offered its sessions recently.
//!
//! Messages between nodes may get lost, so backlogs are read again from before the loss (`shard::backlog`), and topics
//! are offered again. Most of these messages had been received already: they are recorded here, as one number for a
//! session and a message, or for a topic's message, which all its subscribers were offered at once. The memory is
//! bounded; a message that it has forgotten is received twice, with the same id.
//!
//! Invariant: a recorded message was marked at its connection or is held for it, so it will be written.

use std::collections::VecDeque;
use std::hash::BuildHasherDefault;

use hashbrown::HashSet;
use noroshi_types::{Message, NotificationId, When};

use crate::fanout::Received;
use crate::session::registry::KeyHasher;
use crate::wire::dispatch::Dispatch;

/// At 20 bytes each 5 MiB a shard: some ten seconds of 20,000 messages a second.
const REMEMBERED: usize = 1 << 18;

#[derive(Default)]
pub(crate) struct OfferHistory {
    /// Whether there are other nodes.
    is_kept: bool,
    seen: HashSet<u64, BuildHasherDefault<KeyHasher>>,
    /// Oldest first.
    order: VecDeque<u64>,
}

impl OfferHistory {
    pub(crate) fn new(is_kept: bool) -> Self {
        Self { is_kept, ..Self::default() }
    }

    /// A message was offered to a session; those of a topic are recorded by [`OfferHistory::note_topic`].
    pub(crate) fn note(&mut self, dispatch: &Dispatch, generation: u64, topic: Option<u32>) {
        if self.is_kept && topic.is_none() && dispatch.is_stored() {
            self.add(of_session(dispatch.message.id, generation));
        }
    }

    /// A page brought a topic's message to one session, which is left out if the message is offered again.
    pub(crate) fn note_page(&mut self, message: &Message, generation: u64) {
        if self.is_kept {
            self.add(of_session(message.id, generation));
        }
    }

    /// A topic's message is offered to all its subscribers. False if it was before.
    pub(crate) fn note_topic(&mut self, message: &Message) -> bool {
        !self.is_kept || message.when != When::Stored || self.add(of_topic(message.id))
    }

    pub(crate) fn has(&self, id: NotificationId, generation: u64) -> bool {
        self.is_kept && self.seen.contains(&of_session(id, generation))
    }

    pub(crate) fn has_topic(&self, id: NotificationId) -> bool {
        self.is_kept && self.seen.contains(&of_topic(id))
    }

    /// Whether a connection has a message already: pages of its backlog brought it; or it is offered again, and was
    /// there when the log-in read the store or was offered before.
    pub(crate) fn is_known(&self, dispatch: &Dispatch, received: Received) -> bool {
        let Received { watermark, as_of, generation } = received;
        let id = dispatch.message.id;
        dispatch.is_paged(watermark) || dispatch.is_reoffered && (id <= as_of || self.has(id, generation))
    }

    fn add(&mut self, number: u64) -> bool {
        let new = self.seen.insert(number);
        if new {
            self.order.push_back(number);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        new
    }
}

/// The second half of an id is a hash: no two ids of one store share it.
fn of_topic(id: NotificationId) -> u64 {
    id.0.as_u64_pair().1
}

/// Generations differ in their low bits; the odd factor spreads them (2^64 divided by the golden ratio).
fn of_session(id: NotificationId, generation: u64) -> u64 {
    of_topic(id) ^ generation.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> NotificationId {
        NotificationId::from_bytes((u128::from(number) + 1).to_be_bytes())
    }

    #[test]
    fn sessions_and_topics_are_separate_and_the_oldest_entry_is_forgotten() {
        let mut history = OfferHistory::new(true);
        assert!(history.add(of_session(id(0), 7)) && !history.add(of_session(id(0), 7)));
        assert!(history.has(id(0), 7) && !history.has(id(0), 8) && !history.has_topic(id(0)));
        for number in 1..=REMEMBERED as u64 {
            history.add(of_topic(id(number)));
        }
        assert!(!history.has(id(0), 7) && history.has_topic(id(1)));
        assert_eq!(history.seen.len(), REMEMBERED);
    }

    #[test]
    fn a_single_node_records_nothing() {
        let mut history = OfferHistory::new(false);
        let dispatch = Dispatch::for_tests();
        history.note(&dispatch, 1, None);
        assert!(history.note_topic(&dispatch.message) && history.note_topic(&dispatch.message));
        assert!(history.seen.is_empty());
    }
}
