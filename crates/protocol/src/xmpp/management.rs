//! What was sent and is not confirmed. With stream management (XEP-0198) every stanza is counted and confirmed
//! by the client's counter. Without it the notifications that want a confirmation are: a ping is put behind
//! them (XEP-0199), and its answer says that the client has read up to there, since a stream is in order.
//!
//! Invariants: the queue holds what lies between `acked` and `sent`, so `sent - acked` is its length, modulo
//! 2^32; it and what it holds are bounded by the caller.

use std::collections::VecDeque;

use bytes::Bytes;
use noroshi_types::{DeviceId, NotificationId};

use super::config::Framing;
use super::presence::Show;

/// What becomes of a stanza that there is no room to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// It is read from the inbox again.
    Stored,
    /// It is worth nothing later.
    Passing,
    /// The session cannot be resumed without it.
    Needed,
}

#[derive(Debug)]
struct Entry {
    /// Of a notification that wants a confirmation.
    id: Option<NotificationId>,
    /// Kept while it may have to be sent again; empty where there was no room.
    bytes: Bytes,
}

/// What a confirmation was for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    /// The notifications among it.
    pub(super) ids: Vec<NotificationId>,
    /// More was sent since it was asked for: it is to be asked again.
    pub(super) more: bool,
}

/// A client that counts what it never got.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooHigh {
    pub(super) sent: u32,
}

#[derive(Debug, Default)]
pub(super) struct Management {
    /// Stream management is on.
    pub(super) counts: bool,
    /// The id under which the session can be resumed.
    pub(super) resume_id: Option<Box<str>>,
    /// The client's stanzas since it was enabled.
    pub(super) handled: u32,
    pub(super) sent: u32,
    acked: u32,
    /// What `sent` was when a confirmation was last asked for, until it comes.
    asked: Option<u32>,
    queue: VecDeque<Entry>,
    /// Notifications that went out before the client began to count.
    earlier: Vec<NotificationId>,
    /// In the queue, for sending again.
    bytes: usize,
    /// A stanza that is nowhere else could not be kept: the session cannot be resumed any more.
    torn: bool,
}

impl Management {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn can_resume(&self) -> bool {
        self.resume_id.is_some() && !self.torn
    }

    pub(super) fn push(
        &mut self,
        id: Option<NotificationId>,
        keep: Keep,
        bytes_max: usize,
        bytes: impl FnOnce() -> Bytes,
    ) {
        let mut kept = Bytes::new();
        if self.can_resume() {
            kept = bytes();
            if self.bytes + kept.len() > bytes_max {
                kept = Bytes::new();
                self.torn |= keep == Keep::Needed;
            }
        }
        self.bytes += kept.len();
        self.sent = self.sent.wrapping_add(1);
        self.queue.push_back(Entry { id, bytes: kept });
    }

    /// Everything up to `count` arrived.
    pub(super) fn acknowledge(&mut self, count: u32) -> Result<Arrived, TooHigh> {
        let news = count.wrapping_sub(self.acked) as usize;
        if news > self.queue.len() {
            return Err(TooHigh { sent: self.sent });
        }
        self.acked = count;
        let mut ids = Vec::new();
        let asked = self.asked.take();
        // A stream is in order: who counted a stanza, or answers, has read what went out before the count.
        if asked.is_some() || news > 0 {
            ids.append(&mut self.earlier);
        }
        for entry in self.queue.drain(..news) {
            self.bytes -= entry.bytes.len();
            ids.extend(entry.id);
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        // Not where it only answered with less than it was asked for: that would go on for ever.
        let more = asked.is_some_and(|asked| asked != self.sent) && !self.queue.is_empty();
        Ok(Arrived { ids, more })
    }

    /// From here on the client counts. What was sent before is confirmed by its first answer.
    pub(super) fn enable(&mut self, resume_id: Option<Box<str>>) {
        let earlier = self.queue.drain(..).filter_map(|entry| entry.id).collect();
        *self = Self { counts: true, resume_id, earlier, ..Self::default() };
    }

    /// On another connection: an answer that was asked for on the one before never comes.
    pub(super) fn resume(&mut self) {
        self.asked = None;
    }

    /// Whether nothing would be lost with it.
    pub(super) fn is_spent(&self) -> bool {
        !self.counts && self.queue.is_empty() && self.asked.is_none()
    }

    /// It was confirmed by itself (XEP-0184), and is not once more.
    pub(super) fn confirm(&mut self, id: NotificationId) {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.id == Some(id)) {
            entry.id = None;
        }
    }

