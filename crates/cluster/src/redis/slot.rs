//! Hash slots of Redis Cluster, and the buckets that the directory is divided into.
//!
//! A bucket is two keys, a hash of devices and one of users, so that one command can name many of them and most lookups
//! find their keys together. The keys' hash tags are chosen so that the buckets' slots are evenly spread over the
//! 16,384: servers that share the slots evenly share the buckets evenly. Without Cluster there is one bucket.

use ::redis::Cmd;

use crate::SessionKey;

pub(crate) const SLOTS: u16 = 16_384;
pub(crate) const BUCKETS_MAX: u16 = 128;

/// A command and the slot of its key.
pub(crate) struct Command {
    pub(crate) slot: u16,
    pub(crate) cmd: Cmd,
}

/// CRC16/XMODEM, as in appendix A of the Redis Cluster specification.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
        }
    }
    crc
}

/// The slot of a key: the hash of the content of its first braces, if that is not empty.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// Maps each session to its bucket.
#[derive(Debug, Clone)]
pub(crate) struct Buckets {
    /// `prefix:{tag}:d` and `:u` of each bucket, and their slot.
    names: Vec<([Vec<u8>; 2], u16)>,
}

impl Buckets {
    /// At most [`BUCKETS_MAX`].
    pub(crate) fn new(prefix: &str, count: u16) -> Self {
        let width = SLOTS / count;
        let names = |bucket| {
            let (stem, slot) = stem(prefix, bucket * width, width);
            ([b":d", b":u"].map(|kind| [&stem[..], kind].concat()), slot)
        };
        Self { names: (0..count).map(names).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn bucket(&self, key: SessionKey) -> usize {
        // The low bits. The key is a hash, so any bits work except the one for the kind.
        (key.0 as u64 % self.names.len() as u64) as usize
    }

    pub(crate) fn slot(&self, bucket: usize) -> u16 {
        self.names[bucket].1
    }

    /// The key of the bucket's hash of users or of devices.
    pub(crate) fn name(&self, bucket: usize, of_users: bool) -> &[u8] {
        &self.names[bucket].0[usize::from(of_users)]
    }
}

/// The first tag of two letters or digits whose slot is in the middle of the range, because servers may share the slots
/// slightly unevenly.
fn stem(prefix: &str, first: u16, width: u16) -> (Vec<u8>, u16) {
    const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for high in DIGITS {
        for low in DIGITS {
            let slot = crc16(&[*high, *low]) % SLOTS;
            if (first + width / 4..=first + width / 4 * 3).contains(&slot) {
                let mut stem = prefix.as_bytes().to_vec();
                stem.extend_from_slice(&[b':', b'{', *high, *low, b'}']);
                return (stem, slot);
            }
        }
    }
    // Each range has such a tag, as a test shows.
    let stem = format!("{prefix}:{{{first}}}").into_bytes();
    let slot = slot(&stem);
    (stem, slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), crc16(b"{bar") % SLOTS);
    }

    #[test]
    fn buckets_are_evenly_spread_over_the_slots() {
        for count in 1..=BUCKETS_MAX {
            let buckets = Buckets::new("n", count);
            for bucket in 0..count {
                let width = SLOTS / count;
                let slot = buckets.slot(usize::from(bucket));
                assert!((bucket * width..(bucket + 1) * width).contains(&slot), "{count}: {bucket}");
            }
        }
    }

    #[test]
    fn twelve_buckets_are_shared_evenly_by_two_three_four_and_six_servers() {
        let buckets = Buckets::new("n", 12);
        for servers in [2u16, 3, 4, 6, 12] {
            let mut kept = vec![0; usize::from(servers)];
            (0..12).for_each(|bucket| {
                // As `redis-cli --cluster create` assigns them.
                kept[usize::from(buckets.slot(bucket)) * usize::from(servers) / usize::from(SLOTS)] += 1;
            });
            assert!(kept.iter().all(|count| *count == 12 / servers), "{servers}: {kept:?}");
        }
    }

    #[test]
    fn a_key_is_in_the_slot_of_its_bucket() {
        let buckets = Buckets::new("noroshi", 16);
        let mut used = [false; 16];
        for n in 0..1_000u128 {
            used[buckets.bucket(SessionKey(n * 0x7b7d_7b7d_0123))] = true;
        }
        assert_eq!(used, [true; 16], "sessions lie in all of them");
        for bucket in 0..16 {
            for of_users in [false, true] {
                assert_eq!(slot(buckets.name(bucket, of_users)), buckets.slot(bucket));
            }
            assert_ne!(buckets.name(bucket, true), buckets.name(bucket, false));
        }
    }
}
