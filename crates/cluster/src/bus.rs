//! Messages between nodes: at most once, in order for each pair of nodes, and a loss is noticed.
//!
//! The bus keeps nothing: what must not be lost is in the store, and [`Receiver::lost`] says when to look there. Loss
//! shows by a gap of sequence numbers, by a heartbeat that follows the last message of a burst (so a lost tail shows
//! after a second), by a reconnected subscription, and by a lapsed lease.

use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Epoch, Error};

/// The largest message (one request's payload of at most 1 MiB and its many targets fit several times).
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

#[async_trait]
pub trait Bus: Send + Sync {
    /// In order for each receiver; resolves when the engine has taken all of them. A receiver that is gone is no
    /// error, and one whose part of the engine is away holds up no other: `Error::Partly`. Messages of concurrent calls keep the order in which the calls were first polled. A message to one's own
    /// epoch takes the same way as any other. Not cancel-safe: dropped, what was handed over may still be sent.
    async fn send(&self, messages: Vec<(Epoch, Bytes)>) -> Result<(), Error>;
}

/// What a node is told. Calls come one at a time and must not block: enqueue.
pub trait Receiver: Send + Sync {
    /// A message for the epoch this node holds at this moment. `from` may already be gone.
    fn receive(&self, from: Epoch, message: Bytes);
    /// Messages may have been lost since `since`.
    fn lost(&self, since: Instant);
    /// A lease was gained: all sessions are to be put in again (`Directory::keep`), then what was missed is to be made
    /// good. Also called with the epoch already held, when the engine may have forgotten entries (it restarted, or a
    /// replica took over): put all in again, the epoch stays good.
    fn joined(&self, epoch: Epoch);
    /// The lease lapsed: nothing is received until `joined`. Connections stay.
    fn left(&self);
    /// `Members::nodes` has other nodes or other facts about them.
    fn nodes_changed(&self);
}
