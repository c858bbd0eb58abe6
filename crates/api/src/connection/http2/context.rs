//! The state that the streams of a connection share, and how a stream ends.

use super::response::Unsent;
use crate::connection::handle::Handle;
use crate::connection::serving::{Http2, Peer, Serving};

/// The state that the streams of a connection share.
#[derive(Clone, Copy)]
pub(super) struct StreamContext<'a> {
    pub(super) serving: &'a Serving,
    pub(super) http2: &'a Http2,
    pub(super) peer: Peer,
    pub(super) handle: &'a Handle,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answered, or reset by the node.
    Done,
    /// The client cancelled it.
    Cancelled,
    /// The client closed an event stream, which has no end of its own.
    Left,
    /// The client must use another connection.
    Last,
}

impl From<Result<(), Unsent>> for Outcome {
    fn from(sent: Result<(), Unsent>) -> Self {
        match sent {
            Ok(()) | Err(Unsent::Reset) => Outcome::Done,
            Err(Unsent::Cancelled) => Outcome::Cancelled,
        }
    }
}
