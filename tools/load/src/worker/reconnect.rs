//! Devices that lost their connection and come back as a good client does: at once the first time, then
//! when the server says, a little later by chance so that they do not all return at one moment; without
//! word from it after a growing time. An attempt that is not answered is given up and counts as broken.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{Reasons, add_reasons};
use crate::device::Ended;
use crate::engine::Engine;

/// Begun at a time: what happens to those under way is looked at in between.
const OPENS_PER_STEP: usize = 256;
/// The first pause without word from the server, doubled by each further failure.
const PAUSE_NS: u64 = 500_000_000;
const PAUSE_MAX_NS: u64 = 30_000_000_000;
/// Some clients wait less, none much longer.
const ANSWER_TIMEOUT_NS: u64 = 20_000_000_000;

/// What became of attempts that did not succeed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Turned {
    /// Told when to come back: by `Retry-After` before the WebSocket, and by `after_ms` in it.
    pub(crate) retry_after: u64,
    pub(crate) close_frame: u64,
    /// Ended without such a word.
    pub(crate) broken: u64,
    pub(crate) reasons: Reasons,
}

impl Turned {
    pub(crate) fn add(&mut self, other: Turned) {
        self.retry_after += other.retry_after;
        self.close_frame += other.close_frame;
        self.broken += other.broken;
        add_reasons(&mut self.reasons, other.reasons);
    }

    fn count(&mut self, ended: Ended) {
        match ended.after_ms {
            Some(_) if ended.reason.starts_with("HTTP") => self.retry_after += 1,
            Some(_) => self.close_frame += 1,
            None => self.broken += 1,
        }
        *self.reasons.entry(ended.reason).or_default() += 1;
    }
}

pub(super) struct Comeback {
    opening_max: usize,
    /// Devices and when they try again.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Attempts under way: when they are given up, the device, and which attempt of it.
    under_way: VecDeque<(u64, usize, u64)>,
    /// Failures in a row, of devices that had any.
    failures: HashMap<usize, u32>,
    /// xorshift64: devices need to be spread, not unpredictable.
    state: u64,
    pub(super) turned: Turned,
    /// The cause that makes further attempts of a device pointless.
    pub(super) fatal: Option<String>,
}

impl Comeback {
    pub(super) fn new(opening_max: usize, seed: u64) -> Self {
        Self {
            opening_max: opening_max.max(1),
            due: BinaryHeap::new(),
            under_way: VecDeque::new(),
            failures: HashMap::new(),
            state: seed | 1,
            turned: Turned::default(),
            fatal: None,
        }
    }

    /// A device that lost its connection comes back at once.
    pub(super) fn lost(&mut self, number: usize, now_ns: u64) {
        self.due.push(Reverse((now_ns, number)));
    }

    /// An attempt failed.
    pub(super) fn failed(&mut self, number: usize, ended: Ended, now_ns: u64) {
        if !ended.retry {
            self.fatal.get_or_insert_with(|| ended.reason.clone());
            self.turned.count(ended);
            return;
        }
        let failures = self.failures.entry(number).or_default();
        *failures += 1;
        let pause_ns = match ended.after_ms {
            Some(ms) => {
                let told_ns = ms.saturating_mul(1_000_000).min(PAUSE_MAX_NS);
                told_ns + self.random(told_ns / 2)
            }
            None => {
                let whole_ns = PAUSE_NS.saturating_mul(1 << (*failures).min(10)).min(PAUSE_MAX_NS);
                whole_ns / 2 + self.random(whole_ns / 2)
            }
        };
        self.due.push(Reverse((now_ns + pause_ns, number)));
        self.turned.count(ended);
    }

    /// Begins what is due; returns when to be asked again.
    pub(super) fn step(&mut self, engine: &mut Engine, now_ns: u64) -> u64 {
        self.give_up(engine, now_ns);
        for _ in 0..OPENS_PER_STEP {
            if engine.opening >= self.opening_max {
                break;
            }
            let Some(Reverse((_, number))) = self.due.peek().filter(|due| due.0.0 <= now_ns).copied() else {
                break;
            };
            self.due.pop();
            engine.open(number);
            if let Some(opened_ns) = engine.opening_since_ns(number) {
                self.under_way.push_back((now_ns + ANSWER_TIMEOUT_NS, number, opened_ns));
            }
        }
        // Where there is no room, the end of an attempt is an event.
        let room = engine.opening < self.opening_max;
        let due_ns = self.due.peek().filter(|_| room).map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns);
        due_ns.min(self.under_way.front().map_or(u64::MAX, |(until_ns, ..)| *until_ns))
    }

    fn give_up(&mut self, engine: &mut Engine, now_ns: u64) {
        while let Some((until_ns, number, opened_ns)) = self.under_way.front().copied() {
            let still = engine.opening_since_ns(number) == Some(opened_ns);
            if still && until_ns > now_ns {
                return;
            }
            self.under_way.pop_front();
            if still {
                engine.remove(number);
                let reason = format!("no answer within {} s", ANSWER_TIMEOUT_NS / 1_000_000_000);
                self.failed(number, Ended { reason, retry: true, after_ms: None }, now_ns);
            }
        }
    }

    /// Below `bound`; 0 for 0.
    fn random(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(reason: &str, after_ms: Option<u64>) -> Ended {
        Ended { reason: reason.to_owned(), retry: true, after_ms }
    }

    /// When device 0 tries again.
    fn pause_ns(comeback: &mut Comeback, ended: Ended) -> u64 {
        comeback.failed(0, ended, 0);
        let Reverse((due_ns, 0)) = comeback.due.pop().unwrap() else { panic!("device 0") };
        due_ns
    }

    #[test]
    fn a_device_that_is_told_when_comes_back_then_or_a_little_later() {
        let mut comeback = Comeback::new(1, 7);
        let mut pauses: Vec<u64> =
            (0..50).map(|_| pause_ns(&mut comeback, ended("HTTP 503 overloaded", Some(2_000)))).collect();
        assert!(pauses.iter().all(|pause| (2_000_000_000..3_000_000_000).contains(pause)), "{pauses:?}");
        pauses.sort_unstable();
        pauses.dedup();
        assert!(pauses.len() > 40, "they are spread");
        assert_eq!((comeback.turned.retry_after, comeback.turned.broken), (50, 0));
        pause_ns(&mut comeback, ended("close frame: overloaded", Some(1)));
        assert_eq!((comeback.turned.close_frame, comeback.turned.reasons.len()), (1, 2));
    }

    #[test]
    fn without_a_word_pauses_grow_to_their_bound() {
        let mut comeback = Comeback::new(1, 7);
        let pauses: Vec<u64> = (0..20).map(|_| pause_ns(&mut comeback, ended("reset", None))).collect();
        assert!((PAUSE_NS / 2..2 * PAUSE_NS).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses[19] >= PAUSE_MAX_NS / 2 && pauses.iter().all(|pause| *pause <= PAUSE_MAX_NS));
        assert_eq!(comeback.turned.broken, 20);
    }

    #[test]
    fn what_cannot_pass_is_not_tried_again() {
        let mut comeback = Comeback::new(1, 7);
        comeback.failed(0, Ended { reason: "HTTP 401".to_owned(), retry: false, after_ms: None }, 0);
        assert!(comeback.due.is_empty());
        assert_eq!(comeback.fatal.as_deref(), Some("HTTP 401"));
    }
}
