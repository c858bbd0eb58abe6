//! Errors between nodes. The variants differ in what the caller does next.

use std::borrow::Cow;

use crate::Epoch;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The engine is unreachable or did not answer in time: continue with this node only, and retry later. The call may
    /// have taken effect; every call of this crate may be repeated.
    #[error("the cluster engine is unavailable: {0}")]
    Unavailable(Cow<'static, str>),
    /// The part of the engine where these receivers listen is down; the messages of the others were accepted. Needs no
    /// action: the receivers detect the loss and read the store.
    #[error("{} of the nodes are unreachable", .0.len())]
    Partly(Vec<Epoch>),
    /// This node holds no lease, or another epoch: wait for `Receiver::joined`.
    #[error("this node's lease expired")]
    Lost,
    /// A bounded queue is full: reject the work, or do it on this node only.
    #[error("too many requests to the cluster engine")]
    Overloaded,
    /// No retry helps.
    #[error("a message of {bytes} bytes exceeds the limit of {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    /// The engine returned an error (rights, memory, version): an operator has to act.
    #[error("the cluster engine rejected a request: {0}")]
    Refused(String),
}
