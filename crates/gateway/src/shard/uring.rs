//! Writes to many connections with one system call, where the kernel has io_uring ([`crate::io::uring`]).
//!
//! Only connections without TLS and without unsent bytes take part. Several messages for one connection of the native
//! protocol are copied into one piece if they are short, and so are the packets of an adapter. Each connection then
//! continues as if it had been written to separately.

use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use smallvec::SmallVec;

use crate::fanout::Queue;
use crate::fanout::batch::{JOINED_BYTES, Outbound};
use crate::io::uring::{BATCH, Uring, taken};
use crate::shard::Shard;
use crate::shard::connection::Connection;

impl Shard {
    /// Writes to at most `count` connections of a queue, as many as possible with one call.
    pub(crate) fn write_queue(&mut self, queue: Queue, count: usize) {
        let mut left = count;
        while left > 0 && self.io.uring.is_some() {
            let mut slots: SmallVec<[u32; BATCH]> = SmallVec::new();
            while slots.len() < left.min(BATCH)
                && let Some(slot) = self.next_marked(queue)
            {
                // The second time nothing would be left to do, but it would be sent twice.
                if !slots.contains(&slot) {
                    slots.push(slot);
                }
            }
            if slots.is_empty() {
                return;
            }
            left -= slots.len();
            self.write_together(&slots);
        }
        self.write_each(queue, left);
    }

    fn write_together(&mut self, slots: &[u32]) {
        let outbounds = self.offer_together(slots);
        let uring = self.io.uring.take();
        // No guard of a connection surrounds this. A panic costs the ring, with entries that were not submitted, and
        // each connection is written to separately.
        let sent = catch_unwind(AssertUnwindSafe(|| {
            let mut uring = uring?;
            let sent = self.send_together(&mut uring, slots, &outbounds);
            Some((uring, sent))
        }));
        let (uring, sent) = sent.ok().flatten().unzip();
        let sent = sent.unwrap_or_default();
        let mut results = uring.iter().flat_map(|uring| &uring.results);
        let mut outbounds = outbounds.into_iter().peekable();
        for (index, slot) in slots.iter().enumerate() {
            let result = if sent.get(index) == Some(&true) { results.next() } else { None };
            let written = result.and_then(|result| taken(*result));
            let outbound = outbounds.next_if(|(at, _)| at == slot);
            self.guard(Some(*slot), |shard| match outbound {
                Some((_, outbound)) => shard.write_outbound(*slot, outbound, written),
                None => shard.flush_written(*slot, written),
            });
        }
        self.io.uring = uring;
    }

    /// Offers messages to the adapters whose packets may be sent together. By slot, in the order of the slots.
    fn offer_together(&mut self, slots: &[u32]) -> Vec<(u32, Outbound)> {
        let mut outbounds = Vec::new();
        for slot in slots {
            let connection = self.connections.get(*slot as usize);
            if connection.is_some_and(|it| it.adapter.is_some() && free_socket(it).is_some()) {
                self.guard(Some(*slot), |shard| {
                    let Some((_, bits)) = shard.take_marked(*slot) else { return };
                    let places = shard.fanout.ring.in_order(bits);
                    outbounds.push((*slot, shard.offer_marked(*slot, &places)));
                });
            }
        }
        outbounds
    }

    /// Sends what can be sent together. Returns for each slot whether it was sent; the results are in the same order.
    fn send_together(
        &self,
        uring: &mut Uring,
        slots: &[u32],
        outbounds: &[(u32, Outbound)],
    ) -> SmallVec<[bool; BATCH]> {
        let mut joined = std::mem::take(&mut uring.joined);
        joined.clear();
        let mut outbounds = outbounds.iter().peekable();
        let mut ends: SmallVec<[usize; BATCH]> = SmallVec::new();
        for slot in slots {
            match outbounds.next_if(|(at, _)| at == slot) {
                Some((_, outbound)) => outbound.join(&mut joined),
                None => self.join_frames(*slot, &mut joined),
            }
            ends.push(joined.len());
        }
        let mut sent: SmallVec<[bool; BATCH]> = SmallVec::new();
        let mut sends: SmallVec<[(BorrowedFd<'_>, &[u8]); BATCH]> = SmallVec::new();
        let mut begin = 0;
        for (slot, end) in slots.iter().zip(ends) {
            let own = &joined[std::mem::replace(&mut begin, end)..end];
            let connection = self.connections.get(*slot as usize);
            let send = match own {
                [] => connection.and_then(|connection| self.only_frame(connection)),
                _ => connection.and_then(free_socket).map(|fd| (fd, own)),
            };
            sent.push(send.is_some());
            sends.extend(send);
        }
        uring.send_all(&sends);
        drop(sends);
        uring.joined = joined;
        sent
    }

    /// Appends the messages that a connection without an adapter waits for, if there are several short ones.
    fn join_frames(&self, slot: u32, joined: &mut Vec<u8>) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let bits = connection.marks.bits();
        if bits.count_ones() < 2 || connection.adapter.is_some() || free_socket(connection).is_none() {
            return;
        }
        let begin = joined.len();
        for place in self.fanout.ring.in_order(bits) {
            let Some(frame) = self.fanout.ring.frame(place) else { continue };
            let bytes = frame.dispatch().encoded(connection.framing);
            if joined.len() - begin + bytes.len() > JOINED_BYTES {
                return joined.truncate(begin);
            }
            joined.extend_from_slice(bytes);
        }
    }

    /// The only message that a connection waits for, if it can be sent now.
    fn only_frame<'a>(&'a self, connection: &'a Connection) -> Option<(BorrowedFd<'a>, &'a [u8])> {
        let place = connection.marks.only().filter(|_| connection.adapter.is_none())?;
        let fd = free_socket(connection)?;
        let frame = self.fanout.ring.frame(place)?;
        Some((fd, frame.dispatch().encoded(connection.framing)))
    }
}

/// The descriptor of a connection that can be sent something now.
fn free_socket(connection: &Connection) -> Option<BorrowedFd<'_>> {
    let is_recipient = connection.is_alive() && connection.attachment.session.is_some();
    connection.socket.idle_descriptor().filter(|_| is_recipient)
}
