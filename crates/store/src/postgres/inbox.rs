//! Ranges of an inbox, and the removal of rows that were acknowledged, expired or cancelled. [`super::group`] removes the
//! rows that accepting replaces or evicts.
//!
//! A removal first locks its rows, ordered by device and notification, so that two removals of the same rows do not
//! deadlock.

use noroshi_types::DeviceNum;
use tokio_postgres::Row;

use super::backlog;
use super::transaction::{Failed, Tx};
use crate::engine::inbox::Range;
use crate::ids::{Ids, Num};
use crate::{InboxPage, InboxRange, engine};

/// Part of an inbox; `None` if the message to start at is not in it.
pub(super) async fn range(tx: &Tx, ids: &Ids, asked: &InboxRange) -> Result<Option<InboxPage>, Failed> {
    let Some(Range { nums, index, total }) = engine::inbox::range(tx, ids, asked).await? else {
        return Ok(None);
    };
    let messages = backlog::messages(tx, ids, &nums).await?;
    let messages = nums.iter().filter_map(|num| messages.get(num).cloned()).collect();
    Ok(Some(InboxPage { messages, index, total }))
}

/// The statement of [`remove`].
pub(super) const REMOVE: &str = "WITH found AS (
        SELECT i.device, i.num FROM unnest($1::bigint[], $2::bigint[]) AS asked (device, num)
        JOIN inbox i ON i.device = asked.device AND i.num = asked.num ORDER BY i.device, i.num FOR UPDATE OF i)
    DELETE FROM inbox i USING found WHERE i.device = found.device AND i.num = found.num
    RETURNING i.device, i.num";

/// Removes rows by pairs of device and notification. Returns those that existed.
pub(super) async fn remove(tx: &Tx, devices: &[i64], nums: &[Num]) -> Result<Vec<(DeviceNum, Num)>, Failed> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    Ok(tx.query(REMOVE, &[&devices, &nums]).await?.iter().map(pair_of).collect())
}

/// Reads the columns `device` and `num`.
pub(super) fn pair_of(row: &Row) -> (DeviceNum, Num) {
    (DeviceNum(row.get::<_, i64>(0) as u64), row.get(1))
}
