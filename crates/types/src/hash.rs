//! A hash that is the same at every node, in every version and in every language: for what is drawn by it and for
//! what nodes tell each other. Not for anything that an adversary must not foresee.

/// Where FNV-1a of 64 bits begins (Fowler, Noll, Vo).
pub const BEGIN: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a, going on from what was hashed before.
pub fn fnv(begun: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(begun, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// FNV's bits are weak for short texts: the finalizer of MurmurHash3 (Appleby) spreads them over all 64.
pub fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_authors() {
        assert_eq!(fnv(BEGIN, b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv(fnv(BEGIN, b"foo"), b"bar"), fnv(BEGIN, b"foobar"));
        // MurmurHash3's fmix64 of 1.
        assert_eq!(mix(1), 0xb456_bcfc_34c2_cb2c);
    }
}
