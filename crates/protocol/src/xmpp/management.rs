//! Unacknowledged stanzas. With stream management (XEP-0198) every stanza is counted, and acknowledged by the
//! client's counter. Without it, only notifications that need acknowledgement are tracked: a ping follows them
//! (XEP-0199), and its answer acknowledges everything before it, since a stream is ordered.
//!
//! Every stanza is covered by exactly one request: `asked_for` is the value of `sent` at the last request. A
//! client that answers each request acknowledges everything, whatever else it sends unasked.
//!
//! Invariants: the queue represents the stanzas between `acked` and `sent`, so `sent - acked` is the sum of
//! its counts, modulo 2^32. Stanzas without stored data share an entry, so the queue's length is bounded by
//! the notifications that await acknowledgement and by the stored bytes; the caller bounds both.

use std::collections::VecDeque;

use bytes::Bytes;
use noroshi_types::{DeviceId, NotificationId};

use super::config::Framing;
use super::presence::Show;

/// Number of stanzas after which an acknowledgement is requested; fewer are covered by a timer
/// ([`Conversation::wants_checkpoint`]).
///
/// [`Conversation::wants_checkpoint`]: super::Conversation::wants_checkpoint
const ASK_AFTER: u32 = 32;
/// Fraction of the byte limit after which an acknowledgement is requested too, so that it arrives before the
/// limit is reached.
const ASK_AFTER_PART: usize = 4;

/// What happens to a stanza that exceeds the byte limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// It will be read from the inbox again.
    Stored,
    /// It is dropped, since it is useless later.
    Passing,
    /// The session becomes non-resumable.
    Needed,
}

#[derive(Debug)]
struct Entry {
    /// Set for a notification that needs acknowledgement.
    id: Option<NotificationId>,
    /// Kept for resending; empty if it exceeded the limit.
    bytes: Bytes,
    /// The number of stanzas in this entry: more than one only without id and bytes.
    count: u32,
}

impl Entry {
    fn is_plain(&self) -> bool {
        self.id.is_none() && self.bytes.is_empty()
    }
}

/// What an acknowledgement covers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    /// The notifications that it acknowledges.
    pub(super) ids: Vec<NotificationId>,
    /// More stanzas were sent since the request: another one is needed.
    pub(super) more: bool,
    /// The number of acknowledged stanzas, including notifications.
    pub(super) count: usize,
}

/// The client acknowledged stanzas that were never sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooHigh {
    pub(super) sent: u32,
}

#[derive(Debug, Default)]
pub(super) struct Management {
    /// Stream management is enabled.
    pub(super) counts: bool,
    /// The id for resuming the session.
    pub(super) resume_id: Option<Box<str>>,
    /// The number of the client's stanzas since stream management was enabled.
    pub(super) handled: u32,
    pub(super) sent: u32,
    acked: u32,
    /// The value of `sent` at a pending acknowledgement request.
    asked: Option<u32>,
    /// The value of `sent` at the last acknowledgement request.
    asked_for: u32,
    /// When the client exceeded the limit without acknowledging anything since, in the caller's milliseconds.
    over_since_ms: Option<u32>,
    queue: VecDeque<Entry>,
    /// Notifications sent before the client started counting.
    earlier: Vec<NotificationId>,
    /// Bytes in the queue, kept for resending.
    bytes: usize,
    /// The part of `bytes` not covered by a request yet.
    unasked_bytes: usize,
    /// The value of `sent` after the last stanza that exists nowhere else and could not be kept: until it is
    /// acknowledged, the session is not resumable.
    lost: Option<u32>,
}

impl Management {
    /// The number of unacknowledged stanzas.
    pub(super) fn unacknowledged(&self) -> usize {
        self.sent.wrapping_sub(self.acked) as usize
    }

    pub(super) fn can_resume(&self) -> bool {
        self.resume_id.is_some() && self.lost.is_none()
    }

    /// The number of stanzas not covered by a request.
    fn unasked(&self) -> u32 {
        self.sent.wrapping_sub(self.acked).min(self.sent.wrapping_sub(self.asked_for))
    }

