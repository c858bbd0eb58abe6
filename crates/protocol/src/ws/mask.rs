//! Masking of payloads (RFC 6455 §5.3), eight bytes at a time. Masking and unmasking are the same in-place
//! operation. A payload may arrive in pieces: each call states its offset in the payload, and the key is
//! rotated to match.

/// Applies `mask` to bytes that start `offset` bytes into their frame's payload.
pub(super) fn apply(mask: [u8; 4], offset: usize, bytes: &mut [u8]) {
    let [a, b, c, d] = match offset % 4 {
        0 => mask,
        1 => [mask[1], mask[2], mask[3], mask[0]],
        2 => [mask[2], mask[3], mask[0], mask[1]],
        _ => [mask[3], mask[0], mask[1], mask[2]],
    };
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    for (byte, key) in tail.iter_mut().zip(word.to_ne_bytes()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_the_formula_of_the_rfc(
            mask: [u8; 4],
            offset in 0usize..9,
            bytes in proptest::collection::vec(any::<u8>(), 0..70),
        ) {
            let mut masked = bytes.clone();
            super::apply(mask, offset, &mut masked);
            let expected: Vec<u8> =
                bytes.iter().enumerate().map(|(i, byte)| byte ^ mask[(offset + i) % 4]).collect();
            prop_assert_eq!(masked, expected);
        }
    }
}
