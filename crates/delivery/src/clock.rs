//! The time of day. Tests set it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use noroshi_types::Timestamp;

/// Cheap to clone and to read.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    pub fn system() -> Self {
        Self(None)
    }

    /// Does not move until [`Clock::set`].
    pub fn fixed(now: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicU64::new(now.0))))
    }

    /// Sets a clock made by [`Clock::fixed`]. Has no effect on the system clock.
    pub fn set(&self, now: Timestamp) {
        if let Some(time) = &self.0 {
            time.store(now.0, Ordering::SeqCst);
        }
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Some(time) => Timestamp(time.load(Ordering::SeqCst)),
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }
        }
    }
}
