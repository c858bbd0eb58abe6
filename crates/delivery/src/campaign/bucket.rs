//! A campaign's rate: who comes next may be sent when those before have had their time. Pure.

use std::time::Duration;

/// Hands out turns, evenly spaced. Nothing is saved up: after a pause the rate is the same as before.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_second: u32,
    /// When the next turn begins, from the bucket's own zero.
    next: Duration,
}

impl Bucket {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: per_second.max(1), next: Duration::ZERO }
    }

    /// When `recipients` may be sent; what comes after them waits that much longer.
    pub(crate) fn turn(&mut self, now: Duration, recipients: usize) -> Duration {
        let turn = self.next.max(now);
        let recipients = u32::try_from(recipients).unwrap_or(u32::MAX);
        self.next = turn + Duration::from_secs(1) * recipients / self.per_second;
        turn
    }

    /// How long until the next turn.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        self.next.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_even_and_nothing_is_saved_up() {
        let ms = Duration::from_millis;
        let mut bucket = Bucket::new(100);
        assert_eq!(bucket.turn(ms(0), 10), ms(0));
        assert_eq!(bucket.turn(ms(0), 10), ms(100));
        assert_eq!(bucket.wait(ms(50)), ms(150));
        assert_eq!(bucket.turn(ms(60_000), 10), ms(60_000));
        assert_eq!(bucket.turn(ms(60_000), 10), ms(60_100));
        let mut slow = Bucket::new(1);
        assert_eq!((slow.turn(ms(0), 1), slow.turn(ms(0), 1)), (ms(0), ms(1_000)));
    }
}
