//! Keeping the store small, knowing whether it works and how far it is, and who among the nodes sees to what.

use std::time::Duration;

use noroshi_types::{NotificationId, Timestamp};

use crate::{Departed, Error};

/// Rows removed by one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    pub inbox: u64,
    /// Whose those were: [`noroshi_types::Outcome::Expired`].
    pub expired: Departed,
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

/// A place in the order of commits: everything up to it is committed, and whatever is accepted later is
/// behind it. Only places of the same store are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place(pub i64);

impl Place {
    /// Right behind a notification that was kept.
    pub fn of(id: NotificationId) -> Self {
        Self(crate::ids::place(id))
    }
}

#[async_trait::async_trait]
pub trait Maintenance: Send + Sync {
    /// Removes what has expired, at most `rows_max` of each kind so that no commit is held up for
    /// long; inbox rows that expire are recorded as [`noroshi_types::Outcome::Expired`]. Also what is left of deleted
    /// apps.
    async fn prune(&self, now: Timestamp, rows_max: usize) -> Result<Pruned, Error>;
    /// Writes and reads: an error means that nothing can be accepted now.
    async fn check(&self) -> Result<(), Error>;
    /// The place of the last commit that accepted something.
    async fn place(&self) -> Result<Place, Error>;
    /// Makes `holder` the leader of a task among all nodes of the store for `lease` from now on, by the engine's
    /// clock; false while another holds it. A leader calls again before its lease ends. With one node it is
    /// always the leader.
    async fn lead(&self, task: &str, holder: u64, lease: Duration) -> Result<bool, Error>;
    /// Lets another take over at once; nothing if `holder` does not lead.
    async fn yield_lead(&self, task: &str, holder: u64) -> Result<(), Error>;
    /// Finishes what was queued, then closes. Later calls get [`Error::Closed`].
    async fn close(&self);
}
