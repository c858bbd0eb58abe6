//! Messages to connections that keep a conversation of their own ([`crate::protocol::conversation`]): what
//! [`crate::fanout::marks`] and [`crate::fanout::backlog`] do with encoded frames, with a conversation asked about each.
//!
//! What is written is a small head, which is the connection's own, and a rest that all of its protocol
//! share, both in one `writev`, or with what other connections get in one call (`uring`). A conversation counts what it gives out (packet ids, windows), so a message
//! is offered only where it will be sent: whether the socket is behind is looked at before.
//!
//! A conversation may have no room until something is confirmed. Live messages wait then in the
//! connection's [`CatchUp`], which reads on from the store if they become too many; what is left of a page
//! waits there too. [`Shard::make_room`] goes on.
//!
//! Invariants: nothing ordered overtakes a message that waits for room. Between [`Shard::offer_marked`] and
//! [`Shard::write_outbound`] nothing else is sent to the connection.

use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;
use noroshi_types::{CloseReason, NotificationId, Outcome};
use smallvec::SmallVec;

use crate::fanout::dispatch::Dispatch;
use crate::fanout::ring::Frame;
use crate::io::deflate::{self, Saving};
use crate::io::tail::Tail;
use crate::protocol::conversation::{Cause, Context, Offered};
use crate::session::catch_up::{CatchUp, Hold, Paged};
use crate::shard::Shard;
use crate::shard::connection::{Connection, Framing};

/// What is prepared before the socket is asked: about what it takes at once.
const BATCH_BYTES: usize = 64 << 10;

/// What is copied into one piece to be sent with others'. More, which is rare, has a call of its own.
#[cfg(feature = "io-uring")]
const JOINED_BYTES: usize = 4 << 10;

/// Packets on their way to one socket.
#[derive(Default)]
struct Batch {
    heads: Vec<u8>,
    /// Where each packet's head ends, and its rest.
    packets: SmallVec<[(usize, Bytes); 8]>,
    /// Of the rests.
    shared_bytes: usize,
    saving: Saving,
}

impl Batch {
    fn bytes(&self) -> usize {
        self.heads.len() + self.shared_bytes
    }

    fn push(&mut self, shared: Bytes) {
        self.shared_bytes += shared.len();
        self.packets.push((self.heads.len(), shared));
    }

    fn heads(&self) -> impl Iterator<Item = (&[u8], &Bytes)> {
        let mut begin = 0;
        self.packets.iter().map(move |(end, shared)| {
            let head = &self.heads[begin..*end];
            begin = *end;
            (head, shared)
        })
    }

    /// Adds all of it, in the order in which it is sent.
    #[cfg(feature = "io-uring")]
    fn join(&self, to: &mut Vec<u8>) {
        for (head, shared) in self.heads() {
            to.extend_from_slice(head);
            to.extend_from_slice(shared);
        }
    }

