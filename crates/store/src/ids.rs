//! Notification ids: UUIDv7 (RFC 9562 §5.7) that strictly increase in the order they are given out.
//!
//! Inside the store a notification is a 60-bit number: 48 bits of milliseconds and the 12 bits of `rand_a` as a
//! counter (RFC 9562 §6.2, method 1), which overflows into the milliseconds instead of repeating. The other 62 random
//! bits are a keyed hash of the number. So id and number convert into each other without a lookup, and a made-up id
//! is detected. The clock is an argument; if it goes back, ids continue after the greatest one ever given out.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use noroshi_types::{NotificationId, Timestamp};
use siphasher::sip::SipHasher13;
use uuid::Uuid;

const COUNTER_BITS: u32 = 12;
const MILLISECONDS_MASK: u64 = (1 << 48) - 1;
const HASH_MASK: u128 = (1 << 62) - 1;

/// A notification's number inside the store; positive, so it is also SQLite's row number.
pub(crate) type Num = i64;

/// Gives out ids. The lock guards the last number; no other lock and no await happens under it.
pub(crate) struct Ids {
    hasher: SipHasher13,
    last: Mutex<u64>,
}

impl Ids {
    /// Continues after `last`. A database needs the same `key` for its whole life.
    pub(crate) fn new(key: &[u8; 16], last: Num) -> Self {
        Self { hasher: SipHasher13::new_with_key(key), last: Mutex::new(last.unsigned_abs()) }
    }

    /// A number greater than all earlier ones, even if the clock went back.
    pub(crate) fn next(&self, now: Timestamp) -> Num {
        let floor = (now.0 & MILLISECONDS_MASK) << COUNTER_BITS;
        // No panic is possible between the two accesses, so a poisoned lock holds a valid number.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = floor.max(*last + 1);
        *last as Num
    }

    pub(crate) fn id(&self, num: Num) -> NotificationId {
        let bits = num as u128;
        let (milliseconds, counter) = (bits >> COUNTER_BITS, bits & ((1 << COUNTER_BITS) - 1));
        let random = u128::from(self.hasher.hash(&num.to_be_bytes())) & HASH_MASK;
        NotificationId(Uuid::from_u128(milliseconds << 80 | 7 << 76 | counter << 64 | 0b10 << 62 | random))
    }

    /// `None` if this store never gave out such an id.
    pub(crate) fn num(&self, id: NotificationId) -> Option<Num> {
        let num = place(id);
        (self.id(num) == id).then_some(num)
    }
}

/// The position of an id in the order of all ids, regardless of the node that created it.
pub(crate) fn place(id: NotificationId) -> Num {
    let bits = id.0.as_u128();
    ((bits >> 80 << COUNTER_BITS) | (bits >> 64 & ((1 << COUNTER_BITS) - 1))) as Num
}

/// The first number that is given out at a time, unless the clock went back.
pub(crate) fn first_at(time: Timestamp) -> Num {
    ((time.0 & MILLISECONDS_MASK) << COUNTER_BITS) as Num
}

/// When a number was given out, unless the clock went back.
pub(crate) fn time(num: Num) -> Timestamp {
    Timestamp(num.unsigned_abs() >> COUNTER_BITS)
}

/// The range of numbers accepted between two times, both included.
pub(crate) fn numbers(since: Option<Timestamp>, until: Option<Timestamp>) -> (Num, Num) {
    let last = |until: Timestamp| first_at(until) | ((1 << COUNTER_BITS) - 1);
    (since.map_or(0, first_at), until.map_or(Num::MAX, last))
}

/// Unpredictable bits, from the operating system's seed of this process.
pub(crate) fn random_bits() -> u64 {
    RandomState::new().hash_one(0u8)
}

/// A key for the ids of a new database.
pub(crate) fn draw_key() -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&random_bits().to_le_bytes());
    key[8..].copy_from_slice(&random_bits().to_le_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(last: Num) -> Ids {
        Ids::new(b"0123456789abcdef", last)
    }

    #[test]
    fn ids_increase_within_a_millisecond_and_when_the_clock_goes_back() {
        let ids = ids(0);
        let mut last = ids.id(ids.next(Timestamp(1_000)));
        // 10,000 in one millisecond is more than the counter holds.
        for now in [1_000; 10_000].into_iter().chain([5, 0, 999, 2_000_000, 7]) {
            let id = ids.id(ids.next(Timestamp(now)));
            assert!(id > last, "{id} after {last}");
            last = id;
        }
    }

    #[test]
    fn ids_continue_after_an_earlier_run() {
        let before = ids(0).next(Timestamp(1_000_000));
        assert!(ids(before).next(Timestamp(3)) > before);
    }

    #[test]
    fn an_id_is_a_uuid_version_7_of_the_given_time() {
        let ids = ids(0);
        // The example of RFC 9562 appendix A.6 has this time.
        let uuid = ids.id(ids.next(Timestamp(0x017F_22E2_79B0))).0;
        assert_eq!(uuid.get_version_num(), 7);
        assert_eq!(uuid.get_variant(), uuid::Variant::RFC4122);
        assert!(uuid.to_string().starts_with("017f22e2-79b0-7"), "{uuid}");
    }

    #[test]
    fn id_and_number_convert_into_each_other() {
        let ids = ids(0);
        let num = ids.next(Timestamp(0x017F_22E2_79B0));
        let id = ids.id(num);
        assert_eq!(ids.num(id), Some(num));
        assert_eq!(place(id), num);
        assert_eq!(ids.num(NotificationId(Uuid::from_u128(id.0.as_u128() ^ 1))), None, "made up");
        assert_eq!(ids.num(NotificationId(Uuid::nil())), None);
        assert_eq!(ids.num(NotificationId(Uuid::max())), None);
    }
}
