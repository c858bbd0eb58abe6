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
use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use noroshi_types::{AppId, CloseReason, DeviceNum, Message, NotificationId, Outcome, Presence, Topic, When};
use smallvec::SmallVec;

use crate::fanout::dispatch::{Audience, Dispatch};
use crate::fanout::mailbox::Mail;
use crate::fanout::overtake::Stalled;
use crate::fanout::recent::Recent;
use crate::fanout::ring::{Frame, Ring};
use crate::io::tail::Tail;
use crate::session::catch_up::Hold;
use crate::session::registry::Address;
use crate::session::registry::Key;
use crate::session::topic_index::{Entry, Pass};
use crate::shard::Shard;
use crate::shard::connection::{Framing, Phase, Subscription};

/// Items looked at in one turn; those without a recipient here take no place in the ring.
const MAIL_PER_TURN: usize = 256;
/// Connections written to in one turn, of each kind: about 4 ms at 8 µs a write.
const URGENT_PER_TURN: usize = 512;
const TOPIC_PER_TURN: usize = 256;

pub(crate) struct Fanout {
    pub(crate) ring: Ring,
    pub(crate) stalled: Stalled,
    /// Slots with bits. A slot may be named twice; the second time nothing is left to do.
    urgent: VecDeque<u32>,
    topic: VecDeque<u32>,
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

impl Shard {
    /// Marks a turn's share of mail.
    pub(crate) fn take_mail(&mut self) {
        if catch_unwind(AssertUnwindSafe(|| self.mark_mail())).is_err() {
            self.rebuild_fanout();
        }
        self.bury();
    }

    /// Writes to a turn's share of what is marked.
    pub(crate) fn write_marked(&mut self) {
        self.write_queue(|fanout| &mut fanout.urgent, URGENT_PER_TURN);
        self.write_queue(|fanout| &mut fanout.topic, TOPIC_PER_TURN);
        self.finish_frames();
    }

    #[cfg(not(feature = "io-uring"))]
    fn write_queue(&mut self, queue: fn(&mut Fanout) -> &mut VecDeque<u32>, count: usize) {
        self.write_each(queue, count);
    }

    /// Writes to at most `count` connections of a queue, one after the other.
    pub(crate) fn write_each(&mut self, queue: fn(&mut Fanout) -> &mut VecDeque<u32>, count: usize) {
        for _ in 0..count {
            let Some(slot) = self.next_marked(queue) else { break };
            self.guard(Some(slot), |shard| shard.flush(slot));
        }
    }

    /// The next slot of a queue that still has bits: many have been written to on another occasion.
    pub(crate) fn next_marked(&mut self, queue: fn(&mut Fanout) -> &mut VecDeque<u32>) -> Option<u32> {
        loop {
            let slot = queue(&mut self.fanout).pop_front()?;
            if self.connections.get(slot as usize).is_some_and(|connection| connection.pending != 0) {
                return Some(slot);
            }
        }
    }

    fn mark_mail(&mut self) {
        for _ in 0..MAIL_PER_TURN {
            let Some((mail, passes)) = self.next_mail() else { return };
            if !passes && let Some(dispatch) = mail.dispatch() {
                self.note_offered(dispatch);
            }
            self.mailbox().marked(&mail);
            match mail {
                Mail::Direct { dispatch, to } => self.mark_direct(&dispatch, &to),
                Mail::Topic { dispatch, key, .. } => self.topic_mail(dispatch, key),
                Mail::Offered { key, position } => {
                    if let Some(index) = self.topics.find(key) {
                        self.topics.reach(index, position);
                    }
                }
                Mail::Condition { dispatch, audience, .. } => self.mark_audience(&dispatch, &audience),
                Mail::Subscribe { to, topics } => {
                    if let Some(session) = self.at(to.slot, to.generation).and_then(|it| it.session.clone()) {
                        for (topic, key) in topics {
                            if !self.may_hear(&session, &topic) {
                                continue;
                            }
                            self.subscribe(to.slot, topic, key, Subscription::durable, None);
                        }
                        self.advance(to.slot);
                    }
                }
                Mail::Reread { to, since: Some(since) } => self.reread(&to, since),
                Mail::Reread { to, since: None } => {
                    for address in to {
                        if self.at(address.slot, address.generation).is_some() {
                            self.read_held_back(address.slot);
                        }
                    }
                }
                Mail::Stanza { to, stanza } => {
                    if self.at(to.slot, to.generation).is_some() {
                        self.deliver_stanza(to.slot, &stanza);
                    }
                }
                Mail::Unsubscribe { to, key } => {
                    if self.at(to.slot, to.generation).is_some() {
                        self.unsubscribe(to.slot, &[key]);
                    }
                }
            }
        }
    }

