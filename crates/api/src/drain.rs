//! The interface to a drain. The gateway drains devices, and the node implements [`Drain`] with it, since `api` and `gateway`
//! do not know each other.

use std::time::Duration;

use noroshi_types::Timestamp;
use noroshi_types::names;

use crate::body::DrainRequest;

/// Moves the devices of the node to other nodes.
pub trait Drain: Send + Sync {
    /// Starts a drain, or changes one in progress. Does not wait.
    fn begin(&self, request: DrainRequest) -> Result<(), Stopping>;

    /// Accepts devices again. Does nothing without a drain.
    fn cancel(&self) -> Result<(), Stopping>;

    fn report(&self) -> DrainReport;
}

/// The node is stopping, so its drain cannot be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopping;

/// The state of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainReport {
    pub state: DrainState,
    /// Open connections of devices.
    pub connections: usize,
    pub progress: Option<DrainProgress>,
}

/// The progress of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainProgress {
    pub rate_per_second: u32,
    pub spread: Duration,
    pub moved: u64,
    pub started_at: Timestamp,
    /// When all remaining devices are moved at once. None: never.
    pub deadline_at: Option<Timestamp>,
}

names! {
    /// Whether the node serves devices.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum DrainState {
        Serving => "serving",
        Draining => "draining",
        Drained => "drained",
        Stopping => "stopping",
    }
}
