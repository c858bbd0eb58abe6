//! The worker of a sink: sends the oldest batches until the sink accepts them.
//!
//! A failing sink is retried with exponential backoff. Meanwhile its batches go to disk (`feed`).

use std::sync::Arc;
use std::time::Duration;

use noroshi_egress::Backoff;
use noroshi_supervision::Heartbeat;

use crate::feed::{Feed, Head};
use crate::health::Health;
use crate::sink::Sink;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub(crate) fn run(mut sink: Sink, mut health: Health, feed: &Arc<Feed>, pulse: &Heartbeat) {
    let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
    loop {
        pulse.waiting();
        let batches = match feed.head(sink.window_bytes(), health.over_at()) {
            Head::Batches(batches) => batches,
            Head::Calm => {
                health.check();
                continue;
            }
            Head::Over => break,
        };
        loop {
            pulse.working();
            match sink.send(&batches, &mut health, pulse) {
                Ok(refused) => {
                    health.succeeded();
                    backoff.reset();
                    feed.taken(&batches, refused);
                    break;
                }
                Err(_) if feed.is_abandoned() => return sink.end(),
                Err(error) => {
                    health.failed(&error, 0);
                    pulse.waiting();
                    // A sink that accepts some calls is not retried ever more slowly.
                    if health.take_progress() {
                        backoff.reset();
                    }
                    if !feed.failed(backoff.pause()) {
                        return sink.end();
                    }
                }
            }
        }
    }
    sink.end();
}