    fn note_offered(&mut self, dispatch: &Dispatch) {
        if dispatch.is_ordered() {
            self.fanout.offered = self.fanout.offered.max(dispatch.message.id);
        }
    }

    fn mark_direct(&mut self, dispatch: &Arc<Dispatch>, to: &[Address]) {
        let place = self.fanout.ring.put(dispatch.clone(), to.len());
        for address in to {
            match self.at(address.slot, address.generation).is_some() {
                true => self.mark(address.slot, place, None, true),
                false => self.frame(place, |frame| frame.gone += 1),
            }
        }
        self.end_frame(place);
    }

    fn topic_mail(&mut self, dispatch: Arc<Dispatch>, key: Key) {
        let index = self.topics.find(key);
        let dispatch = match index {
            Some(index) => self.look_for_gap(dispatch, index),
            None => Some(dispatch),
        };
        // One that was offered, from the log perhaps before it came by, is not offered once more.
        if let Some(dispatch) = dispatch
            && self.fanout.recent.note_topic(&dispatch.message)
        {
            self.mark_topic(&dispatch, index);
        }
    }

    /// Among other nodes a message may be missing before this one, or this one have been missing. None: it is kept, so
    /// the log brings it behind what is missing. Written now, it could be confirmed, here or at any node, and the
    /// device's position would stand behind a message that it never heard.
    fn look_for_gap(&mut self, dispatch: Arc<Dispatch>, index: u32) -> Option<Arc<Dispatch>> {
        let message = &dispatch.message;
        let Some(place) = message.topic.as_ref().filter(|_| self.shared.registry.is_shared()) else {
            return Some(dispatch);
        };
        if dispatch.again {
            return Some(dispatch);
        }
        match self.topics.pass(index, place.position) {
            Pass::Next => Some(dispatch),
            Pass::Gap { behind } => {
                self.delivery.topic_gap(message.app, place.topic.clone(), behind);
                (!dispatch.is_stored()).then_some(dispatch)
            }
            // Pages that reached further may have been read before it was there.
            Pass::Late => Some(Dispatch::offered(message.clone(), true)),
        }
    }

    fn mark_topic(&mut self, dispatch: &Arc<Dispatch>, index: Option<u32>) {
        let message = &dispatch.message;
        let position = message.topic.as_ref().map(|place| place.position);
        let skips = index.zip(position).map(|(index, position)| self.topics.take_skips(index, position));
        let skips = skips.unwrap_or_default();
        let entry = index.and_then(|index| self.topics.entry(index));
        let subscribers = entry.into_iter().flat_map(|entry| entry.subscribers.iter().copied());
        let mut slots: Vec<u32> = subscribers.filter(|slot| !skips.contains(slot)).collect();
        if let Some(place) = message.topic.as_ref().filter(|_| !self.wildcards.is_empty()) {
            self.add_wildcards(message.app, &place.topic, entry, &mut slots);
        }
        if slots.is_empty() {
            return;
        }
        // In the order in which they came lie their sockets in the kernel's memory, and ours.
        slots.sort_unstable();
        let place = self.fanout.ring.put(dispatch.clone(), slots.len());
        for slot in slots {
            self.mark(slot, place, index, false);
        }
        self.end_frame(place);
    }

    /// Those who hear a topic by a filter, and not by its name.
    fn add_wildcards(&self, app: AppId, topic: &Topic, entry: Option<&Entry>, slots: &mut Vec<u32>) {
        if topic.is_everyone() {
            return;
        }
        let mut wild = Vec::new();
        self.wildcards.matching(app, topic.as_str(), &mut wild);
        wild.sort_unstable();
        wild.dedup();
        wild.retain(|slot| entry.is_none_or(|entry| !entry.subscribers.contains(slot)));
        slots.extend(wild);
    }

