//! What the devices of a worker have received: the one place the hot path writes to. Counts run from the
//! start of the worker; latencies are taken inside a window of time.

use crate::clock;
use crate::stats::Latency;

/// 8 MB; whoever asks does it often.
const KEPT_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Seen {
    /// Messages since the worker started.
    pub(crate) total: u64,
    /// What of it earlier reports have told.
    told: u64,
    /// Messages that arrived inside the window, of which `latency` holds one value each.
    pub(crate) in_window: u64,
    /// Payload bytes of the frames that arrived inside the window.
    pub(crate) bytes: u64,
    pub(crate) latency: Latency,
    /// When the last message arrived.
    pub(crate) last_ns: u64,
    /// Messages of this measurement are stamped after it; older ones come from an inbox or a topic log.
    started_ns: u64,
    window: std::ops::Range<u64>,
    /// How many messages each device is to have, and how many devices have them.
    goal: u32,
    pub(crate) at_goal: usize,
    /// Stamps of `stored` messages, from the moment they were asked for.
    kept: Option<Vec<u64>>,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self {
            total: 0,
            told: 0,
            in_window: 0,
            bytes: 0,
            latency: Latency::new(),
            last_ns: 0,
            started_ns: clock::now_ns(),
            window: 0..u64::MAX,
            goal: u32::MAX,
            at_goal: 0,
            kept: None,
        }
    }

    /// A device got a `stored` message.
    pub(crate) fn stored(&mut self, stamp_ns: Option<u64>) {
        if let (Some(kept), Some(stamp_ns)) = (&mut self.kept, stamp_ns)
            && kept.len() < KEPT_MAX
        {
            kept.push(stamp_ns);
        }
    }

    /// Stamps of the `stored` messages since this was last asked; at first none.
    pub(crate) fn take_kept(&mut self) -> Vec<u64> {
        self.kept.replace(Vec::new()).unwrap_or_default()
    }

    /// A device got its message number `received`, made at `stamp_ns`.
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

    /// Messages that no report has told, which this one does.
    pub(crate) fn tell(&mut self) -> u64 {
        self.total - std::mem::replace(&mut self.told, self.total)
    }

    /// Forgets what was in the window and opens the next.
    pub(crate) fn open_window(&mut self, window: std::ops::Range<u64>) {
        self.window = window;
        self.in_window = 0;
        self.bytes = 0;
        self.latency = Latency::new();
    }

    /// Sets how many messages each device is to have; `at_goal` of them have that many already.
    pub(crate) fn set_goal(&mut self, goal: u32, at_goal: usize) {
        self.goal = goal;
        self.at_goal = at_goal;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_is_measured_and_everything_is_counted() {
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
    fn every_message_is_told_once() {
        let mut seen = Seen::new();
        seen.open_window(0..1);
        (1..=3).for_each(|received| seen.message(received, None, 10));
        assert_eq!((seen.tell(), seen.tell()), (3, 0));
        seen.message(4, None, 10);
        assert_eq!((seen.tell(), seen.total), (1, 4));
    }

    #[test]
    fn stored_messages_are_told_one_by_one_once_they_were_asked_for() {
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
