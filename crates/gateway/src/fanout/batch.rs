//! Packets of a conversation that wait for one socket.
//!
//! A packet is a small head of the connection's own and a rest that all connections of the protocol share; all packets
//! of a batch leave in one `writev`, or together with those of other connections (`uring`). The shard fills a batch
//! with what the conversation returns for each message, and writes it.
//!
//! Invariant: bytes that the socket does not take are kept in whole packets, so that unsent packets can be discarded.

use std::io::{self, IoSlice};

use bytes::Bytes;
use noroshi_types::NotificationId;
use smallvec::SmallVec;

use crate::io::socket::Socket;
use crate::wire::deflate::DeflateTotals;

/// Bytes prepared before the socket is asked: about what it takes at once.
pub(crate) const BATCH_BYTES: usize = 64 << 10;

/// Bytes that may be copied into one piece to be sent together with others. Larger packets are rare and are sent
/// separately.
#[cfg(feature = "io-uring")]
pub(crate) const JOINED_BYTES: usize = 4 << 10;

/// Packets that wait for one socket.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) heads: Vec<u8>,
    /// Where each packet's head ends, and its rest.
    pub(crate) packets: SmallVec<[(usize, Bytes); 8]>,
    /// Bytes of all rests.
    shared_bytes: usize,
    pub(crate) totals: DeflateTotals,
    /// Messages that count as acknowledged once they are written or passed over.
    pub(crate) acknowledged: Vec<NotificationId>,
}

impl Batch {
    pub(crate) fn bytes(&self) -> usize {
        self.heads.len() + self.shared_bytes
    }

    pub(crate) fn push(&mut self, shared: Bytes) {
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

    /// Appends all packets in order.
    #[cfg(feature = "io-uring")]
    fn join(&self, to: &mut Vec<u8>) {
        for (head, shared) in self.heads() {
            to.extend_from_slice(head);
            to.extend_from_slice(shared);
        }
    }

    /// Writes as much as the socket takes and keeps the rest. Returns how much it took. `written`: how much it took
    /// already, where the batch was sent together with others.
    pub(crate) fn write(
        &mut self,
        socket: &mut Socket,
        now_tick: u32,
        written: Option<usize>,
    ) -> io::Result<usize> {
        let mut taken = written.unwrap_or(0);
        if !socket.has_unsent() && written.is_none() {
            let mut slices: SmallVec<[IoSlice<'_>; 16]> = SmallVec::new();
            for (head, shared) in self.heads() {
                slices.extend((!head.is_empty()).then(|| IoSlice::new(head)));
                slices.extend((!shared.is_empty()).then(|| IoSlice::new(shared)));
            }
            taken = socket.write(&mut slices)?;
        }
        if taken < self.bytes() {
            for (packet, begun) in self.left(taken) {
                socket.keep(packet, begun, now_tick);
            }
        }
        self.clear();
        Ok(taken)
    }

    /// Passes each whole packet to `queue`, for a session that polls.
    pub(crate) fn queue(&mut self, mut queue: impl FnMut(Bytes)) {
        for (packet, _) in self.left(0) {
            queue(packet);
        }
        self.clear();
    }

    /// The packets that were not `taken` as a whole, and how much of each was. One chunk a packet, so that a packet
    /// that is not partially written can be discarded.
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

    fn clear(&mut self) {
        self.heads.clear();
        self.packets.clear();
        self.shared_bytes = 0;
    }
}

/// Packets for a connection, and what its conversation reports about them.
#[derive(Default)]
pub(crate) struct Outbound {
    pub(crate) batch: Batch,
    /// The socket is broken.
    pub(crate) failed: bool,
}

#[cfg(feature = "io-uring")]
impl Outbound {
    /// Appends the packets, unless they are too long to be copied.
    pub(crate) fn join(&self, to: &mut Vec<u8>) {
        if !self.failed && self.batch.bytes() <= JOINED_BYTES {
            self.batch.join(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_packets_stay_whole() {
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