    fn mark_audience(&mut self, dispatch: &Arc<Dispatch>, audience: &Audience) {
        let indices: Vec<Option<u32>> =
            audience.topics.iter().map(|(_, key)| self.topics.find(*key)).collect();
        let hears = |slot: u32, topic: &noroshi_types::Topic| {
            let at = audience.topics.iter().position(|(named, _)| named == topic);
            let entry = at.and_then(|at| indices[at]).and_then(|index| self.topics.entry(index));
            entry.is_some_and(|entry| entry.subscribers.contains(&slot))
        };
        // Who hears none of the topics is meant only if the condition says so.
        let candidates = match audience.condition.matches_none() {
            true => vec![self.topics.find(audience.everyone)],
            false => indices.clone(),
        };
        let entries = candidates.into_iter().flatten().filter_map(|index| self.topics.entry(index));
        let mut slots: Vec<u32> = entries.flat_map(|entry| entry.subscribers.iter().copied()).collect();
        slots.sort_unstable();
        slots.dedup();
        slots.retain(|slot| audience.condition.matches(|topic| hears(*slot, topic)));
        let place = self.fanout.ring.put(dispatch.clone(), slots.len());
        for slot in slots {
            self.mark(slot, place, None, false);
        }
        self.end_frame(place);
    }

    /// A frame that nobody waits for leaves the ring at once.
    fn end_frame(&mut self, place: usize) {
        if let Some(frame) = self.fanout.ring.take_ended(place) {
            self.tell_frame(frame);
        }
    }

    fn frame(&mut self, place: usize, change: impl FnOnce(&mut Frame)) {
        if let Some(frame) = self.fanout.ring.frame_mut(place) {
            change(frame);
        }
    }

    /// Marks a message at a connection, unless it is not for it now.
    fn mark(&mut self, slot: u32, place: usize, topic: Option<u32>, urgent: bool) {
        let (Some(connection), Some(frame)) =
            (self.connections.get_mut(slot as usize), self.fanout.ring.frame_mut(place))
        else {
            return;
        };
        let Some(session) = connection.session.as_ref().filter(|_| connection.phase == Phase::Open) else {
            frame.gone += 1;
            return;
        };
        let dispatch = &frame.dispatch;
        if gate(&dispatch.message, session.presence()).is_some() {
            return frame.inactive.push(session.num);
        }
        if dispatch.is_known(connection, &self.fanout.recent) {
            return;
        }
        if session.holds_back(&dispatch.message) {
            return; // it stays in the inbox
        }
        if let Some(catch_up) = &mut connection.catch_up {
            match catch_up.hold(dispatch, topic) {
                Hold::Held => return self.fanout.recent.note(dispatch, connection.generation, topic),
                Hold::Missed => {
                    if !dispatch.is_stored() {
                        frame.slow.push(session.num);
                    }
                    return;
                }
                Hold::Not => {}
            }
        }
        self.fanout.recent.note(dispatch, connection.generation, topic);
        frame.waiting += 1;
        if urgent && !connection.urgent {
            connection.urgent = true;
            self.fanout.urgent.push_back(slot);
        } else if connection.pending == 0 && !urgent {
            self.fanout.topic.push_back(slot);
        }
        connection.pending |= 1 << place;
    }

    /// Writes what is marked at a connection, in one write.
    pub(crate) fn flush(&mut self, slot: u32) {
        self.flush_written(slot, None);
    }