    /// Whether to ask for a confirmation now, and the count it would be for.
    pub(super) fn ask(&mut self) -> Option<u32> {
        if self.asked.is_some() || (self.queue.is_empty() && self.earlier.is_empty()) {
            return None;
        }
        self.asked = Some(self.sent);
        self.asked
    }

    /// Asks whatever is asked already: to hear whether the client is there.
    pub(super) fn ask_again(&mut self) -> u32 {
        self.asked = Some(self.sent);
        self.sent
    }

    /// Whether an answer for `count` is due.
    pub(super) fn was_asked(&self, count: u32) -> bool {
        self.asked == Some(count)
    }

    /// What is to be sent again, in order, and the notifications to be read again: those of which nothing was kept, and
    /// all behind the first of them, since a device has one position in a topic. What is read again is not among what the
    /// client counts from here on.
    pub(super) fn take_unconfirmed(&mut self) -> (Vec<u8>, Vec<NotificationId>) {
        // Nothing on this connection will say that the one before brought these.
        let (mut again, mut lost) = (Vec::with_capacity(self.bytes), std::mem::take(&mut self.earlier));
        self.queue.retain(|entry| {
            let is_lost = entry.bytes.is_empty() || entry.id.is_some() && !lost.is_empty();
            if is_lost {
                self.bytes -= entry.bytes.len();
                lost.extend(entry.id);
            } else {
                again.extend_from_slice(&entry.bytes);
            }
            !is_lost
        });
        // No more than were sent: see the invariant.
        let left = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        self.sent = self.acked.wrapping_add(left);
        (again, lost)
    }

    /// Whether it was sent and is not confirmed.
    pub(super) fn holds(&self, id: NotificationId) -> bool {
        self.queue.iter().any(|entry| entry.id == Some(id)) || self.earlier.contains(&id)
    }

    pub(super) fn held_bytes(&self) -> usize {
        let earlier = self.earlier.capacity() * size_of::<NotificationId>();
        self.queue.capacity() * size_of::<Entry>() + self.bytes + earlier
    }
}

/// A session whose connection broke, to be kept for as long as it may be resumed. Bounded by
/// `Config::unacked_max` and `Config::unacked_bytes_max`.
#[derive(Debug)]
pub struct Suspended {
    pub(super) device: DeviceId,
    pub(super) jid: Box<str>,
    pub(super) framing: Framing,
    pub(super) management: Box<Management>,
    pub(super) show: Show,
    pub(super) inactive: bool,
}

impl Suspended {
    pub fn device(&self) -> &DeviceId {
        &self.device
    }

    /// What is kept is framed for this.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// What `Action::Resume` will name.
    pub fn id(&self) -> &str {
        self.management.resume_id.as_deref().unwrap_or_default()
    }

    /// How many of the client's stanzas were handled: what `Resumed::Gone` may tell later.
    pub fn handled(&self) -> u32 {
        self.management.handled
    }

