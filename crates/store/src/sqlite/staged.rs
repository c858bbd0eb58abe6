//! Rows of a group that are not written yet: inbox rows, and acknowledgements as outcomes.
//!
//! The operations of a group add rows to inboxes in random order. The writer collects these rows, and writes them in
//! the order of the table's key: each page of the table is then changed once, while it is in the processor's cache,
//! and outside of the operations' savepoints, which copy every page before its first change. Together this saves a
//! quarter of the CPU per row.
//!
//! The acknowledgements of a notification by all devices of a group become one row of its trace
//! ([`crate::engine::ack`]).
//!
//! Rows are staged within a group only. An operation that reads inboxes or traces runs after the rows are written (see
//! [`super::writer`]).

use std::collections::HashMap;

use noroshi_types::{DeviceNum, Timestamp};

use super::options::Options;
use super::statement::Db;
use super::{campaign_sum, outcome};
use crate::engine::ack::Acknowledged;
use crate::ids::Num;
use crate::{Error, engine};

/// Adds a row to an inbox.
pub(super) const INSERT: &str = "INSERT INTO inbox (device, num, collapse_key) VALUES (?1, ?2, ?3)";
/// Rows at which they are written within a group, and rows of one operation that are not staged: 1 MiB.
const ROWS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct Staged {
    rows: Vec<(DeviceNum, Num)>,
    /// The rows of each device among the first `counted` ones. Brought up to date only when an inbox is full.
    counts: HashMap<DeviceNum, u32>,
    counted: usize,
    /// Acknowledged notifications.
    acked: Vec<Acknowledged>,
    /// Accepted notifications since rows were written last, whether they staged rows or not.
    operations: u32,
}

/// How much was staged at some moment.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    rows: usize,
    acked: usize,
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

    /// Whether the rows must be written before the next operation. Evictions remove written rows only. An inbox has
    /// enough of them, because fewer notifications than `inbox_rows` were accepted since rows were written last.
    pub(super) fn is_full(&self, inbox_rows: u32) -> bool {
        self.operations >= inbox_rows.max(1) || self.rows.len() >= ROWS_MAX || self.acked.len() >= ROWS_MAX
    }

    pub(super) fn add(&mut self, device: DeviceNum, num: Num) {
        self.rows.push((device, num));
    }

    pub(super) fn add_acked(&mut self, num: Num, at: Timestamp, device: DeviceNum) {
        self.acked.push((num, at, device));
    }

    /// How many rows of a device are staged. Each row is counted once, however often this is called.
    pub(super) fn rows_of(&mut self, device: DeviceNum) -> u32 {
        for (of, _) in &self.rows[self.counted..] {
            *self.counts.entry(*of).or_default() += 1;
        }
        self.counted = self.rows.len();
        self.counts.get(&device).copied().unwrap_or(0)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len() + self.acked.len()
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { rows: self.rows.len(), acked: self.acked.len() }
    }

    /// Removes what an operation that failed has staged since `mark`.
    pub(super) fn truncate(&mut self, mark: Mark) {
        for (of, _) in self.rows.iter().take(self.counted).skip(mark.rows) {
            if let Some(count) = self.counts.get_mut(of) {
                *count -= 1;
            }
        }
        self.counted = self.counted.min(mark.rows);
        self.rows.truncate(mark.rows);
        self.acked.truncate(mark.acked);
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.counts.clear();
        self.counted = 0;
        self.acked.clear();
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
        self.write_acked(db)?;
        self.clear();
        Ok(())
    }

    fn write_acked(&mut self, db: &Db) -> Result<(), Error> {
        for part in engine::ack::parts(std::mem::take(&mut self.acked)) {
            outcome::add(db, &part)?;
            campaign_sum::count_variant(db, part.num, part.outcome, "", part.count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_rows_are_counted_by_device() {
        let (one, two, mut staged) = (DeviceNum(1), DeviceNum(2), Staged::default());
        staged.add(one, 10);
        assert_eq!((staged.rows_of(one), staged.rows_of(two)), (1, 0));
        let mark = staged.mark();
        staged.add(one, 11);
        staged.add(two, 11);
        assert_eq!((staged.rows_of(one), staged.rows_of(two)), (2, 1));
        // One more row that is not counted when the operation fails.
        staged.add(two, 12);
        staged.truncate(mark);
        assert_eq!((staged.rows_of(one), staged.rows_of(two)), (1, 0));
        staged.add(two, 13);
        assert_eq!((staged.rows_of(one), staged.rows_of(two)), (1, 1));
        staged.clear();
        assert_eq!((staged.rows_of(one), staged.rows_of(two)), (0, 0));
    }
}
