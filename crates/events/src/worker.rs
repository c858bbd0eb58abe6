//! One thread a sink: gives it the oldest batch until it has it.
//!
//! A sink that fails is tried again, twice as long apart each time. While it does, its batches go to disk (`feed`).

use std::sync::Arc;
use std::time::Duration;

use noroshi_egress::Backoff;
use noroshi_supervision::Pulse;

use crate::feed::Feed;
use crate::sink::Sink;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub(crate) fn run(name: &'static str, mut sink: Sink, feed: &Arc<Feed>, pulse: &Pulse) {
    let (mut failing, mut backoff) = (false, Backoff::new(PAUSE_MIN, PAUSE_MAX));
    loop {
        pulse.waiting();
        let Some(batch) = feed.head() else { break };
        loop {
            pulse.working();
            match sink.send(&batch) {
                Ok(refused) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!(sink = name, "events are taken again");
                    }
                    backoff.reset();
                    feed.taken(&batch, refused);
                    break;
                }
                Err(error) => {
                    match std::mem::replace(&mut failing, true) {
                        true => tracing::debug!(sink = name, %error, "events are still not taken"),
                        false => tracing::warn!(sink = name, %error, "events are not taken; trying again"),
                    }
                    pulse.waiting();
                    if !feed.failed(backoff.pause()) {
                        return sink.end();
                    }
                }
            }
        }
    }
    sink.end();
}
