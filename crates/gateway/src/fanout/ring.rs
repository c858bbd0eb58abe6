//! The messages in flight on a shard: 64 places, and one bit each in the marks of a connection
//! ([`crate::fanout::marks`]).
//!
//! Pure bookkeeping: recipients and writes are decided elsewhere.
//!
//! Invariants: `Frame::waiting` is the number of connections with the frame's bit; a place is taken until its frame is
//! removed, which is possible once no connection waits for it.

use std::sync::Arc;

use noroshi_telemetry::Histogram;
use noroshi_types::{DeviceNum, Outcome, Timestamp};
use smallvec::SmallVec;

use crate::fanout::Queue;
use crate::session::outcome::Outcomes;
use crate::wire::dispatch::Dispatch;

/// One bit each of a connection's marks.
const PLACES: u32 = u64::BITS;
/// Places that messages of topics and conditions leave to direct ones.
const DIRECT_PLACES: u32 = 8;
/// Places that these may take.
pub(crate) const TOPIC_PLACES: u32 = PLACES - DIRECT_PLACES;

/// What the ring has of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    pub(crate) deliveries: usize,
    pub(crate) messages: usize,
}

/// A message in flight.
pub(crate) struct Frame {
    dispatch: Arc<Dispatch>,
    /// In the order in which they arrived.
    number: u64,
    queue: Queue,
    /// It waited too long in the mailbox: nobody gets it.
    is_late: bool,
    waiting: u32,
    /// Written since the latency was last observed.
    unobserved: u64,
    written: Vec<DeviceNum>,
    inactive: Vec<DeviceNum>,
    slow: Vec<DeviceNum>,
    offline: Vec<DeviceNum>,
    /// By preferences.
    suppressed: Vec<(Outcome, DeviceNum)>,
    /// Sessions that were gone when their mail arrived.
    gone: u64,
}

impl Frame {
    pub(crate) fn dispatch(&self) -> &Arc<Dispatch> {
        &self.dispatch
    }

    /// A connection gets the message, or does not: it waits no longer.
    pub(crate) fn end_wait(&mut self) {
        self.waiting -= 1;
    }

    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    pub(crate) fn set_late(&mut self) {
        self.is_late = true;
    }

    /// A connection waits for the message.
    pub(super) fn begin_wait(&mut self) {
        self.waiting += 1;
    }

    pub(crate) fn add_written(&mut self, device: DeviceNum) {
        self.unobserved += 1;
        self.written.push(device);
    }

    /// The device is not active, and the message is for active devices only.
    pub(crate) fn add_inactive(&mut self, device: DeviceNum) {
        self.inactive.push(device);
    }

    /// The device has too much unsent.
    pub(crate) fn add_slow(&mut self, device: DeviceNum) {
        self.slow.push(device);
    }

    pub(crate) fn add_offline(&mut self, device: DeviceNum) {
        self.offline.push(device);
    }

    /// Preferences of the device suppress it.
    pub(crate) fn add_suppressed(&mut self, outcome: Outcome, device: DeviceNum) {
        self.suppressed.push((outcome, device));
    }

    /// A session was gone when its mail arrived.
    pub(crate) fn add_gone(&mut self) {
        self.gone += 1;
    }

    /// Observes how long those waited that it was written to since the last call.
    pub(crate) fn observe_latency(&mut self, latencies: &Histogram, now: Timestamp) {
        if self.unobserved > 0 {
            let latency = now.saturating_since(self.dispatch.message.sent_at);
            latencies.observe_many(latency, std::mem::take(&mut self.unobserved));
        }
    }

    /// Reports what became of the message.
    pub(crate) fn report(self, outcomes: &mut Outcomes, now: Timestamp) {
        let message = &self.dispatch.message;
        // A message that is kept for absent devices is not lost by their absence.
        let gone = if self.dispatch.is_stored() || message.topic.is_some() { 0 } else { self.gone };
        outcomes.wrote(message.app, self.written.len());
        for (outcome, devices, unknown) in [
            (Outcome::Written, self.written, 0),
            (Outcome::Inactive, self.inactive, 0),
            (Outcome::Slow, self.slow, 0),
            (Outcome::Offline, self.offline, gone),
        ] {
            outcomes.many((message.app, message.id), outcome, devices, unknown, now);
        }
        for (outcome, device) in self.suppressed {
            outcomes.one(message, outcome, device);
        }
    }
}

pub(crate) struct Ring {
    frames: Vec<Option<Frame>>,
    /// The places that are taken, one bit each.
    taken: u64,
    /// Where the search for a free place begins, so that places are used in turn and the oldest comes next.
    cursor: u32,
    numbered: u64,
    /// Recipients of the messages put since [`Ring::take_added`], of each kind.
    added: [usize; 2],
}

impl Ring {
    pub(crate) fn new() -> Self {
        Self { frames: (0..PLACES).map(|_| None).collect(), taken: 0, cursor: 0, numbered: 0, added: [0; 2] }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.taken != u64::MAX
    }

    pub(crate) fn has_room_for_topics(&self) -> bool {
        self.taken.count_ones() < TOPIC_PLACES
    }

