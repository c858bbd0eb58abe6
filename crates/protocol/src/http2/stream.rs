//! One request and what came of its response so far, and the map of those that are open.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;

use super::connection::Key;
use super::headers::Headers;

/// By stream id.
pub(super) type Streams = HashMap<u32, Stream, BuildHasherDefault<IdHasher>>;

/// The ids are ours, so nobody can make them collide: a multiplication spreads them enough.
#[derive(Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        // 2^64 divided by the golden ratio; the map looks at the highest and the lowest bits.
        let spread = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) key: Key,
    /// What the peer lets us send; less than nothing after it lowered the initial window (RFC 9113 §6.9.2).
    pub(super) send_window: i32,
    /// What we let the peer send.
    pub(super) receive_window: i32,
    /// The end of the request's body that no window had room for. END_STREAM was sent if it is empty.
    pub(super) unsent: Bytes,
    /// Whether it waits in the queue for the connection's window.
    pub(super) queued: bool,
    /// Only of a response that did not come in one frame.
    pub(super) response: Option<Box<Response>>,
}

/// A response whose end is still to come.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) headers: Headers,
    pub(super) content_length: Option<u64>,
    pub(super) body: Vec<u8>,
}

// A connection has up to thousands of them.
const _: () = assert!(size_of::<Stream>() <= 64);
