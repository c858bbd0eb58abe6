//! A sorted list of device numbers as bytes: LEB128 of each difference to the one before. 300
//! devices of a million take about 600 bytes.

use noroshi_types::DeviceNum;

/// `devices` must be sorted.
pub(crate) fn encode(devices: &[DeviceNum]) -> Vec<u8> {
    encode_numbers(devices.iter().map(|device| device.0), devices.len() * 2 + 8)
}

/// Any sorted numbers, in about `bytes` bytes.
pub(crate) fn encode_numbers(numbers: impl Iterator<Item = u64>, bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bytes);
    let mut last = 0;
    for number in numbers {
        let mut rest = number - last;
        last = number;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

/// The devices in order; ends early where the bytes are cut.
pub(crate) fn decode(bytes: &[u8]) -> impl Iterator<Item = DeviceNum> {
    decode_numbers(bytes).map(DeviceNum)
}

/// The numbers in order; ends early where the bytes are cut.
pub(crate) fn decode_numbers(mut bytes: &[u8]) -> impl Iterator<Item = u64> {
    let mut last = 0u64;
    std::iter::from_fn(move || {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = bytes.split_first()?;
            bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                last = last.wrapping_add(value);
                return Some(last);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(devices: &[u64], bytes: usize) {
        let devices: Vec<_> = devices.iter().copied().map(DeviceNum).collect();
        let encoded = encode(&devices);
        assert_eq!(encoded.len(), bytes, "{devices:?}");
        assert_eq!(decode(&encoded).collect::<Vec<_>>(), devices);
    }

    #[test]
    fn a_list_round_trips() {
        check(&[], 0);
        check(&[1, 2, 3], 3);
        check(&[127, 255, 100_000], 1 + 2 + 3);
        check(&[0, u64::MAX], 1 + 10);
    }

    #[test]
    fn a_truncated_list_ends_early() {
        assert_eq!(decode(&[1, 0x80]).collect::<Vec<_>>(), [DeviceNum(1)]);
        assert_eq!(decode(&[0xff; 12]).count(), 0);
    }
}
