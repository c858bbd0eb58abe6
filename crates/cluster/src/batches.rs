//! The queue of push batches between the dispatcher and the senders: at least once, one stream for each lane.
//!
//! It keeps nothing that must not be lost: the store stays what is owed, and a parcel that the queue lost is taken there
//! again when the store's own lease of the batch lapses. What a sender pulled and neither extended nor finished is
//! pulled by another one after [`CLAIM_AFTER`]. So a parcel may be pulled by two; whose its batch is the store says.
//!
//! Implementations: [`InProcess`], `redis::Batches` (streams), and SQS in a crate of its own. `tests/it/batches` is the suite
//! that all of them pass.

mod in_process;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Error;
pub use in_process::InProcess;

/// How long a pulled parcel is the puller's without a word.
pub const CLAIM_AFTER: Duration = Duration::from_secs(30);

/// A batch on its way to a sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// The store's `BatchId`.
    pub key: u64,
    pub lane: u8,
    pub body: Bytes,
}

/// What names a pulled parcel to its queue (an entry id, a receipt handle).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub lane: u8,
    pub handle: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub parcel: Parcel,
    pub receipt: Receipt,
    /// How often it was pulled, this time included.
    pub deliveries: u32,
}

/// What waits in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneDepth {
    pub lane: u8,
    /// In the queue, pulled ones included.
    pub parcels: u64,
    /// Pulled and not done.
    pub pulled: u64,
}

#[async_trait]
pub trait BatchQueue: Send + Sync {
    /// Resolves when the queue has all of them.
    async fn put(&self, parcels: Vec<Parcel>) -> Result<(), Error>;

    /// At most `max`, lanes in the order named: what is left behind by dead senders first, then new ones. Waits at most
    /// `wait` for the first. Dropped while it waits it may have pulled parcels, which others get after [`CLAIM_AFTER`].
    async fn pull(&self, lanes: &[u8], max: usize, wait: Duration) -> Result<Vec<Received>, Error>;

    /// They stay the puller's for `time` from now.
    async fn extend(&self, receipts: &[Receipt], time: Duration) -> Result<(), Error>;

    /// Finished in the store: the queue forgets them.
    async fn done(&self, receipts: Vec<Receipt>) -> Result<(), Error>;

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error>;
}
