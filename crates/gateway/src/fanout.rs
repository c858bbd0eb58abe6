//! Messages in transit to connections: mail, the messages in flight, and the order of delivery.
//!
//! May use: [`crate::wire`], [`crate::rate`], [`crate::io`], [`crate::session`]. It sees only those parts of a
//! connection that the shard passes, and no protocols: the bytes of a message come from its [`Dispatch`], or from a
//! conversation that the shard calls and whose packets a [`batch`] writes.
//!
//! Up to 64 messages are in flight in a [`ring`]. A connection has one bit for each message that it still has to get
//! ([`marks`]), and one write carries all of them. Connections of direct messages are written to first; those of topics
//! follow in slices, and between two slices the loop looks at everything else. So a hot topic delays a direct message
//! by a slice and not by its whole audience ([`stalled`]), and a connection that gets both gets them in the order in
//! which they arrived.
//!
//! A shard owns one [`Fanout`].

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use noroshi_delivery::preferences::LiveCount;
use noroshi_store::Place;
use noroshi_types::{DeviceNum, Message, NotificationId, Outcome, Presence, Timestamp, When};
use smallvec::SmallVec;

use crate::io::socket::Socket;
use crate::session::catch_up::{CatchUp, Hold};
use crate::session::following::{Decision, Following, Source};
use crate::session::registry::{Address, Session};
use crate::wire::Framing;
use crate::wire::deflate::DeflateTotals;
use crate::wire::dispatch::Dispatch;

pub(crate) mod batch;
pub(crate) mod history;
pub(crate) mod load;
pub(crate) mod mail;
pub(crate) mod marks;
pub(crate) mod ring;
pub(crate) mod stalled;

use history::OfferHistory;
use mail::Mail;
use marks::Marks;
use ring::{Frame, Ring};
use stalled::Stalled;

pub(crate) struct Fanout {
    pub(crate) ring: Ring,
    stalled: Stalled,
    /// Slots with bits. A slot may be named twice; the second time nothing is left to do.
    urgent: VecDeque<u32>,
    topic: VecDeque<u32>,
    /// Every message up to this id, in the order of commits, was marked: none of them waits.
    offered: NotificationId,
    pub(crate) history: OfferHistory,
    /// Deliveries given up because their messages were late, since they were last counted.
    pub(crate) late_drops: u64,
    /// Messages written that daily caps count, since they were last passed on.
    pub(crate) counts: Vec<LiveCount>,
}

/// Connections that are written to in turns. In the order of [`noroshi_delivery::Fan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Direct messages.
    Urgent,
    /// Messages of topics and conditions.
    Topic,
}

/// A connection that a message is offered to.
pub(crate) struct Recipient<'a> {
    pub(crate) slot: u32,
    /// None if no session is open: its mail arrived too late.
    pub(crate) session: Option<&'a Session>,
    pub(crate) catch_up: Option<&'a mut CatchUp>,
    pub(crate) following: Option<&'a mut Following>,
    /// Its adapter decides whether it sends a message.
    pub(crate) has_adapter: bool,
    pub(crate) marks: &'a mut Marks,
    pub(crate) received: Received,
}

/// What a connection has received already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// Pages of its backlog brought everything up to here.
    pub(crate) watermark: NotificationId,
    /// What was accepted up to here was there when its log-in was read.
    pub(crate) as_of: NotificationId,
    pub(crate) generation: u64,
}

/// The destination of the marked messages of a native connection.
pub(crate) struct Output<'a> {
    pub(crate) socket: &'a mut Socket,
    pub(crate) framing: Framing,
    /// How much the kernel took already, if the message was sent together with others.
    pub(crate) written: Option<usize>,
    /// Unsent bytes above which messages are dropped that are not kept.
    pub(crate) soft_bytes: usize,
    pub(crate) now_tick: u32,
}

/// What [`Fanout::write`] did.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Taken by the kernel.
    pub(crate) bytes: usize,
    pub(crate) messages: u32,
    pub(crate) dropped: u64,
    pub(crate) deflate: DeflateTotals,
}

/// Whether the presence gate lets a message pass; the outcome if not.
pub(crate) fn gate(message: &Message, presence: Presence) -> Option<Outcome> {
    (message.when == When::Active && presence != Presence::Active).then_some(Outcome::Inactive)
}

impl Fanout {
    pub(crate) fn new(history: OfferHistory) -> Self {
        Self {
            ring: Ring::new(),
            stalled: Stalled::default(),
            urgent: VecDeque::new(),
            topic: VecDeque::new(),
            offered: NotificationId::from_bytes([0; 16]),
            history,
            late_drops: 0,
            counts: Vec::new(),
        }
    }

