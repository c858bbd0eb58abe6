//! The time of day, replaceable in tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use noroshi_types::Timestamp;

/// Cheap to clone and to ask.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    pub fn system() -> Self {
        Self(None)
    }

    /// Stands still until [`Clock::set`].
    pub fn fixed(now: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicU64::new(now.0))))
    }

    /// Only for a clock made by [`Clock::fixed`]; the system's cannot be set.
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
