//! The messages that a worker's devices have received: the only state that the hot path writes. Counts start
//! with the worker; latencies are recorded within a time window.

use crate::clock;
use crate::stats::Latency;

/// 8 MB between two requests of the crew.
const KEPT_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Messages since the worker started.
    pub(crate) total: u64,
    /// The part of it that earlier reports contained.
    reported: u64,
    /// Messages that arrived within the window; `latency` contains one value for each.
    pub(crate) in_window: u64,
    /// Payload bytes of the frames that arrived within the window.
    pub(crate) bytes: u64,
    pub(crate) latency: Latency,
    /// When the last message arrived.
    pub(crate) last_ns: u64,
    /// Messages of this measurement have later time stamps; older ones come from an inbox or a topic log.
    started_ns: u64,
    window: std::ops::Range<u64>,
    /// The number of messages that each device must receive, and the number of devices that have.
    goal: u32,
    pub(crate) at_goal: usize,
    /// Time stamps of `stored` messages, since they were first requested.
    kept: Option<Vec<u64>>,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self { started_ns: clock::now_ns(), window: 0..u64::MAX, goal: u32::MAX, ..Self::default() }
    }

    /// Records a `stored` message.
    pub(crate) fn stored(&mut self, stamp_ns: Option<u64>) {
        if let (Some(kept), Some(stamp_ns)) = (&mut self.kept, stamp_ns)
            && kept.len() < KEPT_MAX
        {
            kept.push(stamp_ns);
        }
    }

    /// Time stamps of the `stored` messages since the last call; none at first.
    pub(crate) fn take_kept(&mut self) -> Vec<u64> {
        self.kept.replace(Vec::new()).unwrap_or_default()
    }

    /// Records a device's message number `received`, created at `stamp_ns`.
    pub(crate) fn message(&mut self, received: u32, stamp_ns: Option<u64>, bytes: usize) {
        let now_ns = clock::now_ns();
        self.total += 1;
        self.last_ns = now_ns;
        self.at_goal += usize::from(received == self.goal);
        if !self.window.contains(&now_ns) {
            return;
        }
        self.in_window += 1;
        self.bytes += bytes as u64;
        if let Some(stamp_ns) = stamp_ns.filter(|stamp_ns| *stamp_ns >= self.started_ns) {
            self.latency.record(stamp_ns, now_ns);
        }
    }

    /// Returns the number of messages since the last report.
    pub(crate) fn take_unreported(&mut self) -> u64 {
        self.total - std::mem::replace(&mut self.reported, self.total)
    }

    /// Clears the window's results and opens the next window.
    pub(crate) fn open_window(&mut self, window: std::ops::Range<u64>) {
        self.window = window;
        self.in_window = 0;
        self.bytes = 0;
        self.latency = Latency::default();
    }

    /// Sets the number of messages that each device must receive; `at_goal` devices already have.
    pub(crate) fn set_goal(&mut self, goal: u32, at_goal: usize) {
        self.goal = goal;
        self.at_goal = at_goal;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_measured_and_everything_is_counted() {
        let mut seen = Seen::new();
        let start = seen.started_ns;
        seen.open_window(0..1);
        seen.message(1, Some(start), 10);
        assert_eq!((seen.total, seen.in_window, seen.latency.is_empty()), (1, 0, true));
        seen.open_window(0..u64::MAX);
        seen.message(2, Some(start), 10);
        assert_eq!((seen.total, seen.in_window, seen.bytes, seen.latency.is_empty()), (2, 1, 10, false));
    }

    #[test]
    fn messages_of_an_earlier_measurement_have_no_latency() {
        let mut seen = Seen::new();
        seen.message(1, Some(seen.started_ns - 1), 10);
        seen.message(2, None, 10);
        assert_eq!((seen.in_window, seen.latency.is_empty()), (2, true));
    }

    #[test]
    fn every_message_is_reported_once() {
        let mut seen = Seen::new();
        seen.open_window(0..1);
        (1..=3).for_each(|received| seen.message(received, None, 10));
        assert_eq!((seen.take_unreported(), seen.take_unreported()), (3, 0));
        seen.message(4, None, 10);
        assert_eq!((seen.take_unreported(), seen.total), (1, 4));
    }

    #[test]
    fn stored_messages_are_reported_individually_on_request() {
        let mut seen = Seen::new();
        seen.stored(Some(1));
        assert!(seen.take_kept().is_empty());
        [Some(2), None, Some(2)].into_iter().for_each(|stamp| seen.stored(stamp));
        assert_eq!((seen.take_kept(), seen.take_kept()), (vec![2, 2], vec![]));
    }

    #[test]
    fn devices_reach_the_goal_once() {
        let mut seen = Seen::new();
        seen.set_goal(2, 0);
        (1..=3).for_each(|received| seen.message(received, None, 10));
        assert_eq!(seen.at_goal, 1);
    }
}