    /// Whether a connection waits to be written to.
    pub(crate) fn has_work(&self) -> bool {
        !self.urgent.is_empty() || !self.topic.is_empty()
    }

    /// Every message up to this id, in the order of commits, was offered to its recipients.
    pub(crate) fn offered(&self) -> NotificationId {
        self.offered
    }

    // -- mail --------------------------------------------------------------------------------------

    /// Whether mail waits here for a place.
    pub(crate) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Whether mail that waits here has a place now.
    pub(crate) fn can_resume_stalled(&self) -> bool {
        self.ring.has_room_for_topics() && !self.stalled.is_empty()
    }

    /// Whether [`Fanout::admit`] may be called.
    pub(crate) fn can_admit(&self) -> bool {
        self.ring.has_room() && !self.stalled.is_full()
    }

    /// The first mail that waits here, if it has a place now.
    pub(crate) fn resume_stalled(&mut self) -> Option<Mail> {
        match self.ring.has_room_for_topics() {
            true => self.stalled.pop(),
            false => None,
        }
    }

    /// Takes the next mail of the mailbox. Returns what of it can be marked now, and whether that passes other mail.
    pub(crate) fn admit(
        &mut self,
        mail: Mail,
        waits: impl Fn(&Stalled, Address) -> bool,
    ) -> Option<(Mail, bool)> {
        if self.ring.has_room_for_topics() && self.stalled.is_empty() {
            return Some((mail, false));
        }
        self.stalled.pass(mail, waits).map(|mail| (mail, true))
    }

    /// A message is about to be marked in the order of the mailbox.
    pub(crate) fn note_offered(&mut self, dispatch: &Dispatch) {
        if dispatch.is_ordered() {
            self.offered = self.offered.max(dispatch.message.id);
        }
    }

    /// Whether a connection needs a message of a page: it was not offered before, or must be written with the page.
    /// Records that the message is written.
    pub(crate) fn admit_paged(&mut self, message: &Message, catch_up: &CatchUp, generation: u64) -> bool {
        let id = message.id;
        let was_offered = match message.topic {
            Some(_) => catch_up.was_live && self.history.has_topic(id),
            None => self.history.has(id, generation),
        };
        let is_needed = !was_offered || catch_up.is_reread() || catch_up.holds(id);
        if is_needed && message.topic.is_some() {
            self.history.note_page(message, generation);
        }
        is_needed
    }

    // -- marking -----------------------------------------------------------------------------------

    /// Marks a message at a connection, unless it is not for it now. `topic`: where the message is in the topic index.
    pub(crate) fn mark(
        &mut self,
        place: usize,
        mut to: Recipient<'_>,
        topic: Option<u32>,
        queue: Queue,
        now: Timestamp,
    ) {
        let Some(frame) = self.ring.frame_mut(place) else { return };
        let Some(session) = to.session else { return frame.add_gone() };
        let dispatch = frame.dispatch();
        if gate(&dispatch.message, session.presence()).is_some() {
            return frame.add_inactive(session.num);
        }
        if self.history.is_known(dispatch, to.received) {
            return;
        }
        if frame.is_late() {
            self.late_drops += 1;
            return frame.add_slow(session.num);
        }
        let decision = match &mut to.following {
            Some(following) => following.decide(&dispatch.message, session.presence(), now),
            None => Decision::Passes,
        };
        if session.holds_back(&dispatch.message, decision == Decision::Waits) {
            return; // it stays in the inbox
        }
        match to.catch_up.map_or(Hold::Not, |catch_up| catch_up.hold(dispatch, topic)) {
            Hold::Held => return self.history.note(dispatch, to.received.generation, topic),
            Hold::Missed if dispatch.is_stored() => return,
            Hold::Missed => return frame.add_slow(session.num),
            Hold::Not => self.history.note(dispatch, to.received.generation, topic),
        }
        // What is held is decided when it is released: a page may bring it before.
        if let Some(following) = to.following {
            if let Decision::Suppressed(outcome) = decision {
                if following.report(&dispatch.message, outcome, Source::Live) {
                    frame.add_suppressed(outcome, session.num);
                }
                return;
            }
            if !to.has_adapter {
                self.counts.extend(following.count(&dispatch.message, session, now));
            }
        }
        frame.begin_wait();
        match queue {
            Queue::Urgent if !to.marks.is_urgent => {
                to.marks.is_urgent = true;
                self.urgent.push_back(to.slot);
            }
            Queue::Topic if to.marks.is_empty() => self.topic.push_back(to.slot),
            Queue::Urgent | Queue::Topic => {}
        }
        to.marks.set(place);
    }

