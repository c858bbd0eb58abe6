//! The worker of a sink: sends the oldest batch until the sink accepts it.
//!
//! A failing sink is retried with exponential backoff. Meanwhile its batches go to disk (`feed`).

use std::sync::Arc;
use std::time::Duration;

use noroshi_egress::Backoff;
use noroshi_supervision::Heartbeat;

use crate::feed::Feed;
use crate::sink::Sink;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub(crate) fn run(name: &'static str, mut sink: Sink, feed: &Arc<Feed>, pulse: &Heartbeat) {
    let (mut failing, mut backoff) = (false, Backoff::new(PAUSE_MIN, PAUSE_MAX));
    loop {
        pulse.waiting();
        let Some(batch) = feed.head() else { break };
        loop {
            pulse.working();
            match sink.send(&batch) {
                Ok(refused) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!(sink = name, "the sink accepts events again");
                    }
                    backoff.reset();
                    feed.taken(&batch, refused);
                    break;
                }
                Err(error) => {
                    match std::mem::replace(&mut failing, true) {
                        true => tracing::debug!(sink = name, %error, "the sink still fails"),
                        false => tracing::warn!(sink = name, %error, "the sink failed; retrying"),
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
