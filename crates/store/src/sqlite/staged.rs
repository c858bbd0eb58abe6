//! Inbox rows of a group that are not written yet.
//!
//! The operations of a group add rows to inboxes in random order. The writer collects these rows, and writes them in
//! the order of the table's key: each page of the table is then changed once, while it is in the processor's cache,
//! and outside of the operations' savepoints, which copy every page before its first change. Together this saves a
//! quarter of the CPU per row.
//!
//! Rows are staged within a group only. An operation that uses inboxes other than by adding rows runs after the rows
//! are written (see [`super::writer`]).

use noroshi_types::DeviceNum;

use super::options::Options;
use super::statement::Db;
use crate::Error;
use crate::ids::Num;

/// Adds a row to an inbox.
pub(super) const INSERT: &str = "INSERT INTO inbox (device, num, collapse_key) VALUES (?1, ?2, ?3)";
/// Rows at which they are written within a group, and rows of one operation that are not staged: 1 MiB.
const ROWS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct Staged {
    rows: Vec<(DeviceNum, Num)>,
    /// Accepted notifications since rows were written last, whether they staged rows or not.
    operations: u32,
}

impl Staged {
    /// Counts a notification that may add a row to any inbox.
    pub(super) fn count_operation(&mut self) {
        self.operations = self.operations.saturating_add(1);
    }

    /// Whether an operation may stage `rows` rows; otherwise it writes them itself. With a limit of the database's
    /// size it does so, because only the operation that does not fit must fail. Rows of a large operation are in
    /// order anyway.
    pub(super) fn takes(&self, rows: usize, options: &Options) -> bool {
        rows <= ROWS_MAX && options.database_bytes_max.is_none()
    }

    /// Whether the rows must be written before the next notification. Evictions remove written rows only. An inbox has
    /// enough of them, because fewer notifications than `inbox_rows` were accepted since rows were written last.
    pub(super) fn is_full(&self, inbox_rows: u32) -> bool {
        self.operations >= inbox_rows.max(1) || self.rows.len() >= ROWS_MAX
    }

    pub(super) fn add(&mut self, device: DeviceNum, num: Num) {
        self.rows.push((device, num));
    }

    /// How many rows of a device are staged.
    pub(super) fn rows_of(&self, device: DeviceNum) -> u32 {
        self.rows.iter().filter(|(of, _)| *of == device).count() as u32
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Removes the rows of an operation that failed.
    pub(super) fn truncate(&mut self, len: usize) {
        self.rows.truncate(len);
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.operations = 0;
    }

    /// Writes all rows, in the current transaction.
    pub(super) fn write(&mut self, db: &Db) -> Result<(), Error> {
        if !self.rows.is_empty() {
            self.rows.sort_unstable();
            let mut insert = db.prepare_cached(INSERT)?;
            for &(device, num) in &self.rows {
                insert.execute((device.0 as i64, num, None::<&str>))?;
            }
        }
        self.clear();
        Ok(())
    }
}
