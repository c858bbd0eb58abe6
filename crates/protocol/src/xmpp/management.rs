//! What was sent and is not confirmed. With stream management (XEP-0198) every stanza is counted and confirmed
//! by the client's counter. Without it the notifications that want a confirmation are: a ping is put behind
//! them (XEP-0199), and its answer says that the client has read up to there, since a stream is in order.
//!
//! Every stanza is asked about once: `asked_for` is what `sent` was then. A client that answers each request confirms
//! everything, whatever else it sends of itself.
//!
//! Invariants: the queue stands for what lies between `acked` and `sent`, so `sent - acked` is the sum of its counts,
//! modulo 2^32. Stanzas of which nothing is kept share an entry, so the queue's length is bounded by the notifications
//! that await a confirmation and by the bytes that are kept; the caller bounds both.

use std::collections::VecDeque;

use bytes::Bytes;
use noroshi_types::{DeviceId, NotificationId};

use super::config::Framing;
use super::presence::Show;

/// Stanzas after which the client is asked to confirm them; fewer wait for the time ([`Conversation::wants_checkpoint`]).
///
/// [`Conversation::wants_checkpoint`]: super::Conversation::wants_checkpoint
const ASK_AFTER: u32 = 32;
/// Part of the bytes that may be kept, after which the client is asked too: so they are confirmed before room runs out.
const ASK_AFTER_PART: usize = 4;

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
    /// How many stanzas it stands for: more than one only where it has neither id nor bytes.
    count: u32,
}

impl Entry {
    fn is_plain(&self) -> bool {
        self.id.is_none() && self.bytes.is_empty()
    }
}

/// What a confirmation was for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    /// The notifications among it.
    pub(super) ids: Vec<NotificationId>,
    /// More was sent since it was asked for: it is to be asked again.
    pub(super) more: bool,
    /// Stanzas that it confirms, notifications or not.
    pub(super) count: usize,
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
    /// What it was when one was last asked for, answered or not.
    asked_for: u32,
    /// When the client was first seen to be over the limit without confirming anything since, in the caller's milliseconds.
    over_since_ms: Option<u32>,
    queue: VecDeque<Entry>,
    /// Notifications that went out before the client began to count.
    earlier: Vec<NotificationId>,
    /// In the queue, for sending again.
    bytes: usize,
    /// Those of them that were not asked about yet.
    unasked_bytes: usize,
    /// What `sent` was when the last stanza went out that is nowhere else and could not be kept: until it is confirmed
    /// the session cannot be resumed.
    lost: Option<u32>,
}

impl Management {
    /// Stanzas that were sent and are not confirmed.
    pub(super) fn unconfirmed(&self) -> usize {
        self.sent.wrapping_sub(self.acked) as usize
    }

    pub(super) fn can_resume(&self) -> bool {
        self.resume_id.is_some() && self.lost.is_none()
    }

    /// Stanzas that the client was not asked about.
    fn unasked(&self) -> u32 {
        self.sent.wrapping_sub(self.acked).min(self.sent.wrapping_sub(self.asked_for))
    }

    /// Whether enough was sent that the client is to be asked at once.
    pub(super) fn is_due(&self, bytes_max: usize) -> bool {
        let many = self.unasked() >= ASK_AFTER || self.unasked_bytes >= bytes_max / ASK_AFTER_PART;
        self.counts && self.asked.is_none() && many
    }

    /// Whether the client is to be asked before long, and no request is under way that leads to it.
    pub(super) fn is_due_later(&self) -> bool {
        self.counts && self.asked.is_none() && (self.unasked() > 0 || !self.earlier.is_empty())
    }

    /// Whether the client stayed over a limit for `patience_ms` without confirming anything.
    pub(super) fn is_exhausted(&mut self, unconfirmed_max: usize, now_ms: u32, patience_ms: u32) -> bool {
        if self.unconfirmed() <= unconfirmed_max {
            return false;
        }
        let since = *self.over_since_ms.get_or_insert(now_ms);
        now_ms.wrapping_sub(since) >= patience_ms
    }

