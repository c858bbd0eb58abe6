//! How a notification of a group is written.

use crate::RemovedMessages;
use crate::engine::expansion::SlicedDevices;
use crate::ids::Num;

/// How an acceptance is written.
pub(in crate::postgres) enum Form {
    /// With all its rows.
    Whole,
    /// Its idempotency key was used before, so the answer is known.
    Repeated,
    /// Its inbox rows are written.
    Expanded(Expanded),
}

/// A notification whose inbox rows are written.
pub(in crate::postgres) struct Expanded {
    pub num: Num,
    pub kept: SlicedDevices,
    pub muted: SlicedDevices,
    pub departed: RemovedMessages,
}
