//! Event streams under gzip (RFC 1952) for clients that request it, without a compressor for each.
//!
//! Each piece is deflated from an empty window and ends with a sync flush (RFC 1951 §3.2.4): it begins and ends at a
//! byte and refers to nothing before it, so any sequence of pieces is a valid stream. A message is compressed once for
//! all its streams. A stream's own state is its checksum and length, eight bytes: those of a piece are added in
//! constant time ([`Trailer::add`]).
//!
//! The price is the ratio: redundancy between messages is not used. A page of a backlog is one piece.

use std::collections::HashMap;

use bytes::Bytes;
use flate2::Crc;

use crate::wire::deflate::deflate;

/// RFC 1952 §2.3: deflate, no flags, no time, an unknown system.
pub(crate) const HEAD: [u8; 10] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF];
/// A last block without content (RFC 1951 §3.2.6).
const LAST_BLOCK: [u8; 2] = [0x03, 0x00];
/// A compressed piece.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    pub(crate) bytes: Bytes,
    /// Of the plain bytes.
    crc: u32,
    len: u32,
    /// Moves a checksum by so many bytes.
    shift: u32,
}

impl Packed {
    pub(crate) fn of(plain: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(plain);
        Self { bytes: deflate(plain).into(), crc: crc.sum(), len: crc.amount(), shift: shift(plain.len()) }
    }
}

/// The end of a stream (RFC 1952 §2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Trailer {
    crc: u32,
    /// Modulo 2^32.
    len: u32,
}

impl Trailer {
    /// Adds a piece.
    pub(crate) fn add(&mut self, piece: &Packed) {
        self.crc = multiply(piece.shift, self.crc) ^ piece.crc;
        self.len = self.len.wrapping_add(piece.len);
    }

    /// The last bytes of the stream.
    pub(crate) fn end(self) -> [u8; 10] {
        let mut end = [0; 10];
        end[..2].copy_from_slice(&LAST_BLOCK);
        end[2..6].copy_from_slice(&self.crc.to_le_bytes());
        end[6..].copy_from_slice(&self.len.to_le_bytes());
        end
    }
}

/// The trailers of event streams under gzip, by slot.
#[derive(Default)]
pub(crate) struct Trailers(pub(crate) HashMap<u32, Trailer>);

impl Trailers {
    pub(crate) fn begin(&mut self, slot: u32) {
        self.0.insert(slot, Trailer::default());
    }

    /// A piece was sent on the stream, if the slot has one.
    pub(crate) fn add(&mut self, slot: u32, piece: &Packed) {
        if let Some(trailer) = self.0.get_mut(&slot) {
            trailer.add(piece);
        }
    }

    /// The stream ends with these bytes.
    pub(crate) fn end(&mut self, slot: u32) -> Option<[u8; 10]> {
        self.0.remove(&slot).map(Trailer::end)
    }
}

/// The polynomial of CRC-32, its highest power first.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// The product of two polynomials modulo [`POLYNOMIAL`].
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut mask, mut product) = (1 << 31, 0);
    while mask != 0 {
        if a & mask != 0 {
            product ^= b;
        }
        b = if b & 1 == 0 { b >> 1 } else { b >> 1 ^ POLYNOMIAL };
        mask >>= 1;
    }
    product
}

/// x to the power of 2 to the power of the index.
const POWERS: [u32; 32] = {
    let mut powers = [1 << 30; 32];
    let mut at = 1;
    while at < 32 {
        powers[at] = multiply(powers[at - 1], powers[at - 1]);
        at += 1;
    }
    powers
};

/// x to the power of the number of bits in so many bytes.
fn shift(bytes: usize) -> u32 {
    let (mut product, mut rest, mut power) = (1 << 31, bytes, 3);
    while rest > 0 {
        if rest & 1 == 1 {
            product = multiply(POWERS[power & 31], product);
        }
        (rest, power) = (rest >> 1, power + 1);
    }
    product
}

/// Whether an `Accept-Encoding` names gzip (RFC 9110 §12.5.3). `*` does not: streams are compressed only on request.
pub(crate) fn is_asked_for(accept: &str) -> bool {
    accept.split(',').any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default();
        let named = coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip");
        let refused = |part: &str| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0))
        };
        named && !parts.any(refused)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::wire::deflate::OVERHEAD_BYTES;

    #[test]
    fn any_sequence_of_pieces_is_one_stream() {
        let random: Vec<u8> = (0..70_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let pieces: [&[u8]; 6] = [
            b"event: msg\ndata: {}\n\n",
            b"",
            b"event: msg\ndata: {}\n\n",
            &random,
            &[b'x'; 200_000],
            b": k\n\n",
        ];
        let packed = pieces.map(Packed::of);
        for order in [&[0, 1, 2, 3, 4, 5][..], &[5, 5, 0, 3, 0], &[]] {
            let (mut stream, mut trailer, mut expected) = (HEAD.to_vec(), Trailer::default(), Vec::new());
            for at in order {
                stream.extend_from_slice(&packed[*at].bytes);
                trailer.add(&packed[*at]);
                expected.extend_from_slice(pieces[*at]);
                // Each piece can be read as soon as it arrives.
                let mut so_far = vec![0; expected.len()];
                let mut reader = flate2::read::GzDecoder::new(&stream[..]);
                reader.read_exact(&mut so_far).expect("it is all there");
                assert!(so_far == expected);
            }
            stream.extend_from_slice(&trailer.end());
            let mut read = Vec::new();
            flate2::read::GzDecoder::new(&stream[..]).read_to_end(&mut read).expect("checksum and length");
            assert!(read == expected);
        }
        assert!(packed[4].bytes.len() < 1_000 && packed[3].bytes.len() < random.len() + OVERHEAD_BYTES);
    }

    #[test]
    fn gzip_has_to_be_named() {
        for yes in ["gzip", "br, gzip", "deflate,GZIP;q=0.5", "x-gzip", "gzip; q=1.0, identity"] {
            assert!(is_asked_for(yes), "{yes}");
        }
        for no in ["", "br", "*", "gzip;q=0", "gzip; q=0.000", "gzipped", "identity"] {
            assert!(!is_asked_for(no), "{no}");
        }
    }
}