    /// Writes as much as the socket takes and keeps the rest; how much it took. `written`: how much it took already,
    /// of a batch that was sent.
    fn write(
        &mut self,
        connection: &mut Connection,
        now_tick: u32,
        written: Option<usize>,
    ) -> io::Result<usize> {
        let mut taken = written.unwrap_or(0);
        if connection.framing == Framing::Polling {
            self.queue(connection);
            return Ok(0);
        }
        if connection.tail.is_none() && written.is_none() {
            let mut slices: SmallVec<[IoSlice<'_>; 16]> = SmallVec::new();
            for (head, shared) in self.heads() {
                slices.extend((!head.is_empty()).then(|| IoSlice::new(head)));
                slices.extend((!shared.is_empty()).then(|| IoSlice::new(shared)));
            }
            taken = connection.transport.write(&mut slices)?;
        }
        if taken < self.bytes() {
            let tail = connection.tail.get_or_insert_with(|| Box::new(Tail::new(now_tick)));
            for (packet, begun) in self.left(taken) {
                match begun {
                    0 => tail.push(packet),
                    begun => tail.push_begun(packet.slice(begun..)),
                }
            }
        }
        self.clear();
        Ok(taken)
    }

    /// The packets that were not `taken` whole, and how much of each was. One chunk a packet, so that what was not begun
    /// can be dropped whole.
    fn left(&self, mut taken: usize) -> impl Iterator<Item = (Bytes, usize)> {
        self.heads().filter_map(move |(head, shared)| {
            let len = head.len() + shared.len();
            if taken >= len {
                taken -= len;
                return None;
            }
            let packet = if head.is_empty() { shared.clone() } else { [head, shared].concat().into() };
            Some((packet, std::mem::take(&mut taken)))
        })
    }

    /// [`Batch::write`] where packets wait for a poll.
    fn queue(&mut self, connection: &mut Connection) {
        let Some(talk) = &mut connection.talk else { return };
        for (head, shared) in self.heads() {
            talk.queue(if head.is_empty() { shared.clone() } else { [head, shared].concat().into() });
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.heads.clear();
        self.packets.clear();
        self.shared_bytes = 0;
    }
}

/// What a connection is to be written, and what its conversation says of it.
#[derive(Default)]
pub(crate) struct Outbound {
    batch: Batch,
    confirmed: Vec<NotificationId>,
    /// The socket is broken.
    failed: bool,
}

#[cfg(feature = "io-uring")]
impl Outbound {
    /// Adds what is to be written, if that is not too much to be copied.
    pub(crate) fn join(&self, to: &mut Vec<u8>) {
        if !self.failed && self.batch.bytes() <= JOINED_BYTES {
            self.batch.join(to);
        }
    }
}

/// What became of one message, besides being written.
enum Fate {
    Written { confirmed: bool },
    Passed { confirmed: bool },
    Full,
}

impl Shard {
    /// Offers messages to a connection with a conversation: `places` are off its bits. What comes of it is for
    /// [`Shard::write_outbound`].
    pub(crate) fn offer_marked(&mut self, slot: u32, places: &[usize]) -> Outbound {
        let Outbound { mut batch, mut confirmed, mut failed } = Outbound::default();
        let soft = self.shared.config.send_queue_soft_bytes;
        for place in places {
            let Some(frame) = self.fanout.ring.frame_mut(*place) else { continue };
            frame.waiting -= 1;
            let Some(connection) = self.connections.get_mut(slot as usize) else { continue };
            let Some(device) = connection.session.as_ref().map(|session| session.num) else { continue };
            let dispatch = frame.dispatch.clone();
            // Behind one that waits for room all wait that have an order.
            if let Some(catch_up) = &mut connection.catch_up {
                match catch_up.hold(&dispatch, None) {
                    Hold::Held => continue,
                    Hold::Missed => {
                        frame.slow.extend((!dispatch.is_stored()).then_some(device));
                        continue;
                    }
                    Hold::Not => {}
                }
            }
            if !dispatch.is_stored() && connection.unsent_bytes() > soft {
                self.tally.slow_drops += 1;
                frame.slow.push(device);
                continue;
            }
            match offer(
                &self.shared.config,
                self.now.wall,
                connection,
                &dispatch,
                Cause::Published,
                &mut batch,
            ) {
                Fate::Written { confirmed: nobody_will } => {
                    self.tally.messages_out[connection.protocol as usize] += 1;
                    grant(connection, 1);
                    frame.unobserved += 1;
                    frame.written.push(device);
                    confirmed
                        .extend((nobody_will && dispatch.message.wants_ack()).then_some(dispatch.message.id));
                }
                Fate::Passed { confirmed: never } => {
                    pass(frame, &dispatch, never, device, &mut confirmed);
                }
                Fate::Full if dispatch.is_ordered() => self.park(slot, &dispatch),
                Fate::Full => {
                    self.tally.slow_drops += 1;
                    frame.slow.push(device);
                }
            }
            if batch.bytes() >= BATCH_BYTES {
                failed |= !self.write_batch(slot, &mut batch, None);
            }
        }
        self.follow(slot, &mut batch);
        Outbound { batch, confirmed, failed }
    }

    /// Writes what is left of it. `written`: how much the socket took, where that was sent.
    pub(crate) fn write_outbound(&mut self, slot: u32, outbound: Outbound, written: Option<usize>) {
        if !self.is_alive(slot) {
            return;
        }
        let Outbound { mut batch, confirmed, failed } = outbound;
        let broken = failed | !self.write_batch(slot, &mut batch, written);
        self.confirm(slot, confirmed);
        match broken {
            true => self.doom(slot, CloseReason::PeerReset),
            false => self.check_tail(slot),
        }
    }

    /// False if the socket is broken.
    fn write_batch(&mut self, slot: u32, batch: &mut Batch, written: Option<usize>) -> bool {
        let now_tick = self.now.tick;
        let Some(connection) = self.connections.get_mut(slot as usize) else { return true };
        if batch.packets.is_empty() {
            return true;
        }
        if connection.framing == Framing::Polling {
            self.polled.push(slot);
        }
        self.tally.deflate.merge(std::mem::take(&mut batch.saving));
        let written = batch.write(connection, now_tick, written);
        self.tally.bytes_out += *written.as_ref().unwrap_or(&0) as u64;
        written.is_ok()
    }

    /// What the conversation says behind what was offered.
    fn follow(&mut self, slot: u32, batch: &mut Batch) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(talk) = &mut connection.talk else { return };
        let before = batch.heads.len();
        talk.follow(&self.shared.config, &mut batch.heads);
        if batch.heads.len() > before {
            batch.push(Bytes::new());
        }
    }

    /// A live message has no room: from here on the connection hears what is held for it, when there is.
    fn park(&mut self, slot: u32, dispatch: &Arc<Dispatch>) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own_topics = crate::fanout::backlog::own_topics(connection, &self.topics);
        let catch_up = connection.catch_up.get_or_insert_with(|| Box::new(CatchUp::live()));
        catch_up.park(dispatch, own_topics);
    }

