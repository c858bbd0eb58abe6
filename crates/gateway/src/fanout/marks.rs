//! Which messages in flight one connection still has to get, one bit each.
//!
//! Marking costs neither an allocation nor a reference count, and a burst to one topic becomes one `writev` a
//! connection.
//!
//! Invariant: a bit is set only for a frame in the ring ([`crate::fanout::ring`]).

/// Eight bytes and a flag in every connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// Bit = place in the ring. Two halves, since an aligned `u64` would cost every connection padding.
    halves: [u32; 2],
    /// In the queue of those that are written to first.
    pub(super) is_urgent: bool,
}

impl Marks {
    /// Whether nothing is marked.
    pub(crate) fn is_empty(self) -> bool {
        self.halves == [0, 0]
    }

    pub(crate) fn bits(self) -> u64 {
        u64::from(self.halves[1]) << 32 | u64::from(self.halves[0])
    }

    pub(super) fn set(&mut self, place: usize) {
        self.halves[place / 32] |= 1 << (place % 32);
    }

    /// Takes all bits off.
    pub(super) fn take(&mut self) -> u64 {
        let bits = self.bits();
        *self = Self::default();
        bits
    }

    /// The place of the only message that is marked.
    #[cfg(feature = "io-uring")]
    pub(crate) fn only(self) -> Option<usize> {
        (self.bits().count_ones() == 1).then(|| self.bits().trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_its_bit() {
        let mut marks = Marks::default();
        for place in 0..64 {
            marks.set(place);
            assert_eq!(marks.take(), 1 << place);
            assert!(marks.is_empty());
        }
    }
}
