//! Compressed messages on WebSockets (RFC 7692), without a compressor for each connection.
//!
//! Each message is compressed from an empty window, so a message to many connections is compressed once
//! ([`crate::wire::dispatch::Dispatch::deflated`]): a whole frame where all get the same, or the rest behind a head of
//! the connection's own, which precedes it in a stored block (RFC 7692 §7.2.3.5 allows any number of blocks):
//! ```text
//!   │ header │ 42 17 │ ["notification",{…}] │      │ header' │ stored: 42 17 │ ["notification",{…}] compressed │
//!   └─ its own ──────┴──────── shared ──────┘  ──► └─ its own ───────────────┴────────── shared ────────────────┘
//! ```
//! A message stays as it is if it is short, if compression saves nothing, or if it is longer than the window that the
//! client allows the server: within that window nothing can refer too far back.
//!
//! Each thread has one compressor, also for [`crate::wire::gzip`].

use std::cell::RefCell;

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use noroshi_protocol::ws;
use noroshi_protocol::ws::deflate::FLUSH_END;
use noroshi_protocol::ws::extension::WINDOW_BITS_MAX;
use noroshi_types::limits;

use crate::wire::Framing;

/// What a sync flush and the head of a stored block add, with a reserve.
pub(crate) const OVERHEAD_BYTES: usize = 64;

thread_local! {
    /// About 300 KiB, once for each thread that compresses.
    static DEFLATER: RefCell<Option<Box<Compress>>> = const { RefCell::new(None) };
}

/// Bytes before and after compression, of messages written to connections that agreed on it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeflateTotals {
    pub(crate) plain_bytes: u64,
    pub(crate) sent_bytes: u64,
}

impl DeflateTotals {
    pub(crate) fn add(&mut self, plain_bytes: usize, sent_bytes: usize) {
        self.plain_bytes += plain_bytes as u64;
        self.sent_bytes += sent_bytes as u64;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.plain_bytes += other.plain_bytes;
        self.sent_bytes += other.sent_bytes;
    }
}

/// Compresses from an empty window and ends with a sync flush (RFC 1951 §3.2.4): at a byte, and more may follow.
pub(crate) fn deflate(plain: &[u8]) -> Vec<u8> {
    DEFLATER.with_borrow_mut(|deflater| {
        // At these lengths a higher level takes up to five times as long and saves a hundredth (docs/performance.md).
        let deflater = deflater.get_or_insert_with(|| Box::new(Compress::new(Compression::fast(), false)));
        deflater.reset();
        let mut out = Vec::with_capacity(plain.len() + OVERHEAD_BYTES);
        // A call that leaves room has written everything, including the flush.
        loop {
            let rest = &plain[usize::try_from(deflater.total_in()).unwrap_or(plain.len()).min(plain.len())..];
            let compressed = deflater.compress_vec(rest, &mut out, FlushCompress::Sync);
            compressed.expect("a compressor that was reset takes any input");
            if out.len() < out.capacity() {
                return out;
            }
            out.reserve(out.len().max(OVERHEAD_BYTES));
        }
    })
}

/// The compressed form of what many connections get, made once, and its plain form, by whose address it is found.
pub(crate) struct Compressed {
    plain: Bytes,
    packed: Option<Bytes>,
}

impl Compressed {
    /// Compresses a whole frame, or the rest behind heads.
    pub(crate) fn of(plain: &Bytes, is_frame: bool) -> Self {
        let packed = if is_frame { pack_frame(plain) } else { pack_payload(plain).map(Bytes::from) };
        Self { plain: plain.clone(), packed }
    }

    pub(crate) fn is_of(&self, plain: &Bytes) -> bool {
        self.plain.as_ptr() == plain.as_ptr() && self.plain.len() == plain.len()
    }

    /// `None`: it is not shorter.
    pub(crate) fn packed(&self) -> Option<&Bytes> {
        self.packed.as_ref()
    }
}

/// The payload of a message (RFC 7692 §7.2.1), if it is shorter.
fn pack_payload(plain: &[u8]) -> Option<Vec<u8>> {
    let mut packed = deflate(plain);
    packed.truncate(packed.len().checked_sub(FLUSH_END.len())?);
    packed.shrink_to_fit();
    (packed.len() < plain.len()).then_some(packed)
}

fn pack_frame(plain: &[u8]) -> Option<Bytes> {
    let (opcode, head_bytes) = ws::frame_head(plain)?;
    let payload = pack_payload(&plain[head_bytes..])?;
    let mut frame = Vec::with_capacity(payload.len() + head_bytes);
    ws::push_deflated_head(&mut frame, opcode, payload.len());
    frame.extend_from_slice(&payload);
    Some(frame.into())
}

/// Whether a frame is worth compressing, and may be compressed for a client with such a window.
pub(crate) fn pays(frame_bytes: usize, window_bits: u8) -> bool {
    frame_bytes >= limits::DEFLATE_BYTES_MIN
        && (window_bits >= WINDOW_BITS_MAX || frame_bytes <= 1 << window_bits)
}

