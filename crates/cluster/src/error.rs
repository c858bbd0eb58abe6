//! What can go wrong between nodes, by what the caller does next.

use std::borrow::Cow;

use crate::Epoch;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The engine cannot be reached or did not answer in time: go on with this node alone and ask again later.
    /// What was asked for may have been done all the same; every call of this crate may be repeated.
    #[error("the cluster's engine is not available: {0}")]
    Unavailable(Cow<'static, str>),
    /// The part of the engine that these receivers listen at is away; the others' messages were taken. Nothing is to be
    /// done: they notice, and look in the store.
    #[error("{} of the nodes cannot be reached", .0.len())]
    Partly(Vec<Epoch>),
    /// This node holds no lease, or another one than the epoch that was named: wait for `Receiver::joined`.
    #[error("this node's lease lapsed")]
    Lost,
    /// A bounded queue is full: refuse the work, or do it on this node alone.
    #[error("too much waits for the cluster's engine")]
    Overloaded,
    /// No repetition helps.
    #[error("a message of {bytes} bytes is larger than the {bytes_max} that fit")]
    TooLarge { bytes: usize, bytes_max: usize },
    /// The engine answered an error: rights, memory, a version too old. An operator has to act.
    #[error("the cluster's engine refused: {0}")]
    Refused(String),
}