    pub(super) fn push(
        &mut self,
        id: Option<NotificationId>,
        keep: Keep,
        bytes_max: usize,
        bytes: impl FnOnce() -> Bytes,
    ) {
        let mut kept = Bytes::new();
        self.sent = self.sent.wrapping_add(1);
        if self.can_resume() {
            kept = bytes();
            if self.bytes + kept.len() > bytes_max {
                kept = Bytes::new();
            }
        }
        if kept.is_empty() && keep == Keep::Needed && self.resume_id.is_some() {
            self.lost = Some(self.sent);
        }
        self.bytes += kept.len();
        self.unasked_bytes += kept.len();
        let entry = Entry { id, bytes: kept, count: 1 };
        match self.queue.back_mut().filter(|last| last.is_plain() && entry.is_plain()) {
            Some(last) => last.count += 1,
            None => self.queue.push_back(entry),
        }
    }

    /// Everything up to `count` arrived.
    pub(super) fn acknowledge(&mut self, count: u32) -> Result<Arrived, TooHigh> {
        let news = count.wrapping_sub(self.acked);
        if news as usize > self.unconfirmed() {
            return Err(TooHigh { sent: self.sent });
        }
        self.acked = count;
        let mut ids = Vec::new();
        let asked = self.asked.take();
        // A stream is in order: who counted a stanza, or all that were sent when it was asked, has what went out before the
        // count. Less may be a word of its own from before it read that, since a client need not be asked (XEP-0198 §4).
        if news > 0 || asked == Some(count) {
            ids.append(&mut self.earlier);
        }
        let mut left = news;
        while let Some(entry) = self.queue.front_mut().filter(|_| left > 0) {
            let taken = entry.count.min(left);
            (entry.count, left) = (entry.count - taken, left - taken);
            if entry.count == 0 {
                self.bytes -= entry.bytes.len();
                ids.extend(entry.id);
                self.queue.pop_front();
            }
        }
        self.unasked_bytes = self.unasked_bytes.min(self.bytes);
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        if news > 0 {
            self.over_since_ms = None;
        }
        // Everything up to it is confirmed.
        self.lost = self.lost.filter(|lost| self.sent.wrapping_sub(*lost) < self.sent.wrapping_sub(count));
        // Not where it only answered with less than it was asked for: that would go on for ever.
        let more = asked.is_some_and(|asked| asked != self.sent) && !self.queue.is_empty();
        Ok(Arrived { ids, more, count: news as usize })
    }

    /// From here on the client counts. What was sent before is confirmed by its first answer.
    pub(super) fn enable(&mut self, resume_id: Option<Box<str>>) {
        let earlier = self.queue.drain(..).filter_map(|entry| entry.id).collect();
        *self = Self { counts: true, resume_id, earlier, ..Self::default() };
    }

    /// On another connection: an answer that was asked for on the one before never comes.
    pub(super) fn resume(&mut self) {
        (self.asked, self.asked_for, self.over_since_ms) = (None, self.acked, None);
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
        Some(self.ask_again())
    }

    /// Asks whatever is asked already: to hear whether the client is there.
    pub(super) fn ask_again(&mut self) -> u32 {
        (self.asked, self.asked_for, self.unasked_bytes) = (Some(self.sent), self.sent, 0);
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
        (self.asked_for, self.unasked_bytes) = (self.acked, self.bytes);
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
        confirmed(ids, ids.len())
    }

    fn confirmed(ids: &[u8], count: usize) -> Result<Arrived, TooHigh> {
        Ok(Arrived { ids: ids.iter().copied().map(id).collect(), more: false, count })
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
        assert_eq!(it.acknowledge(1), confirmed(&[], 1));
        assert_eq!(it.acknowledge(2), confirmed(&[], 1));
        it.push(Some(id(3)), Keep::Stored, 0, || Bytes::from_static(b"<m/>"));
        it.confirm(id(3));
        assert_eq!(it.take_unconfirmed().1, [], "it arrived by itself");
        it.push(None, Keep::Needed, 10, || Bytes::from_static(b"<message/>"));
        it.push(None, Keep::Needed, 10, || Bytes::from_static(b"<iq/>"));
        assert!(!it.can_resume());
        // Once that is confirmed nothing is missing any more.
        assert_eq!(it.acknowledge(3), confirmed(&[], 1));
        assert!(!it.can_resume());
        assert_eq!(it.acknowledge(4), confirmed(&[], 1));
        assert!(it.can_resume());
    }