/// The frame for one connection.
pub(crate) fn packed(framing: Framing, frame: Bytes) -> Bytes {
    match framing {
        Framing::Deflated(window_bits) if pays(frame.len(), window_bits) => {
            pack_frame(&frame).unwrap_or(frame)
        }
        _ => frame,
    }
}

#[cfg(test)]
mod tests {
    use noroshi_protocol::ws::{Inflater, Input, Opcode};

    use super::*;
    use crate::wire::dispatch::Dispatch;

    /// The message that a client reads from a frame, and whether it was compressed.
    fn read(frame: &[u8]) -> (Vec<u8>, bool) {
        let (mut said, mut inflater) = (Vec::new(), Inflater::default());
        let terms = ws::Terms { role: ws::Role::Client, deflates: true, message_bytes_max: 1 << 20 };
        let mut on = |input: Input<'_>| {
            let (input, deflated) = match input {
                Input::Deflated(message) => (inflater.inflate(message, 1 << 20).expect("valid"), true),
                input => (input, false),
            };
            match input {
                Input::Text(text) => said.push((text.as_bytes().to_vec(), deflated)),
                Input::Binary(bytes) => said.push((bytes.to_vec(), deflated)),
                input => panic!("{input:?}"),
            }
            std::ops::ControlFlow::Continue(())
        };
        ws::Decoder::new().feed_with_terms(terms, &mut frame.to_vec(), &mut on).expect("a frame");
        assert_eq!(said.len(), 1, "one whole frame");
        said.remove(0)
    }

    fn words(bytes: usize) -> Vec<u8> {
        b"nothing new under the sun, ".iter().copied().cycle().take(bytes).collect()
    }

    #[test]
    fn a_frame_of_any_length_is_compressed() {
        for bytes in [300, 70_000] {
            let plain = ws::text_frame(&words(bytes));
            let frame = packed(Framing::Deflated(15), plain.clone());
            assert!(frame.len() * 3 < plain.len());
            assert_eq!(read(&frame), (words(bytes), true));
        }
    }

    #[test]
    fn incompressible_frames_stay_plain() {
        let mut state = 1_u32;
        let mut drawn = || {
            state ^= state << 13; // xorshift
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 11) as u8
        };
        let noise: Vec<u8> = (0..600).map(|_| drawn()).collect();
        let is_plain = |framing, frame: Bytes| packed(framing, frame.clone()) == frame;
        assert!(is_plain(Framing::Deflated(15), ws::frame(Opcode::Binary, &noise)));
        assert!(is_plain(Framing::Deflated(15), ws::text_frame(&words(limits::DEFLATE_BYTES_MIN - 5))));
        assert!(is_plain(Framing::WebSocket, ws::text_frame(&words(1_000))));
        assert!(!is_plain(Framing::Deflated(15), ws::text_frame(&words(limits::DEFLATE_BYTES_MIN - 4))));
    }

    /// RFC 7692 §7.1.2.1: within the window nothing can refer too far back.
    #[test]
    fn a_message_longer_than_the_clients_window_stays_plain() {
        for bits in 9..15 {
            let most = 1 << bits;
            let frame = |bytes: usize| ws::text_frame(&words(bytes - 4));
            assert!(read(&packed(Framing::Deflated(bits), frame(most))).1, "{bits}");
            assert!(!read(&packed(Framing::Deflated(bits), frame(most + 1))).1, "{bits}");
        }
    }

    #[test]
    fn shared_bytes_are_compressed_once() {
        let dispatch = Dispatch::for_tests();
        let shared = Bytes::from(words(1_000));
        for own in [&b""[..], b"421", b"42184"] {
            let mut heads = b"before".to_vec();
            ws::push_frame_head(&mut heads, Opcode::Text, own.len() + shared.len());
            heads.extend_from_slice(own);
            let rest = dispatch.pack(15, &mut heads, 6, shared.clone());
            assert_eq!(rest.as_ptr(), dispatch.deflated(&shared, false).expect("shorter").as_ptr());
            assert_eq!(&heads[..6], b"before");
            assert_eq!(read(&[&heads[6..], &rest].concat()), ([own, &shared].concat(), true));
        }
        let frame = ws::text_frame(&words(1_000));
        let mut heads = Vec::new();
        let rest = dispatch.pack(15, &mut heads, 0, frame.clone());
        assert!(heads.is_empty());
        assert_eq!(read(&rest), (words(1_000), true));
    }

    #[test]
    fn frames_beyond_the_cache_stay_plain() {
        let dispatch = Dispatch::for_tests();
        let frames: Vec<Bytes> = (0..40).map(|_| ws::text_frame(&words(1_000))).collect();
        let packed = frames.iter().filter(|frame| dispatch.deflated(frame, true).is_some()).count();
        assert!((12..40).contains(&packed), "{packed}");
        for frame in &frames {
            assert_eq!(read(&dispatch.pack(15, &mut Vec::new(), 0, frame.clone())).0, words(1_000));
        }
    }
}
