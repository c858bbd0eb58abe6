//! The clock for leases: it advances while the process is stopped and while the machine sleeps, and cannot be set.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Earlier than any other moment.
    pub(crate) const PAST: Self = Self(0);

    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let ns = time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
        Self(u64::try_from(ns).unwrap_or_default())
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Zero if it is in the past.
    pub(crate) fn remaining(self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(Self::now().0))
    }

    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }
}