    /// [`Shard::flush`] where the write may have been done: `written` is how much the socket took.
    pub(crate) fn flush_written(&mut self, slot: u32, written: Option<usize>) {
        let Some((device, bits)) = self.take_marked(slot) else { return };
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let framing = connection.framing;
        let places = self.fanout.ring.in_order(bits);
        if connection.talk.is_some() {
            let outbound = self.offer_marked(slot, &places);
            return self.write_outbound(slot, outbound, None);
        }
        let mut taken = 0;
        if connection.tail.is_none() {
            let frames = places.iter().filter_map(|place| self.fanout.ring.frame(*place));
            let mut slices: SmallVec<[IoSlice<'_>; 8]> =
                frames.map(|frame| IoSlice::new(frame.dispatch.encoded(framing))).collect();
            let written = written.map_or_else(|| connection.transport.write(&mut slices), Ok);
            drop(slices);
            let Ok(count) = written else {
                self.fanout.ring.forget(bits, Some(device));
                return self.doom(slot, CloseReason::PeerReset);
            };
            taken = count;
        }
        self.tally.bytes_out += taken as u64;
        let soft = self.shared.config.send_queue_soft_bytes;
        for place in places {
            let Some(frame) = self.fanout.ring.frame_mut(place) else { continue };
            frame.waiting -= 1;
            let bytes = frame.dispatch.encoded(framing);
            if let Framing::Deflated(_) = framing {
                self.tally.deflate.add(frame.dispatch.encoded(Framing::WebSocket).len(), bytes.len());
            }
            if taken >= bytes.len() {
                taken -= bytes.len();
            } else if taken == 0 && !frame.dispatch.is_stored() && connection.unsent_bytes() > soft {
                self.tally.slow_drops += 1;
                frame.slow.push(device);
                continue;
            } else {
                let tail = connection.tail.get_or_insert_with(|| Box::new(Tail::new(self.now.tick)));
                match std::mem::take(&mut taken) {
                    0 => tail.push(bytes.clone()),
                    begun => tail.push_begun(bytes.slice(begun..)),
                }
            }
            if framing == Framing::GzipEvents
                && let Some(trailer) = self.trailers.get_mut(&slot)
            {
                trailer.add(frame.dispatch.gzip());
            }
            self.tally.messages_out[connection.protocol as usize] += 1;
            connection.frames.grant(1);
            frame.unobserved += 1;
            frame.written.push(device);
        }
        self.check_tail(slot);
    }

    /// Takes a connection's bits off it. None if there are none, or nobody to write to.
    pub(crate) fn take_marked(&mut self, slot: u32) -> Option<(DeviceNum, u64)> {
        let connection = self.connections.get_mut(slot as usize)?;
        connection.urgent = false;
        let bits = std::mem::take(&mut connection.pending);
        if bits == 0 {
            return None;
        }
        let device = connection.session.as_ref().map(|session| session.num);
        if device.is_none() || !connection.is_alive() {
            self.fanout.ring.forget(bits, device);
            return None;
        }
        device.map(|device| (device, bits))
    }

    /// Frees frames that all have, and observes how long they took.
    fn finish_frames(&mut self) {
        for place in self.fanout.ring.taken() {
            self.end_frame(place);
        }
        let now = self.delivery.clock().now();
        for frame in self.fanout.ring.frames_mut() {
            if frame.unobserved > 0 {
                let latency = now.saturating_since(frame.dispatch.message.sent_at);
                self.shared
                    .metrics
                    .written_seconds
                    .observe_many(latency, std::mem::take(&mut frame.unobserved));
            }
        }
    }

    fn tell_frame(&mut self, frame: Frame) {
        let message = &frame.dispatch.message;
        let now = self.delivery.clock().now();
        if frame.unobserved > 0 {
            let latency = now.saturating_since(message.sent_at);
            self.shared.metrics.written_seconds.observe_many(latency, frame.unobserved);
        }
        // What is kept for who is away is not lost by being away.
        let gone = if frame.dispatch.is_stored() || message.topic.is_some() { 0 } else { frame.gone };
        self.outcomes.wrote(message.app, frame.written.len());
        for (outcome, devices, unknown) in [
            (Outcome::Written, frame.written, 0),
            (Outcome::Inactive, frame.inactive, 0),
            (Outcome::Slow, frame.slow, 0),
            (Outcome::Offline, frame.offline, gone),
        ] {
            self.outcomes.many(message.id, outcome, devices, unknown, now);
        }
    }

    /// After a panic on one connection, which may have taken its bits off and written to nobody: frames
    /// that nobody has a bit for would never leave the ring.
    pub(crate) fn recount_frames(&mut self) {
        let pending = self.connections.iter().map(|(_, connection)| connection.pending);
        self.fanout.ring.recount(pending);
    }

    /// After a panic while marking: nothing under way can be trusted, so it is dropped and what is kept
    /// is read again.
    fn rebuild_fanout(&mut self) {
        self.shared.metrics.panics.inc();
        tracing::error!(shard = self.index, "a delivery panicked; backlogs are read again");
        for (_, connection) in &mut self.connections {
            connection.pending = 0;
            connection.urgent = false;
        }
        // Every session reads on behind its own watermark: it may hear again what it did not confirm.
        for mail in
            std::mem::replace(&mut self.fanout, Fanout::new(Recent::new(self.shared.registry.is_shared())))
                .stalled
                .into_mail()
        {
            match mail.dispatch() {
                Some(_) => self.mailbox().marked(&mail),
                // What a connection hears is not read again.
                None => self.fanout.stalled.push(mail, SmallVec::new()),
            }
        }
        self.resync(NotificationId::from_bytes([0; 16]));
    }
}
