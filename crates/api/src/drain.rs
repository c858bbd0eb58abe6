//! What this crate has to know of moving devices away: it is the gateway's work, which the node puts
//! behind [`Drain`], since the two crates do not know each other.

use std::time::Duration;

use noroshi_types::Timestamp;

use crate::body::DrainWish;

/// Empties the node of devices, or lets them in again.
pub trait Drain: Send + Sync {
    /// Begins, or changes how it is done. Does not wait.
    fn begin(&self, wish: DrainWish) -> Result<(), Stopping>;

    /// Lets devices in again; nothing happens where they are let in.
    fn cancel(&self) -> Result<(), Stopping>;

    fn report(&self) -> DrainReport;
}

/// The node ends: there is nothing left to order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopping;

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainReport {
    pub state: DrainState,
    /// Connections of devices that are still open.
    pub connections: usize,
    pub progress: Option<DrainProgress>,
}

/// Of a drain under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainProgress {
    pub rate_per_second: u32,
    pub spread: Duration,
    pub moved: u64,
    pub started_at: Timestamp,
    /// When the rest is told at once; none: never.
    pub deadline_at: Option<Timestamp>,
}

/// Whether the node serves devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainState {
    Serving,
    Draining,
    Drained,
    Stopping,
}

impl DrainState {
    pub fn as_str(self) -> &'static str {
        match self {
            DrainState::Serving => "serving",
            DrainState::Draining => "draining",
            DrainState::Drained => "drained",
            DrainState::Stopping => "stopping",
        }
    }
}
