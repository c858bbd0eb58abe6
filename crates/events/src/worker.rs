//! One thread a sink: gives it the oldest batch until it has it.
//!
//! A sink that fails is tried again, twice as long apart each time. While it does, its batches go to disk (`feed`).

use std::sync::Arc;
use std::time::Duration;

use crate::feed::Feed;
use crate::sink::Sink;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub(crate) fn run(name: &'static str, mut sink: Sink, feed: &Arc<Feed>) {
    let mut failing = false;
    while let Some(batch) = feed.head() {
        let mut pause = PAUSE_MIN;
        loop {
            match sink.send(&batch) {
                Ok(refused) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!(sink = name, "events are taken again");
                    }
                    feed.taken(&batch, refused);
                    break;
                }
                Err(error) => {
                    match std::mem::replace(&mut failing, true) {
                        true => tracing::debug!(sink = name, %error, "events are still not taken"),
                        false => tracing::warn!(sink = name, %error, "events are not taken; trying again"),
                    }
                    if !feed.failed(spread(pause)) {
                        return sink.end();
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }
    sink.end();
}

/// Between half and the whole: nodes that failed together do not come back together.
fn spread(pause: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(0_u8) % 1_024;
    pause / 2 + pause / 2 * u32::try_from(random).unwrap_or(0) / 1_024
}
