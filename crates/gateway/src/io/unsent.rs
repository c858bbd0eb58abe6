//! Bytes that the kernel did not take of one connection: allocated when its socket is full, freed when they are sent.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

/// Slices of one write: the kernel takes 1,024 (IOV_MAX), a full socket far fewer.
const SLICES: usize = 64;

/// Unsent bytes, in order. Every chunk ends at the end of a frame.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    chunks: VecDeque<Bytes>,
    /// The sum of the chunks' lengths.
    bytes: usize,
    /// The first chunk lacks its beginning, which was sent.
    begun: bool,
    /// When bytes were last taken.
    pub(crate) taken_tick: u32,
}

impl Unsent {
    pub(crate) fn new(now_tick: u32) -> Self {
        Self { taken_tick: now_tick, ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// The rest of a frame whose beginning was sent.
    pub(crate) fn push_begun(&mut self, chunk: Bytes) {
        self.begun = self.chunks.is_empty() && !chunk.is_empty();
        self.push(chunk);
    }

    /// Writes as much as the socket takes. Returns how much.
    pub(crate) fn write_to(
        &mut self,
        mut write: impl FnMut(&mut [IoSlice<'_>]) -> io::Result<usize>,
        now_tick: u32,
    ) -> io::Result<usize> {
        let mut total = 0;
        while !self.is_empty() {
            let mut slices: SmallVec<[IoSlice<'_>; SLICES]> =
                self.chunks.iter().take(SLICES).map(|chunk| IoSlice::new(chunk)).collect();
            let offered: usize = slices.iter().map(|slice| slice.len()).sum();
            let written = write(&mut slices)?;
            drop(slices);
            self.advance(written);
            total += written;
            if written < offered {
                break;
            }
        }
        if total > 0 {
            self.taken_tick = now_tick;
        }
        Ok(total)
    }

    /// Discards queued frames except a partially written one, so that a close frame can follow.
    pub(crate) fn cut(&mut self) {
        self.chunks.truncate(usize::from(self.begun));
        self.bytes = self.chunks.iter().map(Bytes::len).sum();
    }

    fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(first) = self.chunks.front_mut() {
            if count < first.len() {
                self.begun |= count > 0;
                first.advance(count);
                return;
            }
            count -= first.len();
            self.begun = false;
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarding_keeps_a_partially_written_frame() {
        let mut unsent = Unsent::new(0);
        unsent.push_begun(Bytes::from_static(b"llo"));
        unsent.push(Bytes::from_static(b"world"));
        unsent.cut();
        assert_eq!(unsent.bytes(), 3);
        unsent.advance(3);
        unsent.push(Bytes::from_static(b"next"));
        unsent.cut();
        assert!(unsent.is_empty(), "nothing of it was sent");
    }

    #[test]
    fn advancing_crosses_chunks() {
        let mut unsent = Unsent::new(0);
        for chunk in ["abc", "de", "fgh"] {
            unsent.push(Bytes::from_static(chunk.as_bytes()));
        }
        unsent.advance(6);
        assert_eq!(unsent.bytes(), 2);
        assert_eq!(unsent.chunks.front().map(|chunk| &chunk[..]), Some(&b"gh"[..]));
    }
}
