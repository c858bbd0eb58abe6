//! The time series of the console: rows of figures, by step, time and node. What a row holds is the business of the
//! crate `series`; the store keeps bytes.

use noroshi_types::Timestamp;

use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesRow {
    pub step_s: u32,
    /// The begin of the step.
    pub at: Timestamp,
    /// Empty: all nodes together.
    pub node: String,
    pub data: Vec<u8>,
}

/// Rows of a step, from the first time, before the second one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesRange {
    pub step_s: u32,
    pub from: Timestamp,
    pub until: Timestamp,
    pub rows_max: usize,
}

/// Which rows of a step stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesBound {
    pub step_s: u32,
    /// Older rows are removed,
    pub since: Timestamp,
    /// and rows after this, which a node with a wrong clock wrote.
    pub until: Timestamp,
    /// At most about this many rows stay, the newest ones: all rows of a time go together.
    pub rows_max: usize,
    /// How many rows one call removes; a few more if they have the same time.
    pub removed_max: usize,
}

#[async_trait::async_trait]
pub trait SeriesStore: Send + Sync {
    /// Replaces rows of the same step, time and node.
    async fn write_series(&self, rows: Vec<SeriesRow>) -> Result<(), Error>;
    /// Ordered by time, then node.
    async fn series(&self, range: SeriesRange) -> Result<Vec<SeriesRow>, Error>;
    /// The time of the newest row of a step before `before`.
    async fn newest_series(&self, step_s: u32, before: Timestamp) -> Result<Option<Timestamp>, Error>;
    /// Returns how many rows it removed.
    async fn prune_series(&self, bounds: Vec<SeriesBound>) -> Result<u64, Error>;
}