    /// Whether enough was sent to request an acknowledgement immediately.
    pub(super) fn is_due(&self, bytes_max: usize) -> bool {
        let many = self.unasked() >= ASK_AFTER || self.unasked_bytes >= bytes_max / ASK_AFTER_PART;
        self.counts && self.asked.is_none() && many
    }

    /// Whether an acknowledgement should be requested soon and no pending request covers it.
    pub(super) fn is_due_later(&self) -> bool {
        self.counts && self.asked.is_none() && (self.unasked() > 0 || !self.earlier.is_empty())
    }

    /// Whether the client exceeded a limit for `patience_ms` without acknowledging anything.
    pub(super) fn is_exhausted(&mut self, unacknowledged_max: usize, now_ms: u32, patience_ms: u32) -> bool {
        if self.unacknowledged() <= unacknowledged_max {
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

    /// Handles an acknowledgement of everything up to `count`.
    pub(super) fn acknowledge(&mut self, count: u32) -> Result<Arrived, TooHigh> {
        let news = count.wrapping_sub(self.acked);
        if news as usize > self.unacknowledged() {
            return Err(TooHigh { sent: self.sent });
        }
        self.acked = count;
        let mut ids = Vec::new();
        let asked = self.asked.take();
        // A stream is ordered: a client that counted a new stanza, or all stanzas of a request, has received
        // everything sent before counting started. A lower count may be an unsolicited one from before the
        // client read them (XEP-0198 §4).
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
        // An acknowledgement of the lost stanza clears `lost`.
        self.lost = self.lost.filter(|lost| self.sent.wrapping_sub(*lost) < self.sent.wrapping_sub(count));
        // Not if the answer covers less than its request: repeating would never end.
        let more = asked.is_some_and(|asked| asked != self.sent) && !self.queue.is_empty();
        Ok(Arrived { ids, more, count: news as usize })
    }

    /// Starts the client's counting. Its first answer acknowledges everything sent before.
    pub(super) fn enable(&mut self, resume_id: Option<Box<str>>) {
        let earlier = self.queue.drain(..).filter_map(|entry| entry.id).collect();
        *self = Self { counts: true, resume_id, earlier, ..Self::default() };
    }

    /// The previous connection's pending request will never be answered on this one.
    pub(super) fn resume(&mut self) {
        (self.asked, self.asked_for, self.over_since_ms) = (None, self.acked, None);
    }

    /// Whether it can be dropped without loss.
    pub(super) fn is_spent(&self) -> bool {
        !self.counts && self.queue.is_empty() && self.asked.is_none()
    }

    /// The notification was acknowledged individually (XEP-0184), and must not be reported again.
    pub(super) fn acknowledge_one(&mut self, id: NotificationId) {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.id == Some(id)) {
            entry.id = None;
        }
    }

    /// Returns the count of a new acknowledgement request, if one is needed now.
    pub(super) fn ask(&mut self) -> Option<u32> {
        if self.asked.is_some() || (self.queue.is_empty() && self.earlier.is_empty()) {
            return None;
        }
        Some(self.ask_anyway())
    }

    /// Requests an acknowledgement regardless of previous requests: to check that the client is alive.
    pub(super) fn ask_anyway(&mut self) -> u32 {
        (self.asked, self.asked_for, self.unasked_bytes) = (Some(self.sent), self.sent, 0);
        self.sent
    }

    /// Whether an answer for `count` is pending.
    pub(super) fn was_asked(&self, count: u32) -> bool {
        self.asked == Some(count)
    }

    /// Returns the stanzas to resend, in order, and the notifications to read again: those not kept, and all
    /// after the first of them, since a device has one position per topic. Notifications read again are not
    /// part of the client's count.
    pub(super) fn take_unacknowledged(&mut self) -> (Vec<u8>, Vec<NotificationId>) {
        // Nothing on this connection can acknowledge these of the previous one.
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
        // Bounded by the number of sent stanzas: see the invariant.
        let left = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        self.sent = self.acked.wrapping_add(left);
        (self.asked_for, self.unasked_bytes) = (self.acked, self.bytes);
        (again, lost)
    }

    /// Whether the notification was sent and is not acknowledged.
    pub(super) fn holds(&self, id: NotificationId) -> bool {
        self.queue.iter().any(|entry| entry.id == Some(id)) || self.earlier.contains(&id)
    }

    pub(super) fn held_bytes(&self) -> usize {
        let earlier = self.earlier.capacity() * size_of::<NotificationId>();
        self.queue.capacity() * size_of::<Entry>() + self.bytes + earlier
    }
}

/// The state of a broken connection's session while it may be resumed. Bounded by `Config::unacked_max` and
/// `Config::unacked_bytes_max`.
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

