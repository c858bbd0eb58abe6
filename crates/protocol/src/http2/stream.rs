//! One request with its partial response, and the map of open streams.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;

use super::headers::Headers;

/// The caller's identifier of a request, unique among open requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// By stream id.
pub(super) type Streams = HashMap<u32, Stream, BuildHasherDefault<IdHasher>>;

/// We choose the ids, so peers cannot force collisions: a multiplication spreads them enough.
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
        // 2^64 divided by the golden ratio; the map uses the highest and lowest bits.
        let spread = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) key: Key,
    /// Bytes that the peer lets us send; negative after it lowered the initial window (RFC 9113 §6.9.2).
    pub(super) send_window: i32,
    /// Bytes that we let the peer send.
    pub(super) receive_window: i32,
    /// The end of the request's body that exceeds the windows. Empty once END_STREAM was sent.
    pub(super) unsent: Bytes,
    /// Whether the stream is in the queue for the connection window.
    pub(super) queued: bool,
    /// Present only if the response needs more than one frame.
    pub(super) response: Option<Box<Response>>,
}

/// An incomplete response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) headers: Headers,
    pub(super) content_length: Option<u64>,
    pub(super) body: Vec<u8>,
}

// A connection has up to thousands of streams.
const _: () = assert!(size_of::<Stream>() <= 64);