    /// Puts a message in flight, in a free place; the caller has checked that there is one. The caller marks it at its
    /// recipients and then ends the marking ([`Ring::take_ended`]).
    pub(crate) fn put(&mut self, dispatch: Arc<Dispatch>, queue: Queue, recipients: usize) -> usize {
        let free = (!self.taken).rotate_right(self.cursor).trailing_zeros();
        let place = (self.cursor + free) % PLACES;
        self.taken |= 1 << place;
        self.cursor = (place + 1) % PLACES;
        self.numbered += 1;
        self.added[queue as usize] += recipients;
        self.frames[place as usize] = Some(Frame {
            dispatch,
            number: self.numbered,
            queue,
            is_late: false,
            waiting: 0,
            unobserved: 0,
            written: Vec::with_capacity(recipients),
            inactive: Vec::new(),
            slow: Vec::new(),
            offline: Vec::new(),
            suppressed: Vec::new(),
            gone: 0,
        });
        place as usize
    }

    pub(crate) fn frame(&self, place: usize) -> Option<&Frame> {
        self.frames.get(place)?.as_ref()
    }

    pub(crate) fn frame_mut(&mut self, place: usize) -> Option<&mut Frame> {
        self.frames.get_mut(place)?.as_mut()
    }

    pub(crate) fn frames_mut(&mut self) -> impl Iterator<Item = &mut Frame> {
        self.frames.iter_mut().flatten()
    }

    /// Removes a frame if no connection waits for it.
    pub(crate) fn take_ended(&mut self, place: usize) -> Option<Frame> {
        let ended = self.frames[place].take_if(|frame| frame.waiting == 0)?;
        self.taken &= !(1 << place);
        Some(ended)
    }

    pub(crate) fn take_added(&mut self) -> [usize; 2] {
        std::mem::take(&mut self.added)
    }

    /// What connections wait for, of each kind.
    pub(crate) fn marked(&self) -> [Marked; 2] {
        let mut marked = [Marked::default(); 2];
        if self.taken != 0 {
            for frame in self.frames.iter().flatten() {
                let marked = &mut marked[frame.queue as usize];
                marked.deliveries += frame.waiting as usize;
                marked.messages += 1;
            }
        }
        marked
    }

    /// The places that are taken, in no order.
    pub(crate) fn taken(&self) -> impl Iterator<Item = usize> + use<> {
        places(self.taken)
    }

    /// The places of `bits` in the order in which their messages arrived.
    pub(crate) fn in_order(&self, bits: u64) -> SmallVec<[usize; 8]> {
        let cursor = self.cursor as usize;
        let mut ordered: SmallVec<[usize; 8]> =
            places(bits.rotate_right(self.cursor)).map(|place| (place + cursor) % PLACES as usize).collect();
        // They are in order, unless a later message took a place that an earlier one had left.
        let number = |place: &usize| self.frame(*place).map_or(0, |frame| frame.number);
        if !ordered.is_sorted_by_key(number) {
            ordered.sort_unstable_by_key(number);
        }
        ordered
    }

    /// One connection less for each of `bits`: it will never get them.
    pub(crate) fn forget(&mut self, bits: u64, device: Option<DeviceNum>) {
        for place in places(bits) {
            if let Some(frame) = self.frame_mut(place) {
                frame.waiting -= 1;
                if !frame.dispatch.is_stored() {
                    frame.offline.extend(device);
                }
            }
        }
    }

    /// Recounts the connections that wait for each message, by the bits of all connections.
    pub(crate) fn recount(&mut self, pending: impl Iterator<Item = u64>) {
        self.frames_mut().for_each(|frame| frame.waiting = 0);
        for place in pending.flat_map(places) {
            if let Some(frame) = self.frame_mut(place) {
                frame.waiting += 1;
            }
        }
    }
}

fn places(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(place as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring in which one connection waits for each of `count` messages.
    fn ring(count: usize) -> Ring {
        let mut ring = Ring::new();
        for _ in 0..count {
            let place = ring.put(Dispatch::for_tests(), Queue::Urgent, 1);
            ring.frame_mut(place).expect("put").waiting = 1;
        }
        ring
    }

    #[test]
    fn topics_leave_places_to_direct_messages() {
        let check = |count: usize, direct: bool, topics: bool| {
            let ring = ring(count);
            assert_eq!((ring.has_room(), ring.has_room_for_topics()), (direct, topics), "{count}");
        };
        check(0, true, true);
        check(55, true, true);
        check(56, true, false);
        check(63, true, false);
        check(64, false, false);
    }

    #[test]
    fn places_are_in_the_order_of_their_messages() {
        let mut ring = ring(64);
        for left in [7, 3, 60] {
            ring.forget(1 << left, Some(DeviceNum(5)));
            let frame = ring.take_ended(left).expect("nobody waits");
            assert_eq!(frame.offline, [DeviceNum(5)]);
        }
        assert!(ring.take_ended(8).is_none(), "somebody waits");
        // In turn from the last used place: 3, 7, 60.
        assert_eq!([(); 3].map(|()| ring.put(Dispatch::for_tests(), Queue::Urgent, 0)), [3, 7, 60]);
        let bits = [2, 3, 7, 60, 61].into_iter().map(|place| 1 << place).sum();
        assert_eq!(ring.in_order(bits)[..], [2, 61, 3, 7, 60]);
        assert!(!ring.has_room());
    }

    #[test]
    fn a_recount_finds_the_connections_that_still_wait() {
        let mut ring = ring(3);
        ring.recount([0b101, 0b100, 0].into_iter());
        let waiting: Vec<u32> = ring.frames_mut().map(|frame| frame.waiting).collect();
        assert_eq!(waiting, [1, 0, 2]);
        assert!(ring.take_ended(1).is_some());
    }
}
