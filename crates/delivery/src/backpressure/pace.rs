//! How long one unit of work takes, measured while there is always work.
//!
//! By Little's law, a queue of N units delays a newcomer by N times this. Pure: the caller passes the time.

/// Long enough to average over turns of a shard and commits of a store, short enough to follow a change in load.
const WINDOW_NS: u64 = 20_000_000;
/// A busy period that ends earlier measures mostly its own beginning.
const SAMPLE_NS_MIN: u64 = 5_000_000;

#[derive(Debug, Clone)]
pub struct Pace {
    /// The beginning of the window; `None` while there is no work.
    since_ns: Option<u64>,
    units: u64,
    unit_ns: u64,
}

impl Pace {
    /// `unit_ns`: an assumption until the first measurement.
    pub fn new(unit_ns: u64) -> Self {
        Self { since_ns: None, units: 0, unit_ns }
    }

    /// The time per unit in nanoseconds, at least 1.
    pub fn unit_ns(&self) -> u64 {
        self.unit_ns.max(1)
    }

    /// `done` units ended since the last call; `is_busy`: others wait.
    pub fn observe(&mut self, now_ns: u64, done: u64, is_busy: bool) {
        let Some(since_ns) = self.since_ns else {
            self.since_ns = is_busy.then_some(now_ns);
            return;
        };
        self.units += done;
        let elapsed_ns = now_ns.saturating_sub(since_ns);
        if is_busy && elapsed_ns < WINDOW_NS {
            return;
        }
        if self.units > 0 && elapsed_ns >= SAMPLE_NS_MIN {
            // Half of the old value: four windows forget nine tenths of it.
            self.unit_ns = (self.unit_ns + elapsed_ns / self.units) / 2;
        } else if is_busy {
            return; // nothing ended: the window continues
        }
        (self.since_ns, self.units) = (is_busy.then_some(now_ns), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_steady_load_is_measured() {
        let mut pace = Pace::new(1_000);
        pace.observe(0, 0, true);
        for turn in 1..=100 {
            // 1,000 units in 4 ms.
            pace.observe(turn * 4 * MS, 1_000, true);
        }
        assert!((3_900..=4_000).contains(&pace.unit_ns()), "{}", pace.unit_ns());
    }

    #[test]
    fn idle_time_does_not_count() {
        let mut pace = Pace::new(1_000);
        for second in 0..50 {
            let begin = second * 1_000 * MS;
            pace.observe(begin, 0, true);
            pace.observe(begin + 10 * MS, 5_000, false);
            pace.observe(begin + 500 * MS, 0, false);
        }
        assert!((1_990..=2_000).contains(&pace.unit_ns()), "{}", pace.unit_ns());
    }

    #[test]
    fn a_stall_raises_the_time_once_something_ends() {
        let mut pace = Pace::new(1_000);
        pace.observe(0, 0, true);
        pace.observe(500 * MS, 0, true);
        assert_eq!(pace.unit_ns(), 1_000);
        pace.observe(1_000 * MS, 10, true);
        assert!(pace.unit_ns() > 40 * MS);
    }
}
