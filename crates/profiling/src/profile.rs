//! What a caller requests and what it gets: the types that all other modules share. Names none of them.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

/// The longest CPU profile on demand: long enough to see something, short enough to wait for.
pub const SECONDS_MAX: u64 = 60;

/// Samples per second of CPU time. The kernel's tick limits the rate.
pub const HZ_MAX: u32 = 250;

/// Differs from common timer rates, so that sampling does not align with periodic work.
pub const HZ_DEFAULT: u32 = 99;

/// A request for a CPU profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub duration: Duration,
    /// Samples per second of CPU time, 1 to [`HZ_MAX`].
    pub hz: u32,
}

/// How precisely a profile names a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Function names only.
    Functions,
    /// Also inlined functions, files and lines. docs/performance.md states the cost.
    Lines,
}

/// Why there is no profile. The variants differ in what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Use another build.
    #[error("this program was built without {what} (feature `{feature}`)")]
    NotBuilt { what: &'static str, feature: &'static str },
    /// Retry when the running profile is done.
    #[error("another CPU profile is in progress; try again later")]
    Busy,
    /// The build supports profiles, but this process cannot take one.
    #[error("cannot take a profile: {0}")]
    Failed(String),
}

/// A profile in pprof's format, compressed with gzip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub pprof: Bytes,
    /// Number of distinct stacks; 0 if nothing ran.
    pub stacks: usize,
    pub from: SystemTime,
    pub until: SystemTime,
    /// CPU time of the thread that wrote the profile. Excludes the time that sampling took from other threads.
    pub cost: Duration,
}

/// CPU time of the calling thread so far.
#[cfg(feature = "cpu")]
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