    /// What nobody will confirm counts as confirmed.
    pub(crate) fn confirm(&mut self, slot: u32, ids: Vec<NotificationId>) {
        let Some(connection) = self.connections.get_mut(slot as usize).filter(|_| !ids.is_empty()) else {
            return;
        };
        if let Some(catch_up) = &mut connection.catch_up {
            catch_up.confirm(&ids);
        }
        if let Some(session) = &connection.session {
            self.delivery.ack(session.num, ids);
        }
    }

    /// Offers a held message. False if there is no room: it is kept in front.
    pub(crate) fn release_to_talk(&mut self, slot: u32, dispatch: &Arc<Dispatch>) -> bool {
        let mut batch = Batch::default();
        let Some(connection) = self.connections.get_mut(slot as usize) else { return true };
        let Some(session) = connection.session.clone() else { return true };
        let message = &dispatch.message;
        match offer(&self.shared.config, self.now.wall, connection, dispatch, Cause::Published, &mut batch) {
            Fate::Written { confirmed } => {
                self.tally.messages_out[connection.protocol as usize] += 1;
                grant(connection, 1);
                self.outcomes.wrote(message.app, 1);
                self.outcomes.one(message.id, Outcome::Written, session.num);
                self.follow(slot, &mut batch);
                match self.write_batch(slot, &mut batch, None) {
                    true => self.check_tail(slot),
                    false => self.doom(slot, CloseReason::PeerReset),
                }
                if confirmed && message.wants_ack() {
                    self.confirm(slot, vec![message.id]);
                }
                true
            }
            Fate::Passed { confirmed: true } if message.wants_ack() => {
                self.confirm(slot, vec![message.id]);
                true
            }
            Fate::Passed { .. } => true,
            Fate::Full => false,
        }
    }