    #[test]
    fn stanzas_of_which_nothing_is_kept_take_no_room() {
        let mut it = Management { counts: true, ..Management::default() };
        let push =
            |it: &mut Management, id| it.push(id, Keep::Needed, 100, || unreachable!("it cannot be resumed"));
        (0..100_000).for_each(|_| push(&mut it, None));
        push(&mut it, Some(id(1)));
        (0..100_000).for_each(|_| push(&mut it, None));
        assert_eq!((it.unconfirmed(), it.queue.len()), (200_001, 3));
        assert_eq!(it.acknowledge(99_999), confirmed(&[], 99_999));
        assert_eq!(it.acknowledge(100_001), confirmed(&[1], 2));
        assert_eq!(it.acknowledge(200_002), Err(TooHigh { sent: 200_001 }));
        assert_eq!(it.acknowledge(200_001), confirmed(&[], 100_000));
    }

    #[test]
    fn each_stanza_is_asked_about_once() {
        let mut it = managed();
        let push = |it: &mut Management| it.push(None, Keep::Needed, 4_000, || Bytes::from_static(b"<iq/>"));
        push(&mut it);
        assert!(it.is_due_later() && !it.is_due(4_000));
        (1..ASK_AFTER).for_each(|_| push(&mut it));
        assert!(it.is_due(4_000));
        assert_eq!(it.ask(), Some(ASK_AFTER));
        assert!(!it.is_due_later());
        // It says what it has of itself, before it hears the request.
        assert!(it.acknowledge(3).is_ok());
        assert!(!it.is_due_later(), "the answer is on its way");
        push(&mut it);
        assert!(it.is_due_later() && !it.is_due(4_000));
        assert_eq!(it.ask(), Some(ASK_AFTER + 1));
        it.push(None, Keep::Needed, 4_000, || vec![0; 1_000].into());
        assert!(it.acknowledge(ASK_AFTER + 1).unwrap().more, "at once, since one was under way");
        assert!(it.is_due(4_000), "a quarter of the room");
    }

    #[test]
    fn a_client_over_the_limit_has_time_to_confirm_something() {
        let mut it = managed();
        (0..3).for_each(|_| it.push(None, Keep::Passing, 0, Bytes::new));
        assert!(!it.is_exhausted(3, 0, 20) && !it.is_exhausted(3, 100, 20));
        it.push(None, Keep::Passing, 0, Bytes::new);
        assert!(!it.is_exhausted(3, 100, 20) && !it.is_exhausted(3, 119, 20));
        assert!(it.acknowledge(1).is_ok());
        it.push(None, Keep::Passing, 0, Bytes::new);
        assert!(!it.is_exhausted(3, 120, 20), "it confirmed something");
        assert!(it.is_exhausted(3, 140, 20));
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
        assert_eq!(it.acknowledge(1), Ok(Arrived { ids: vec![id(1)], more: true, count: 1 }));
        assert_eq!(it.ask(), Some(2));
        assert_eq!(it.acknowledge(1), arrived(&[]), "it is not asked for ever");
    }

    #[test]
    fn what_went_out_before_the_count_is_confirmed_by_the_first_answer() {
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(None);
        assert_eq!((it.sent, it.unconfirmed()), (0, 0));
        assert_eq!(it.acknowledge(0), arrived(&[]), "the client may not have read it yet");
        assert_eq!(it.ask(), Some(0));
        assert_eq!(it.acknowledge(0), confirmed(&[1], 0));
        assert_eq!(it.ask(), None);
        // An answer for less says nothing of it.
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(None);
        it.push(Some(id(2)), Keep::Stored, 10, Bytes::new);
        assert_eq!(it.ask(), Some(1));
        assert_eq!(it.acknowledge(0), Ok(Arrived { ids: Vec::new(), more: false, count: 0 }));
        // Or by a count of what came behind it, asked for or not.
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(Some("r".into()));
        it.push(Some(id(2)), Keep::Stored, 10, || Bytes::from_static(b"<m/>"));
        assert_eq!(it.acknowledge(1), confirmed(&[1, 2], 1));
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
                    let before = it.unconfirmed();
                    let result = it.acknowledge(it.acked.wrapping_add(u32::from(n)));
                    prop_assert_eq!(result.is_ok(), usize::from(n) <= before);
                }
                let counts = it.queue.iter().map(|entry| entry.count as usize).sum::<usize>();
                prop_assert_eq!(it.unconfirmed(), counts);
                prop_assert!(it.bytes <= 500);
                prop_assert_eq!(it.bytes, it.queue.iter().map(|entry| entry.bytes.len()).sum::<usize>());
            }
        }
    }
}