    /// The framing of the stored stanzas.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The id that `Action::Resume` contains.
    pub fn id(&self) -> &str {
        self.management.resume_id.as_deref().unwrap_or_default()
    }

    /// The number of the client's stanzas that were handled, for a later `Resumed::Gone`.
    pub fn handled(&self) -> u32 {
        self.management.handled
    }

    /// Approximate heap bytes.
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
        acknowledged(ids, ids.len())
    }

    fn acknowledged(ids: &[u8], count: usize) -> Result<Arrived, TooHigh> {
        Ok(Arrived { ids: ids.iter().copied().map(id).collect(), more: false, count })
    }

    fn managed() -> Management {
        Management { counts: true, resume_id: Some("r".into()), ..Management::default() }
    }

    #[test]
    fn counters_wrap_around() {
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
    fn uncached_stanzas_are_read_again_or_end_resumability() {
        let mut it = managed();
        it.push(None, Keep::Needed, 10, || Bytes::from_static(b"<iq/>"));
        it.push(Some(id(1)), Keep::Stored, 10, || Bytes::from_static(b"<message/>"));
        it.push(None, Keep::Passing, 10, || Bytes::from_static(b"<message/>"));
        it.push(Some(id(2)), Keep::Stored, 10, || Bytes::from_static(b"<m/>"));
        assert!(it.can_resume());
        assert!(it.holds(id(1)) && it.holds(id(2)));
        it.push(None, Keep::Needed, 20, || Bytes::from_static(b"<iq/>"));
        // The second notification was kept, but follows the first.
        assert_eq!(it.take_unacknowledged(), (b"<iq/><iq/>".to_vec(), vec![id(1), id(2)]));
        // The client will count the two resent stanzas.
        assert!(!it.holds(id(1)) && !it.holds(id(2)) && it.sent == 2 && it.bytes == 10);
        assert_eq!(it.acknowledge(3), Err(TooHigh { sent: 2 }));
        assert_eq!(it.acknowledge(1), acknowledged(&[], 1));
        assert_eq!(it.acknowledge(2), acknowledged(&[], 1));
        it.push(Some(id(3)), Keep::Stored, 0, || Bytes::from_static(b"<m/>"));
        it.acknowledge_one(id(3));
        assert_eq!(it.take_unacknowledged().1, [], "it arrived by itself");
        it.push(None, Keep::Needed, 10, || Bytes::from_static(b"<message/>"));
        it.push(None, Keep::Needed, 10, || Bytes::from_static(b"<iq/>"));
        assert!(!it.can_resume());
        // After the acknowledgement nothing is missing.
        assert_eq!(it.acknowledge(3), acknowledged(&[], 1));
        assert!(!it.can_resume());
        assert_eq!(it.acknowledge(4), acknowledged(&[], 1));
        assert!(it.can_resume());
    }

    #[test]
    fn stanzas_without_data_share_an_entry() {
        let mut it = Management { counts: true, ..Management::default() };
        let push =
            |it: &mut Management, id| it.push(id, Keep::Needed, 100, || unreachable!("it cannot be resumed"));
        (0..100_000).for_each(|_| push(&mut it, None));
        push(&mut it, Some(id(1)));
        (0..100_000).for_each(|_| push(&mut it, None));
        assert_eq!((it.unacknowledged(), it.queue.len()), (200_001, 3));
        assert_eq!(it.acknowledge(99_999), acknowledged(&[], 99_999));
        assert_eq!(it.acknowledge(100_001), acknowledged(&[1], 2));
        assert_eq!(it.acknowledge(200_002), Err(TooHigh { sent: 200_001 }));
        assert_eq!(it.acknowledge(200_001), acknowledged(&[], 100_000));
    }

    #[test]
    fn every_stanza_is_covered_by_one_request() {
        let mut it = managed();
        let push = |it: &mut Management| it.push(None, Keep::Needed, 4_000, || Bytes::from_static(b"<iq/>"));
        push(&mut it);
        assert!(it.is_due_later() && !it.is_due(4_000));
        (1..ASK_AFTER).for_each(|_| push(&mut it));
        assert!(it.is_due(4_000));
        assert_eq!(it.ask(), Some(ASK_AFTER));
        assert!(!it.is_due_later());
        // An unsolicited acknowledgement, before the client reads the request.
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
    fn client_over_the_limit_has_time_to_acknowledge() {
        let mut it = managed();
        (0..3).for_each(|_| it.push(None, Keep::Passing, 0, Bytes::new));
        assert!(!it.is_exhausted(3, 0, 20) && !it.is_exhausted(3, 100, 20));
        it.push(None, Keep::Passing, 0, Bytes::new);
        assert!(!it.is_exhausted(3, 100, 20) && !it.is_exhausted(3, 119, 20));
        assert!(it.acknowledge(1).is_ok());
        it.push(None, Keep::Passing, 0, Bytes::new);
        assert!(!it.is_exhausted(3, 120, 20), "it acknowledged something");
        assert!(it.is_exhausted(3, 140, 20));
    }

    #[test]
    fn only_one_request_is_pending() {
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
    fn first_answer_acknowledges_everything_before_counting() {
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(None);
        assert_eq!((it.sent, it.unacknowledged()), (0, 0));
        assert_eq!(it.acknowledge(0), arrived(&[]), "the client may not have read it yet");
        assert_eq!(it.ask(), Some(0));
        assert_eq!(it.acknowledge(0), acknowledged(&[1], 0));
        assert_eq!(it.ask(), None);
        // A lower answer does not acknowledge it.
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(None);
        it.push(Some(id(2)), Keep::Stored, 10, Bytes::new);
        assert_eq!(it.ask(), Some(1));
        assert_eq!(it.acknowledge(0), Ok(Arrived { ids: Vec::new(), more: false, count: 0 }));
        // A count that includes later stanzas acknowledges it, requested or not.
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(Some("r".into()));
        it.push(Some(id(2)), Keep::Stored, 10, || Bytes::from_static(b"<m/>"));
        assert_eq!(it.acknowledge(1), acknowledged(&[1, 2], 1));
    }

    #[test]
    fn notifications_before_counting_are_read_again_after_resumption() {
        let mut it = Management::default();
        it.push(Some(id(1)), Keep::Stored, 10, Bytes::new);
        it.enable(Some("r".into()));
        it.push(Some(id(2)), Keep::Stored, 10, || Bytes::from_static(b"<m/>"));
        assert_eq!(it.ask(), Some(1));
        it.resume();
        assert_eq!(it.acknowledge(0), arrived(&[]), "what a client resumes from answers nothing");
        assert_eq!(it.take_unacknowledged(), (Vec::new(), vec![id(1), id(2)]), "in its order");
        assert!(!it.holds(id(1)) && !it.holds(id(2)));
        it.push(Some(id(1)), Keep::Stored, 10, || Bytes::from_static(b"<m/>"));
        assert_eq!(it.ask(), Some(1));
        assert_eq!(it.acknowledge(1), arrived(&[1]));
    }

    proptest! {
        #[test]
        fn queue_represents_the_stanzas_between_the_counters(steps in prop::collection::vec(any::<(bool, u8)>(), 0..200)) {
            let mut it = managed();
            for (push, n) in steps {
                if push {
                    let bytes = || vec![n; usize::from(n)].into();
                    it.push((n % 2 == 0).then(|| id(n)), Keep::Stored, 500, bytes);
                } else {
                    let before = it.unacknowledged();
                    let result = it.acknowledge(it.acked.wrapping_add(u32::from(n)));
                    prop_assert_eq!(result.is_ok(), usize::from(n) <= before);
                }
                let counts = it.queue.iter().map(|entry| entry.count as usize).sum::<usize>();
                prop_assert_eq!(it.unacknowledged(), counts);
                prop_assert!(it.bytes <= 500);
                prop_assert_eq!(it.bytes, it.queue.iter().map(|entry| entry.bytes.len()).sum::<usize>());
            }
        }
    }
}