    /// The next slot of a queue that `has_marks`: many have been written to on another occasion.
    pub(crate) fn next(&mut self, queue: Queue, has_marks: impl Fn(u32) -> bool) -> Option<u32> {
        let queue = match queue {
            Queue::Urgent => &mut self.urgent,
            Queue::Topic => &mut self.topic,
        };
        loop {
            let slot = queue.pop_front()?;
            if has_marks(slot) {
                return Some(slot);
            }
        }
    }

    // -- writing -----------------------------------------------------------------------------------

    /// Takes a connection's bits off it. None if there are none. With no `device` to write to, the messages are lost to
    /// it.
    pub(crate) fn take_marks(
        &mut self,
        marks: &mut Marks,
        device: Option<DeviceNum>,
        is_alive: bool,
    ) -> Option<(DeviceNum, u64)> {
        let bits = marks.take();
        if bits == 0 {
            return None;
        }
        match device.filter(|_| is_alive) {
            Some(device) => Some((device, bits)),
            None => {
                self.ring.forget(bits, device);
                None
            }
        }
    }

    /// A session ends: what is marked at its connection is lost to it.
    pub(crate) fn forget(&mut self, marks: &mut Marks, device: DeviceNum) {
        self.ring.forget(marks.take(), Some(device));
    }

    /// A place in the order of commits, or the one before the first ordered message that is marked at a connection.
    pub(crate) fn before_marked(&self, marks: Marks, to: Place) -> Place {
        let places = self.ring.in_order(marks.bits());
        let marked = places.iter().filter_map(|place| self.ring.frame(*place)).map(Frame::dispatch);
        let ordered = marked.filter(|dispatch| dispatch.is_ordered());
        ordered.map(|dispatch| Place(Place::of(dispatch.message.id).0 - 1)).fold(to, Place::min)
    }

    /// Writes the messages of `bits`, which are off the connection's marks, with one write. `sent` is called for each
    /// that was written. Fails if the socket is broken.
    pub(crate) fn write(
        &mut self,
        device: DeviceNum,
        bits: u64,
        out: Output<'_>,
        mut sent: impl FnMut(&Dispatch),
    ) -> io::Result<Written> {
        let Output { socket, framing, written, soft_bytes, now_tick } = out;
        let places = self.ring.in_order(bits);
        let mut taken = 0;
        if !socket.has_unsent() {
            let write = || {
                let frames = places.iter().filter_map(|place| self.ring.frame(*place));
                let mut slices: SmallVec<[IoSlice<'_>; 8]> =
                    frames.map(|frame| IoSlice::new(frame.dispatch().encoded(framing))).collect();
                socket.write(&mut slices)
            };
            taken = match written.map_or_else(write, Ok) {
                Ok(count) => count,
                Err(error) => {
                    self.ring.forget(bits, Some(device));
                    return Err(error);
                }
            };
        }
        let mut result = Written { bytes: taken, ..Written::default() };
        for place in places {
            let Some(frame) = self.ring.frame_mut(place) else { continue };
            frame.end_wait();
            let bytes = frame.dispatch().encoded(framing);
            let (len, is_stored) = (bytes.len(), frame.dispatch().is_stored());
            if let Framing::Deflated(_) = framing {
                result.deflate.add(frame.dispatch().encoded(Framing::WebSocket).len(), len);
            }
            if taken >= len {
                taken -= len;
            } else if taken == 0 && !is_stored && socket.unsent_bytes() > soft_bytes {
                result.dropped += 1;
                frame.add_slow(device);
                continue;
            } else {
                socket.keep(bytes.clone(), std::mem::take(&mut taken), now_tick);
            }
            sent(frame.dispatch());
            result.messages += 1;
            frame.add_written(device);
        }
        Ok(result)
    }

    // -- after a panic -----------------------------------------------------------------------------

    /// Resets everything. Returns the deliveries that are lost; changes of subscriptions still wait.
    pub(crate) fn rebuild(&mut self, history: OfferHistory) -> Vec<Mail> {
        let stalled = std::mem::replace(self, Self::new(history)).stalled.into_mail();
        let (deliveries, changes): (Vec<_>, Vec<_>) = stalled.partition(|mail| mail.dispatch().is_some());
        changes.into_iter().for_each(|mail| self.stalled.keep(mail));
        deliveries
    }
}
