//! Messages between nodes: at most once, in order for each pair of nodes, with loss detection.
//!
//! The bus stores nothing: the store has everything that must not be lost, and [`Receiver::lost`] tells the node to
//! read it. Signs of a loss are a gap in the sequence numbers, a heartbeat after the last message of a burst (which
//! reveals a lost tail within a second), a new subscription, and an expired lease.

use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Epoch, Error};

/// The largest message. One request with a payload of at most 1 MiB and its targets fits several times.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// The largest frame, which carries several messages, or a part of one. Redis closes a subscriber whose unsent output
/// grows too large (by default 8 MiB for a minute, or 32 MiB at once).
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;

#[async_trait]
pub trait Bus: Send + Sync {
    /// In order for each receiver. Resolves when the engine, or each receiver itself, has accepted all messages: of two
    /// calls, of any nodes, one that begins after the other has resolved comes after it at each receiver. A receiver that no longer exists
    /// is not an error. A receiver whose part of the engine is down does not delay the others: `Error::Partly`.
    /// Messages of concurrent calls keep the order in which the calls were first polled. A message to the node's own
    /// epoch takes the same path. Not cancel-safe: if dropped, the messages may still be sent.
    async fn send(&self, messages: Vec<(Epoch, Bytes)>) -> Result<(), Error>;
}

/// The events of a node. Calls come one at a time and must not block: enqueue.
pub trait Receiver: Send + Sync {
    /// A message for the epoch that this node holds now. `from` may no longer exist.
    fn receive(&self, from: Epoch, message: Bytes);
    /// Messages since `since` may be lost.
    fn lost(&self, since: Instant);
    /// The node gained a lease: register all sessions again (`Directory::keep`), then recover missed messages. Also
    /// called with the present epoch when the engine may have lost entries (it restarted, or a replica took over):
    /// register all again, the epoch stays valid.
    fn joined(&self, epoch: Epoch);
    /// The lease expired: the node receives nothing until `joined`. Connections stay open.
    fn left(&self);
    /// `Members::nodes` changed.
    fn nodes_changed(&self);
}
