//! The rank of each inbox's newest row, as this node knows it. Reading it costs more than finding the device.
//!
//! Ranks only grow when a group is committed, under the order lock. So what this node knows stays an upper bound until
//! another node commits a group, which the last ordered number shows. An inbox that is emptied keeps its bound until
//! the bound reaches the limit; then the inbox is counted.

use std::collections::HashMap;

use crate::ids::Num;

/// Inboxes remembered: about 20 bytes each, 5 MiB.
const INBOXES: usize = 1 << 18;
/// Fewer devices are read with their ranks: a second round trip for unknown ones would take longer.
const DEVICES_MIN: usize = 128;

#[derive(Default)]
pub(in crate::postgres) struct Ranks {
    of: HashMap<i64, i64>,
    /// The last ordered number after the latest group of this node.
    last: Num,
    /// No other node had committed a group between the latest two of this node.
    undisturbed: bool,
}

impl Ranks {
    /// Whether `devices` devices should be read without their ranks.
    pub(super) fn serve(&self, devices: usize) -> bool {
        self.undisturbed && devices >= DEVICES_MIN
    }

    /// Forgets all ranks if another node committed a group. `last` is the last ordered number before a group.
    pub(super) fn check(&mut self, last: Num) {
        self.undisturbed = self.last == last;
        if !self.undisturbed {
            self.of.clear();
        }
    }

    pub(super) fn of(&self, device: i64) -> Option<i64> {
        self.of.get(&device).copied()
    }

    pub(super) fn set(&mut self, device: i64, rank: i64) {
        self.of.insert(device, rank);
    }

    /// After a group was committed, with the last ordered number then and the ranks that the group wrote.
    pub(in crate::postgres) fn committed(&mut self, last: Num, ranks: HashMap<i64, i64>) {
        self.last = last;
        if self.of.len() + ranks.len() > INBOXES {
            self.of.clear();
        }
        self.of.extend(ranks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_known_until_another_node_commits() {
        let mut ranks = Ranks::default();
        ranks.check(10);
        assert!(!ranks.serve(DEVICES_MIN), "nothing is known at first");
        ranks.committed(12, HashMap::from([(1, 5)]));
        assert!(!ranks.serve(DEVICES_MIN), "other nodes may be as busy");
        ranks.check(12);
        assert!(ranks.serve(DEVICES_MIN) && !ranks.serve(DEVICES_MIN - 1));
        assert_eq!((ranks.of(1), ranks.of(2)), (Some(5), None));
        ranks.committed(13, HashMap::from([(1, 6)]));
        ranks.check(14);
        assert!(!ranks.serve(DEVICES_MIN));
        assert_eq!(ranks.of(1), None);
    }
}