    /// Writes a page of the backlog, or as much of it as there is room for.
    pub(crate) fn write_page_to_talk(&mut self, slot: u32, paged: Vec<Paged>) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(num) = connection.session.as_ref().map(|session| session.num) else { return };
        let (mut batch, mut confirmed, mut written) = (Batch::default(), Vec::new(), 0);
        let mut paged = paged.into_iter();
        let mut rest = Vec::new();
        for one in paged.by_ref() {
            let dispatch = Dispatch::new(one.message.clone());
            let cause = if one.retained { Cause::Retained } else { Cause::Published };
            match offer(&self.shared.config, self.now.wall, connection, &dispatch, cause, &mut batch) {
                Fate::Written { confirmed: nobody_will } => {
                    written += 1;
                    self.outcomes.wrote(one.message.app, 1);
                    self.outcomes.one(one.message.id, Outcome::Written, num);
                    confirmed.extend((nobody_will && one.message.wants_ack()).then_some(one.message.id));
                }
                Fate::Passed { confirmed: true } if one.message.wants_ack() => confirmed.push(one.message.id),
                Fate::Passed { .. } => {}
                Fate::Full => {
                    rest.push(one);
                    break;
                }
            }
        }
        rest.extend(paged);
        self.tally.messages_out[connection.protocol as usize] += u64::from(written);
        grant(connection, written);
        if let Some(catch_up) = &mut connection.catch_up {
            catch_up.page_bytes = batch.bytes();
            catch_up.keep_rest(rest);
        }
        self.follow(slot, &mut batch);
        let whole = self.write_batch(slot, &mut batch, None);
        self.confirm(slot, confirmed);
        match whole {
            true => {
                self.check_tail(slot);
                self.advance(slot);
            }
            false => self.doom(slot, CloseReason::PeerReset),
        }
    }

    /// Something was confirmed: what had no room is offered again.
    pub(crate) fn make_room(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if let Some(catch_up) = &mut connection.catch_up {
            catch_up.waits_for_room = false;
            self.advance(slot);
        }
    }
}

fn offer(
    config: &crate::Config,
    now: noroshi_types::Timestamp,
    connection: &mut Connection,
    dispatch: &Dispatch,
    cause: Cause,
    batch: &mut Batch,
) -> Fate {
    let context = Context { config, framing: connection.framing, now };
    let Some(talk) = &mut connection.talk else { return Fate::Passed { confirmed: false } };
    let begin = batch.heads.len();
    match talk.offer(&context, dispatch, cause, &mut batch.heads) {
        Offered::Send { mut shared, confirmed } => {
            if let Framing::Deflated(window_bits) = connection.framing {
                let plain_bytes = batch.heads.len() - begin + shared.len();
                shared = deflate::pack(dispatch, window_bits, &mut batch.heads, begin, shared);
                batch.saving.add(plain_bytes, batch.heads.len() - begin + shared.len());
            }
            batch.push(shared);
            Fate::Written { confirmed }
        }
        Offered::Pass { confirmed } => Fate::Passed { confirmed },
        Offered::Full => Fate::Full,
    }
}

fn grant(connection: &mut Connection, messages: u32) {
    let each = connection.talk.as_ref().map_or(1, |talk| talk.frames_granted());
    connection.frames.grant(messages.saturating_mul(each));
}

/// A message that the conversation does not want: kept, it stays where it is.
fn pass(
    frame: &mut Frame,
    dispatch: &Dispatch,
    never: bool,
    device: noroshi_types::DeviceNum,
    confirmed: &mut Vec<NotificationId>,
) {
    if never && dispatch.message.wants_ack() {
        confirmed.push(dispatch.message.id);
    } else if !dispatch.is_stored() && dispatch.message.topic.is_none() {
        frame.offline.push(device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_socket_did_not_take_is_left_in_whole_packets() {
        let mut batch = Batch::default();
        for (head, shared) in [("ab", "cde"), ("", "fgh"), ("ij", "")] {
            batch.heads.extend_from_slice(head.as_bytes());
            batch.push(Bytes::from_static(shared.as_bytes()));
        }
        let all = b"abcdefghij";
        assert_eq!(batch.bytes(), all.len());
        for taken in 0..=all.len() {
            let left: Vec<_> = batch.left(taken).collect();
            let rest: Vec<u8> = left.iter().flat_map(|(packet, begun)| packet[*begun..].to_vec()).collect();
            assert_eq!(rest, all[taken..], "{taken}");
            assert!(left.iter().skip(1).all(|(_, begun)| *begun == 0), "only the first can be begun");
            assert!(left.iter().all(|(packet, begun)| *begun < packet.len()), "none is left that is done");
        }
    }
}
