//! The Huffman code of header strings (RFC 7541 §5.2, appendix B). It is canonical: codes of one length are
//! consecutive in symbol order, so the table of lengths defines the code. Codes of up to eight bits, which
//! cover nearly all header bytes, take one table look-up; longer codes are found by length.

use super::error::HpackError;

/// Appendix B: the length in bits of each byte's code, and of EOS.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, // 0
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, // 16
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, // ' '
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, // '0'
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, // '@'
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, // 'P'
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, // '`'
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, // 'p'
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 128
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, // 144
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, // 160
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, // 176
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 192
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, // 208
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, // 224
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, // 240
    30, // EOS
];
const EOS: u16 = 256;
const LENGTH_MAX: usize = 30;

struct Code {
    /// Indexed by the next eight bits: symbol and length of a code of at most eight bits, or length 0.
    short: [(u8, u8); 256],
    /// Indexed by length: codes below this, left-aligned to 32 bits, have that length or less.
    end: [u64; LENGTH_MAX + 1],
    /// Indexed by length: its first code, and the start of its symbols in `symbols`.
    first: [(u32, u16); LENGTH_MAX + 1],
    /// In the order of their codes.
    symbols: [u16; 257],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut code = Code {
        short: [(0, 0); 256],
        end: [0; LENGTH_MAX + 1],
        first: [(0, 0); LENGTH_MAX + 1],
        symbols: [0; 257],
    };
    let (mut next, mut count, mut length) = (0u32, 0usize, 1usize);
    while length <= LENGTH_MAX {
        next <<= 1;
        code.first[length] = (next, count as u16);
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                code.symbols[count] = symbol as u16;
                count += 1;
                if length <= 8 {
                    let from = (next as usize) << (8 - length);
                    let mut i = from;
                    while i < from + (1 << (8 - length)) {
                        code.short[i] = (symbol as u8, length as u8);
                        i += 1;
                    }
                }
                next += 1;
            }
            symbol += 1;
        }
        code.end[length] = (next as u64) << (32 - length);
        length += 1;
    }
    code
}

/// Appends the decoded bytes: at most 8/5 of the input, as the shortest code has five bits.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    // The next bits, left-aligned; the first `bits` are valid, the others are zero.
    let (mut next, mut bits) = (0u64, 0u32);
    let mut rest = coded;
    out.reserve(coded.len() + coded.len() / 2);
    loop {
        match rest.split_first_chunk::<4>() {
            Some((word, after)) if bits <= 32 => {
                next |= u64::from(u32::from_be_bytes(*word)) << (32 - bits);
                (bits, rest) = (bits + 32, after);
            }
            Some(_) => {}
            None => {
                while let (true, Some((&byte, after))) = (bits <= 56, rest.split_first()) {
                    next |= u64::from(byte) << (56 - bits);
                    (bits, rest) = (bits + 8, after);
                }
            }
        }
        // No code is longer than 30 bits, so with more than 29 available the next code is complete.
        let floor = if rest.is_empty() { 0 } else { 29 };
        while bits > floor {
            // §5.2: the padding is shorter than a byte and consists of the first bits of EOS, which are ones.
            if bits < 8 && next >> (64 - bits) == (1 << bits) - 1 {
                return Ok(());
            }
            let (symbol, length) = match CODE.short[(next >> 56) as usize] {
                (_, 0) => long((next >> 32) as u32),
                (symbol, length) => (u16::from(symbol), u32::from(length)),
            };
            if length > bits || symbol == EOS {
                return Err(HpackError("invalid Huffman padding"));
            }
            out.push(symbol as u8);
            next <<= length;
            bits -= length;
        }
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Finds the code of more than eight bits at the left of `next`. Returns its symbol and length.
#[cold]
fn long(next: u32) -> (u16, u32) {
    let mut length = 9;
    // Stops at EOS at the latest: no 32 bits exceed the longest codes.
    while length < LENGTH_MAX && u64::from(next) >= CODE.end[length] {
        length += 1;
    }
    let (first, at) = CODE.first[length];
    let code = next >> (32 - length);
    (CODE.symbols[usize::from(at) + (code - first) as usize], length as u32)
}

/// The inverse of [`decode`], for tests only.
#[cfg(test)]
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let (mut next, mut bits) = (0u64, 0usize);
    for &byte in bytes {
        let length = usize::from(LENGTHS[usize::from(byte)]);
        let (first, at) = CODE.first[length];
        let place = CODE.symbols[usize::from(at)..].iter().position(|&symbol| symbol == u16::from(byte));
        next = next << length | u64::from(first + place.expect("every byte has a code") as u32);
        bits += length;
        while bits >= 8 {
            bits -= 8;
            out.push((next >> bits) as u8);
        }
    }
    if bits > 0 {
        out.push((next << (8 - bits)) as u8 | (0xff >> bits));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn code_is_complete() {
        let sum: f64 = LENGTHS.iter().map(|&length| (-f64::from(length)).exp2()).sum();
        assert!((sum - 1.0).abs() < f64::EPSILON);
        assert_eq!(CODE.end[LENGTH_MAX], 1 << 32);
        assert_eq!(CODE.symbols[256], EOS);
    }

    /// Codes of appendix B, one of each kind.
    #[test]
    fn codes_match_the_rfc() {
        let check = |byte: u8, code: u32, length: usize| {
            let mut out = Vec::new();
            encode(&[byte], &mut out);
            let whole = out.iter().fold(0u64, |whole, &byte| whole << 8 | u64::from(byte));
            assert_eq!(whole >> (out.len() * 8 - length), u64::from(code), "{byte}");
            assert_eq!(decoded(&out), Ok(vec![byte]));
        };
        check(b'0', 0x0, 5);
        check(b'a', 0x3, 5);
        check(b':', 0x5c, 7);
        check(b'X', 0xfc, 8);
        check(b'?', 0x3fc, 10);
        check(0, 0x1ff8, 13);
        check(b'\\', 0x7fff0, 19);
        check(b'\n', 0x3fff_fffc, 30);
        check(249, 0xfff_fffe, 28);
    }

    #[test]
    fn padding_must_be_ones_and_shorter_than_a_byte() {
        assert_eq!(decoded(&[]), Ok(vec![]));
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
        assert!(decoded(&[0b0001_1110]).is_err());
        assert!(decoded(&[0b0001_1000]).is_err());
        assert!(decoded(&[0b0001_1111, 0xff]).is_err());
        assert!(decoded(&[0xff]).is_err());
        // EOS itself, with its own padding.
        assert!(decoded(&[0xff, 0xff, 0xff, 0xff]).is_err());
        // EOS in the middle of a long string.
        assert!(decoded(&[0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut coded = Vec::new();
            encode(&bytes, &mut coded);
            prop_assert_eq!(decoded(&coded), Ok(bytes));
        }

        #[test]
        fn decoded_input_encodes_to_the_same_bytes(coded in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(bytes) = decoded(&coded) {
                let mut again = Vec::new();
                encode(&bytes, &mut again);
                prop_assert_eq!(again, coded);
            }
        }
    }
}
