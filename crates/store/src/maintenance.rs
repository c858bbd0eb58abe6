//! Maintenance: removing expired rows, health checks, the position in the order of commits, and leader election among
//! nodes.

use std::time::Duration;

use noroshi_types::{NotificationId, Timestamp};

use crate::{Error, RemovedMessages};

/// Rows removed by one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    pub inbox: u64,
    /// The inbox rows by notification, with [`noroshi_types::Outcome::Expired`], or [`noroshi_types::Outcome::Collapsed`]
    /// after a notification to a large condition.
    pub departed: RemovedMessages,
    pub topic_log: u64,
    pub notifications: u64,
    pub idempotency: u64,
    /// Records of invalidated tokens ([`crate::Invalidation`]).
    pub invalidations: u64,
    /// Push tokens that expired.
    pub push_tokens: u64,
    /// Rows of attempts at pushes ([`crate::PushRecord`]).
    pub push_records: u64,
    /// Lines uploaded for campaigns that have ended.
    pub campaign_lines: u64,
    /// Items of users.
    pub items: u64,
    /// Rows of deleted devices whose tokens have expired.
    pub deleted_devices: u64,
    /// Topics that nothing has needed for a while.
    pub topics: u64,
    /// There may be more to remove.
    pub more: bool,
}

/// A position in the order of commits: everything up to it is committed and visible, and later acceptances come after it. Only
/// places of the same store can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place(pub i64);

impl Place {
    /// Right after a stored notification.
    pub fn of(id: NotificationId) -> Self {
        Self(crate::ids::place(id))
    }
}

#[async_trait::async_trait]
pub trait Maintenance: Send + Sync {
    /// Removes expired rows, at most `rows_max` of each kind so that no commit takes long, rows of deleted apps, topics that
    /// nothing has needed for a while, and what notifications to large conditions left behind. Expired inbox rows are recorded as [`noroshi_types::Outcome::Expired`].
    async fn prune(&self, now: Timestamp, rows_max: usize) -> Result<Pruned, Error>;
    /// Writes and reads a value. An error means that nothing can be accepted now.
    async fn check(&self) -> Result<(), Error>;
    /// The place of the last commit that accepted a notification.
    async fn place(&self) -> Result<Place, Error>;
    /// Makes `holder` the leader of a task among all nodes of the store for `lease` from now on, by the engine's
    /// clock; false while another node leads. A leader renews before its lease ends. A single node always leads.
    async fn lead(&self, task: &str, holder: u64, lease: Duration) -> Result<bool, Error>;
    /// Ends the leadership early; does nothing if `holder` does not lead.
    async fn release_lead(&self, task: &str, holder: u64) -> Result<(), Error>;
    /// Finishes queued work, then closes. Later calls get [`Error::Closed`].
    async fn close(&self);
}
