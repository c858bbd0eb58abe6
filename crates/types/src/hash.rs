//! A hash that is equal on all nodes, in all versions and in all languages: for assignments and for messages
//! between nodes. Not for values that an adversary must not predict.

/// The offset basis of 64-bit FNV-1a (Fowler, Noll, Vo).
pub const BEGIN: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a, continued from a previous hash.
pub fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// FNV mixes short texts poorly: the finalizer of MurmurHash3 (Appleby) spreads them over all 64 bits.
pub fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_reference_implementations() {
        assert_eq!(fnv(BEGIN, b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv(fnv(BEGIN, b"foo"), b"bar"), fnv(BEGIN, b"foobar"));
        // MurmurHash3's fmix64 of 1.
        assert_eq!(mix(1), 0xb456_bcfc_34c2_cb2c);
    }
}
