//! How many rejected log-ins of a shard are events: a stranger can cause any number of them, and event logs cost money.

use crate::io::timer::Now;
use crate::rate::{Bucket, Rate};

const EVENTS: Rate = Rate { per_second: 50, burst: 200 };

#[derive(Default)]
pub(crate) struct Rejections {
    bucket: Option<Bucket>,
    suppressed: u64,
}

impl Rejections {
    /// How many had no event since the last one, if this rejection is to have one.
    pub(crate) fn take(&mut self, now: Now) -> Option<u64> {
        let bucket = self.bucket.get_or_insert_with(|| Bucket::full(EVENTS, now.ms32()));
        if !bucket.take(EVENTS, now.ms32()) {
            self.suppressed += 1;
            return None;
        }
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::Timestamp;

    use super::*;

    #[test]
    fn a_flood_has_few_events_which_count_the_others() {
        let mut rejections = Rejections::default();
        let now = |ms| Now { ms, tick: 1, wall: Timestamp(0) };
        assert_eq!((0..1_000).filter_map(|_| rejections.take(now(0))).collect::<Vec<_>>(), [0; 200]);
        assert_eq!((rejections.take(now(20)), rejections.take(now(20))), (Some(800), None));
        assert_eq!(rejections.take(now(1_000)), Some(1));
    }
}
