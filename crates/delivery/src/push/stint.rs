//! Turns for other tasks, in loops that seldom wait.
//!
//! A task that computes for milliseconds keeps its thread from requests that are due, such as those of other apps:
//! tokio takes a thread from a task only where that waits.

use std::time::{Duration, Instant};

/// About what one request of the API costs.
const STINT: Duration = Duration::from_micros(200);

pub(crate) struct Stint {
    began: Instant,
}

impl Stint {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now() }
    }

    /// Lets other tasks run where this one has computed for long enough. Cancel-safe.
    pub(crate) async fn rest(&mut self) {
        if self.began.elapsed() >= STINT {
            tokio::task::yield_now().await;
            self.began = Instant::now();
        }
    }
}
