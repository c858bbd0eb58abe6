//! Tests against a server of this process.

mod batches;
mod requests;
mod stub;

use std::sync::Mutex;
use std::time::Duration;

/// Does not wait.
pub(crate) struct Clock {
    waits: Mutex<Vec<Duration>>,
    random: Mutex<f64>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { waits: Mutex::default(), random: Mutex::new(0.5) }
    }
}

impl Clock {
    pub(crate) fn waited(&self) -> Duration {
        self.waits().iter().sum()
    }

    pub(crate) fn wait(&self, wait: Duration) {
        self.waits.lock().expect("no panic").push(wait);
    }

    pub(crate) fn random(&self) -> f64 {
        *self.random.lock().expect("no panic")
    }

    fn waits(&self) -> Vec<Duration> {
        self.waits.lock().expect("no panic").clone()
    }
}
