//! Keeping the store small and knowing whether it works.

use noroshi_types::Timestamp;

use crate::Error;

/// Rows removed by one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    pub inbox: u64,
    pub topic_log: u64,
    pub notifications: u64,
    pub idempotency: u64,
    /// Of tokens ([`crate::Invalidation`]).
    pub invalidations: u64,
    /// Uploaded for campaigns that have ended.
    pub campaign_lines: u64,
    /// There is more to remove.
    pub more: bool,
}

#[async_trait::async_trait]
pub trait Maintenance: Send + Sync {
    /// Removes what has expired, at most `rows_max` of each kind so that no commit is held up for
    /// long; inbox rows that expire are recorded as [`noroshi_types::Outcome::Expired`].
    async fn prune(&self, now: Timestamp, rows_max: usize) -> Result<Pruned, Error>;
    /// Writes and reads: an error means that nothing can be accepted now.
    async fn check(&self) -> Result<(), Error>;
    /// Finishes what was queued, then closes. Later calls get [`Error::Closed`].
    async fn close(&self);
}
