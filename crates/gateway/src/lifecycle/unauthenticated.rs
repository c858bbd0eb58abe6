//! Connections that have not shown a valid credential yet: in the TLS handshake, before their request's head, before
//! their token, and until their token is verified. Their number is bounded, and the oldest is evicted for the newest,
//! so that they cannot use up the descriptors of devices: a device shows its token within a round trip or two.
//!
//! A refused connection whose end is awaited counts too. A connection with a valid token does not count any more,
//! whatever becomes of its log-in. A polling session counts on its own; the connections of its requests count as long
//! as it does.

use std::collections::{HashMap, VecDeque};

/// The unauthenticated connections of one shard, oldest first.
#[derive(Default)]
pub(crate) struct Unauthenticated {
    /// Each slot with its number. Entries of connections that no longer count stay until they are passed.
    order: VecDeque<(u32, u64)>,
    numbers: HashMap<u32, u64>,
    last: u64,
}

impl Unauthenticated {
    pub(crate) fn insert(&mut self, slot: u32) {
        self.last += 1;
        self.numbers.insert(slot, self.last);
        self.order.push_back((slot, self.last));
        // Passed entries never exceed the others by much.
        if self.order.len() > 2 * self.numbers.len() + 64 {
            let numbers = &self.numbers;
            self.order.retain(|(slot, number)| numbers.get(slot) == Some(number));
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        self.numbers.remove(&slot).is_some()
    }

    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.numbers.contains_key(&slot)
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Removes the oldest.
    pub(crate) fn take_oldest(&mut self) -> Option<u32> {
        loop {
            let (slot, number) = self.order.pop_front()?;
            if self.numbers.get(&slot) == Some(&number) {
                self.numbers.remove(&slot);
                return Some(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_unauthenticated_connection_is_evicted_first() {
        let mut unauthenticated = Unauthenticated::default();
        for slot in 0..5 {
            unauthenticated.insert(slot);
        }
        assert!(unauthenticated.remove(0) && !unauthenticated.remove(0));
        unauthenticated.remove(1);
        unauthenticated.insert(1); // another connection in the same slot
        let order: Vec<_> = std::iter::from_fn(|| unauthenticated.take_oldest()).collect();
        assert_eq!(order, [2, 3, 4, 1]);
        assert_eq!((unauthenticated.len(), unauthenticated.order.len()), (0, 0));
    }

    #[test]
    fn authenticated_connections_leave_no_entry() {
        let mut unauthenticated = Unauthenticated::default();
        unauthenticated.insert(0); // stays, in front of all
        for slot in 1..10_000 {
            unauthenticated.insert(slot);
            unauthenticated.remove(slot);
        }
        assert_eq!(unauthenticated.len(), 1);
        assert!(unauthenticated.order.len() <= 70, "{}", unauthenticated.order.len());
    }
}
