//! Slows down reading during a burst of messages, such as the recovery of a topic, so that TCP slows down the service.

use std::time::Duration;

use crate::protocol::QUEUE_MAX;
use crate::shared::Shared;

/// Above this number of waiting messages the client reads no faster than the application handles them.
const ABOVE: usize = QUEUE_MAX * 3 / 4;
/// An application that needs longer does not slow down reading: the queue fills, and the machine disconnects (L2).
const WAIT: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Throttle {
    /// What had been handled at the end of a wait in which nothing was.
    stalled_at: Option<u64>,
}

impl Throttle {
    pub(crate) async fn wait(&mut self, shared: &Shared) {
        loop {
            let settled = shared.settled.notified();
            let (waiting, count) = shared.progress();
            if waiting < ABOVE {
                self.stalled_at = None;
                return;
            }
            if self.stalled_at == Some(count) {
                return;
            }
            self.stalled_at = None;
            if tokio::time::timeout(WAIT, settled).await.is_err() {
                self.stalled_at = Some(count);
                return;
            }
        }
    }
}
