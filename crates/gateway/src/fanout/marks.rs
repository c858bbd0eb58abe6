//! From mail to sockets: a message is marked at every connection it is for, and each connection is
//! written to once with all that is marked.
//!
//! The messages under way sit in a ring of 64; a connection remembers those it still has to get as
//! one bit each, so marking costs neither an allocation nor a reference count, and a burst to one
//! topic becomes one `writev` a connection. Connections of direct messages are written first; those
//! of topics follow in slices, and between two slices the loop looks at everything else. So a hot
//! topic delays a direct message by a slice, not by its whole audience ([`crate::fanout::overtake`]), and a
//! connection that gets both gets them in the order in which they came.
//!
//! Invariants: bits are set only for frames in the ring ([`crate::fanout::ring`]); a frame leaves it when
//! nobody waits for it.

use std::collections::VecDeque;

use noroshi_types::{Message, NotificationId, Outcome, Presence, When};

use crate::fanout::overtake::Stalled;
use crate::fanout::recent::Recent;
use crate::fanout::ring::Ring;

pub(crate) struct Fanout {
    pub(crate) ring: Ring,
    pub(crate) stalled: Stalled,
    /// Slots with bits. A slot may be named twice; the second time nothing is left to do.
    pub(crate) urgent: VecDeque<u32>,
    pub(crate) topic: VecDeque<u32>,
    /// Every message up to this id, in the order of commits, was marked: none of them waits.
    pub(crate) offered: NotificationId,
    /// What was offered lately, where it may be offered again.
    pub(crate) recent: Recent,
}

impl Fanout {
    pub(crate) fn new(recent: Recent) -> Self {
        Self {
            recent,
            ring: Ring::new(),
            stalled: Stalled::default(),
            urgent: VecDeque::new(),
            topic: VecDeque::new(),
            offered: NotificationId::from_bytes([0; 16]),
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.urgent.is_empty() || !self.topic.is_empty()
    }
}

/// Whether the presence gate lets a message pass; what is told if not.
pub(crate) fn gate(message: &Message, presence: Presence) -> Option<Outcome> {
    (message.when == When::Active && presence != Presence::Active).then_some(Outcome::Inactive)
}
