//! Integers with an N-bit prefix (RFC 7541 §5.1). An integer of more than 28 bits beyond its prefix is
//! rejected: no table, string or index here is that large.

use super::error::HpackError;

/// Appends `value` after the pattern bits of `first`, whose low `prefix_bits` bits are zero.
#[inline]
pub(super) fn push(out: &mut Vec<u8>, first: u8, prefix_bits: u32, value: usize) {
    let prefix_max = (1usize << prefix_bits) - 1;
    if value < prefix_max {
        out.push(first | value as u8);
        return;
    }
    out.push(first | prefix_max as u8);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Removes an integer from the front of `block`, which starts with the byte that holds its prefix.
pub(super) fn take(block: &mut &[u8], prefix_bits: u32) -> Result<usize, HpackError> {
    let (&first, mut rest) = block.split_first().ok_or(HpackError("the block ends within an integer"))?;
    let prefix_max = (1usize << prefix_bits) - 1;
    let mut value = usize::from(first) & prefix_max;
    if value == prefix_max {
        let mut shift = 0;
        loop {
            let (&byte, after) = rest.split_first().ok_or(HpackError("the block ends within an integer"))?;
            if shift > 21 {
                return Err(HpackError("an integer is too large"));
            }
            rest = after;
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *block = rest;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prefix_bits: u32, value: usize, bytes: &[u8]) {
        let mut out = Vec::new();
        push(&mut out, 0, prefix_bits, value);
        assert_eq!(out, bytes);
        let mut block = bytes;
        assert_eq!(take(&mut block, prefix_bits), Ok(value));
        assert!(block.is_empty());
        for end in 0..bytes.len() {
            assert!(take(&mut &bytes[..end], prefix_bits).is_err());
        }
    }

    /// RFC 7541 appendix C.1.
    #[test]
    fn examples_of_the_rfc() {
        check(5, 10, &[0x0a]);
        check(5, 1337, &[0x1f, 0x9a, 0x0a]);
        check(8, 42, &[0x2a]);
    }

    #[test]
    fn values_at_the_boundaries_of_the_prefix() {
        check(5, 30, &[30]);
        check(5, 31, &[31, 0]);
        check(7, 126, &[126]);
        check(7, 127, &[127, 0]);
        check(7, 127 + 128, &[127, 0x80, 1]);
    }

    #[test]
    fn overflow_and_endless_zeros_are_rejected() {
        assert!(take(&mut &[0x1f, 0xff, 0xff, 0xff, 0xff, 0x7f][..], 5).is_err());
        assert!(take(&mut &[0x1f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00][..], 5).is_err());
        assert_eq!(take(&mut &[0x1f, 0xff, 0xff, 0xff, 0x7f][..], 5), Ok((1 << 28) - 1 + 31));
    }
}
