//! The values of the directory as bytes; `script` documents their layout.

use smallvec::SmallVec;

use crate::{Epoch, Holder, SessionKey};

const DEVICE_BYTES: usize = 16;
const USER_ENTRY_BYTES: usize = 24;

pub(crate) fn epoch_bytes(epoch: Epoch) -> [u8; 8] {
    epoch.0.to_be_bytes()
}

/// Identifies a device in a user's entry: two of 256 devices collide with a probability of 1 in 10^15.
pub(crate) fn device_tag(device: SessionKey) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = device.0.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

pub(crate) fn joined(parts: &[[u8; 8]]) -> Vec<u8> {
    parts.concat()
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.first_chunk::<8>().copied()?))
}

pub(crate) fn generation(bytes: &[u8]) -> Option<u64> {
    (bytes.len() == 8).then(|| number(bytes)).flatten()
}

pub(crate) fn holder(bytes: &[u8]) -> Option<Holder> {
    if bytes.len() != DEVICE_BYTES {
        return None;
    }
    Some(Holder { epoch: Epoch(number(bytes)?), generation: number(&bytes[8..])? })
}

/// The distinct epochs in the value of a device or a user. Bytes of an unknown form hold none.
pub(crate) fn epochs(bytes: &[u8]) -> SmallVec<[Epoch; 2]> {
    let mut found = SmallVec::new();
    let mut add = |bytes: &[u8]| match number(bytes).map(Epoch) {
        Some(epoch) if !found.contains(&epoch) => found.push(epoch),
        _ => {}
    };
    if bytes.len() == DEVICE_BYTES {
        add(bytes);
    } else if bytes.len().is_multiple_of(USER_ENTRY_BYTES) {
        bytes.chunks_exact(USER_ENTRY_BYTES).for_each(|entry| add(&entry[8..]));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_parsed_from_both_forms_only() {
        let e = |n: u64| n.to_be_bytes();
        assert_eq!(epochs(&joined(&[e(7), e(1)])).as_slice(), [Epoch(7)]);
        let user = joined(&[e(1), e(7), e(1), e(2), e(8), e(1), e(3), e(7), e(1)]);
        assert_eq!(epochs(&user).as_slice(), [Epoch(7), Epoch(8)]);
        for len in [0, 1, 8, 15, 17, 23, 25, 40] {
            assert!(epochs(&vec![1; len]).is_empty(), "{len}");
        }
        assert_eq!(holder(&[0; 15]), None);
        assert_eq!(generation(&[0; 16]), None);
    }
}
