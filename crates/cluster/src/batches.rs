//! The queue of push batches between the dispatcher and the senders: at least once, one stream per lane.
//!
//! The queue is not the system of record. The store knows which batches are due; if the queue loses one, its lease in
//! the store expires and the store hands it out again. A batch that a sender pulled and neither extended nor finished
//! goes to another sender after [`CLAIM_AFTER`]. Two senders may thus pull the same batch; the store decides which of
//! them owns it.
//!
//! Implementations: [`InProcess`], `redis::Batches` (streams), and SQS in its own crate. All of them pass the suite in
//! `tests/it/batches`.

mod in_process;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Error;
pub use in_process::InProcess;

/// How long a pulled batch belongs to its puller without an extension.
pub const CLAIM_AFTER: Duration = Duration::from_secs(30);

/// A batch for a sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedBatch {
    /// The store's `BatchId`.
    pub key: u64,
    pub lane: u8,
    pub body: Bytes,
}

/// Identifies a pulled batch to its queue (an entry id, a receipt handle).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub lane: u8,
    pub handle: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub parcel: QueuedBatch,
    pub receipt: Receipt,
    /// How often it was pulled, including this time.
    pub deliveries: u32,
}

/// The depth of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneDepth {
    pub lane: u8,
    /// Queued, including pulled ones.
    pub parcels: u64,
    /// Pulled and not finished.
    pub pulled: u64,
}

#[async_trait]
pub trait BatchQueue: Send + Sync {
    /// Resolves when the queue has stored all of them.
    async fn put(&self, parcels: Vec<QueuedBatch>) -> Result<(), Error>;

    /// At most `max`, lanes in the given order: first those left behind by dead senders, then new ones. Waits at most
    /// `wait` for the first. If the future is dropped, it may have pulled batches, which others get after
    /// [`CLAIM_AFTER`].
    async fn pull(&self, lanes: &[u8], max: usize, wait: Duration) -> Result<Vec<Received>, Error>;

    /// Extends the ownership of these to `time` from now.
    async fn extend(&self, receipts: &[Receipt], time: Duration) -> Result<(), Error>;

    /// Removes queued batches that are finished in the store.
    async fn done(&self, receipts: Vec<Receipt>) -> Result<(), Error>;

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error>;
}
