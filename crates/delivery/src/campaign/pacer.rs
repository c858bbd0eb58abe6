//! The rate of a campaign: assigns each batch the time at which it may be sent.
//!
//! Owned by the campaign's `plan`. Turns count recipients, not batches. Time is an argument. Pure.

use std::time::Duration;

/// Assigns evenly spaced turns. A pause saves nothing up: the rate afterwards is the same.
#[derive(Debug)]
pub(crate) struct Pacer {
    per_second: u32,
    /// When the next turn begins, relative to the start of the pacer.
    next: Duration,
}

impl Pacer {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: per_second.max(1), next: Duration::ZERO }
    }

    /// The time at which `recipients` may be sent. Later callers wait that much longer.
    pub(crate) fn turn(&mut self, now: Duration, recipients: usize) -> Duration {
        let turn = self.next.max(now);
        let recipients = u32::try_from(recipients).unwrap_or(u32::MAX);
        self.next = turn + Duration::from_secs(1) * recipients / self.per_second;
        turn
    }

    /// The time until the next turn.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        self.next.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_even_after_a_pause_too() {
        let ms = Duration::from_millis;
        let mut pacer = Pacer::new(100);
        assert_eq!(pacer.turn(ms(0), 10), ms(0));
        assert_eq!(pacer.turn(ms(0), 10), ms(100));
        assert_eq!(pacer.wait(ms(50)), ms(150));
        assert_eq!(pacer.turn(ms(60_000), 10), ms(60_000));
        assert_eq!(pacer.turn(ms(60_000), 10), ms(60_100));
        let mut slow = Pacer::new(1);
        assert_eq!((slow.turn(ms(0), 1), slow.turn(ms(0), 1)), (ms(0), ms(1_000)));
    }
}
