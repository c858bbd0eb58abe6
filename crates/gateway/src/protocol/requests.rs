//! Jobs of one shard's connections that wait for their turn or run.
//!
//! Bounds: [`super::mqtt::JOBS_MAX`] jobs in a connection's own order, [`super::mqtt::scan::SCANS_MAX`] scans of retained
//! messages, each of another app, and [`QUERIES_MAX`] queries without an order.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use super::adapter::At;
use super::mqtt::Task;
use super::mqtt::scan::Scans;

/// Queries of one shard that run at once. The clients of further ones have to come back.
pub(crate) const QUERIES_MAX: usize = 256;

/// What a connection's turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its next job.
    Job,
    /// A scan of retained messages, which is its next job.
    Scan,
}

#[derive(Default)]
pub(crate) struct PendingRequests {
    /// Connections whose next job waits for its turn.
    pub(crate) waiting: VecDeque<At>,
    /// Jobs that run.
    pub(crate) running: usize,
    pub(crate) scans: Scans,
    /// Tasks that connections left behind the job that runs.
    pub(crate) orphans: HashMap<At, VecDeque<Task>>,
    /// Queries that run.
    pub(crate) queries: usize,
    /// By slot: the last message that an XMPP connection publishes, until it has its place in the order. The next one
    /// waits for that.
    pub(crate) publishing: HashMap<u32, oneshot::Receiver<()>>,
}

impl PendingRequests {
    /// Takes a place for a query. False if there is none.
    pub(crate) fn begin_query(&mut self) -> bool {
        let has_room = self.queries < QUERIES_MAX;
        self.queries += usize::from(has_room);
        has_room
    }
}
