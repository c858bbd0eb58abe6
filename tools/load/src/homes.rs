//! Assigns devices to one of several nodes. Initially they are distributed evenly over all nodes except the
//! spare ones; a device whose connection ended or was rejected moves to another node, chosen so that the
//! devices of a failed node spread over all others.

/// Devices are numbered within their worker.
#[derive(Debug)]
pub(crate) struct Homes {
    count: usize,
    /// The number of initial nodes; the others are spare.
    first: usize,
    seed: u64,
    /// Devices that left their first node: the current node, and the number of moves.
    moved: Vec<Option<(u32, u32)>>,
}

impl Homes {
    pub(crate) fn new(count: usize, spare: usize, seed: u64) -> Self {
        Self { count, first: count.saturating_sub(spare).max(1), seed, moved: Vec::new() }
    }

    /// 0 if there is only one.
    pub(crate) fn of(&self, number: usize) -> usize {
        match self.moved.get(number).copied().flatten() {
            Some((home, _)) => home as usize,
            None => number % self.first,
        }
    }

    /// Moves a device to another node.
    pub(crate) fn leave(&mut self, number: usize) {
        if self.count < 2 {
            return;
        }
        let times = self.moved.get(number).copied().flatten().map_or(0, |(_, times)| times);
        let drawn = mix(self.seed ^ (number as u64) << 24 ^ u64::from(times) << 52) % (self.count as u64 - 1);
        let home = (self.of(number) + 1 + drawn as usize) % self.count;
        if self.moved.len() <= number {
            self.moved.resize(number + 1, None);
        }
        self.moved[number] = Some((home as u32, times.wrapping_add(1)));
    }
}

/// The finalizer of splitmix64, which spreads adjacent numbers.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_a_failed_node_spread_over_all_others() {
        let mut homes = Homes::new(10, 0, 3);
        let lost: Vec<usize> = (0..10_000).filter(|number| homes.of(*number) == 4).collect();
        assert_eq!(lost.len(), 1_000);
        let mut now = [0; 10];
        for number in lost {
            homes.leave(number);
            now[homes.of(number)] += 1;
        }
        assert_eq!(now[4], 0);
        assert!(
            now.iter().enumerate().all(|(home, count)| home == 4 || (80..150).contains(count)),
            "{now:?}"
        );
    }

    #[test]
    fn spare_nodes_are_used_after_a_move() {
        let mut homes = Homes::new(3, 1, 5);
        assert!((0..100).all(|number| homes.of(number) < 2));
        (0..100).for_each(|number| homes.leave(number));
        assert!((0..100).any(|number| homes.of(number) == 2));
    }

    #[test]
    fn rejected_device_tries_every_node() {
        let mut homes = Homes::new(3, 0, 0);
        let mut tried = [false; 3];
        for _ in 0..30 {
            let before = homes.of(7);
            homes.leave(7);
            assert_ne!(homes.of(7), before);
            tried[homes.of(7)] = true;
        }
        assert_eq!(tried, [true; 3]);
    }

    #[test]
    fn single_home_is_never_left() {
        for count in [0, 1] {
            let mut homes = Homes::new(count, 0, 0);
            homes.leave(7);
            assert_eq!(homes.of(7), 0);
        }
    }
}