    /// What it holds on the heap, about.
    pub fn held_bytes(&self) -> usize {
        let names = self.device.as_str().len() + self.jid.len() + self.id().len();
        size_of::<Self>() + size_of::<Management>() + names + self.management.held_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(n: u8) -> NotificationId {
        NotificationId::from_bytes([n; 16])
    }

    fn arrived(ids: &[u8]) -> Result<Arrived, TooHigh> {
        Ok(Arrived { ids: ids.iter().copied().map(id).collect(), more: false })
    }

    fn managed() -> Management {
        Management { counts: true, resume_id: Some("r".into()), ..Management::default() }
    }

    #[test]
    fn counters_wrap() {
        // XEP-0198 §4: modulo 2^32.
        let mut it = Management { sent: u32::MAX - 1, acked: u32::MAX - 1, ..managed() };
        for n in 1..=4 {
            it.push(Some(id(n)), Keep::Stored, 100, || Bytes::from_static(b"x"));
        }
        assert_eq!(it.sent, 2);
        assert_eq!(it.acknowledge(3), Err(TooHigh { sent: 2 }));
        assert_eq!(it.acknowledge(u32::MAX), arrived(&[1]));
        assert_eq!(it.acknowledge(0), arrived(&[2]));
        assert_eq!(it.acknowledge(0), arrived(&[]));
        assert_eq!(it.acknowledge(u32::MAX), Err(TooHigh { sent: 2 }), "it never goes back");
        assert_eq!(it.acknowledge(2), arrived(&[3, 4]));
        assert_eq!((it.bytes, it.held_bytes()), (0, 0));
    }

    #[test]
    fn what_was_not_kept_is_read_again_or_the_session_is_lost() {
        let mut it = managed();
        it.push(None, Keep::Needed, 10, || Bytes::from_static(b"<iq/>"));
        it.push(Some(id(1)), Keep::Stored, 10, || Bytes::from_static(b"<message/>"));
        it.push(None, Keep::Passing, 10, || Bytes::from_static(b"<message/>"));
        it.push(Some(id(2)), Keep::Stored, 10, || Bytes::from_static(b"<m/>"));
        assert!(it.can_resume());
        assert!(it.holds(id(1)) && it.holds(id(2)));
        it.push(None, Keep::Needed, 20, || Bytes::from_static(b"<iq/>"));
        // The second notification was kept, but stands behind the first.
        assert_eq!(it.take_unconfirmed(), (b"<iq/><iq/>".to_vec(), vec![id(1), id(2)]));
        // The client will count the two that it is sent again.
        assert!(!it.holds(id(1)) && !it.holds(id(2)) && it.sent == 2 && it.bytes == 10);
        assert_eq!(it.acknowledge(3), Err(TooHigh { sent: 2 }));
        assert_eq!(it.acknowledge(2), arrived(&[]));
        it.push(Some(id(3)), Keep::Stored, 0, || Bytes::from_static(b"<m/>"));
        it.confirm(id(3));
        assert_eq!(it.take_unconfirmed().1, [], "it arrived by itself");
        it.push(None, Keep::Needed, 10, || Bytes::from_static(b"<message/>"));
        it.push(None, Keep::Needed, 10, || Bytes::from_static(b"<iq/>"));
        assert!(!it.can_resume());
    }

    #[test]
    fn one_confirmation_is_asked_at_a_time() {
        let mut it = Management::default();
        assert_eq!(it.ask(), None);
        it.push(Some(id(1)), Keep::Stored, 10, || unreachable!("it cannot be resumed"));
        assert_eq!(it.ask(), Some(1));
        it.push(Some(id(2)), Keep::Stored, 10, Bytes::new);
        assert_eq!(it.ask(), None);
        assert!(it.was_asked(1) && !it.was_asked(2));
        assert_eq!(it.acknowledge(1), Ok(Arrived { ids: vec![id(1)], more: true }));
        assert_eq!(it.ask(), Some(2));
        assert_eq!(it.acknowledge(1), arrived(&[]), "it is not asked for ever");
    }

    #[test]
    fn what_went_out_before_the_count_is_confirmed_by_the_first_answer() {
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(None);
        assert_eq!((it.sent, it.len()), (0, 0));
        assert_eq!(it.acknowledge(0), arrived(&[]), "the client may not have read it yet");
        assert_eq!(it.ask(), Some(0));
        assert_eq!(it.acknowledge(0), arrived(&[1]));
        assert_eq!(it.ask(), None);
        // Or by a count of what came behind it, asked for or not.
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(Some("r".into()));
        it.push(Some(id(2)), Keep::Stored, 10, || Bytes::from_static(b"<m/>"));
        assert_eq!(it.acknowledge(1), arrived(&[1, 2]));
    }

    #[test]
    fn what_went_out_before_the_count_is_read_again_on_another_connection() {
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(Some("r".into()));
        it.push(Some(id(2)), Keep::Stored, 10, || Bytes::from_static(b"<m/>"));
        assert_eq!(it.ask(), Some(1));
        it.resume();
        assert_eq!(it.acknowledge(0), arrived(&[]), "what a client resumes from answers nothing");
        assert_eq!(it.take_unconfirmed(), (Vec::new(), vec![id(1), id(2)]), "in its order");
        assert!(!it.holds(id(1)) && !it.holds(id(2)));
        it.push(Some(id(1)), Keep::Stored, 10, || Bytes::from_static(b"<m/>"));
        assert_eq!(it.ask(), Some(1));
        assert_eq!(it.acknowledge(1), arrived(&[1]));
    }

    proptest! {
        #[test]
        fn the_queue_is_what_lies_between(steps in prop::collection::vec(any::<(bool, u8)>(), 0..200)) {
            let mut it = managed();
            for (push, n) in steps {
                if push {
                    let bytes = || vec![n; usize::from(n)].into();
                    it.push((n % 2 == 0).then(|| id(n)), Keep::Stored, 500, bytes);
                } else {
                    let before = it.len();
                    let result = it.acknowledge(it.acked.wrapping_add(u32::from(n)));
                    prop_assert_eq!(result.is_ok(), usize::from(n) <= before);
                }
                prop_assert_eq!(it.sent.wrapping_sub(it.acked) as usize, it.len());
                prop_assert!(it.bytes <= 500);
                prop_assert_eq!(it.bytes, it.queue.iter().map(|entry| entry.bytes.len()).sum::<usize>());
            }
        }
    }
}
