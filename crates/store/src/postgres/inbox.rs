//! Rows that leave inboxes for their own sake: confirmed, expired, cancelled. What a group of accepts pushes out is
//! [`super::group`]'s.
//!
//! Whoever removes rows locks them by device and notification first, so that of two who remove some of the same
//! none waits for the other in a circle.

use noroshi_types::DeviceNum;
use tokio_postgres::Row;

use super::transaction::{Failed, Tx};
use crate::ids::Num;

/// What [`remove`] runs.
pub(super) const REMOVE: &str = "WITH found AS (
        SELECT i.device, i.num FROM unnest($1::bigint[], $2::bigint[]) AS asked (device, num)
        JOIN inbox i ON i.device = asked.device AND i.num = asked.num ORDER BY i.device, i.num FOR UPDATE OF i)
    DELETE FROM inbox i USING found WHERE i.device = found.device AND i.num = found.num
    RETURNING i.device, i.num";

/// Removes the rows of these devices and notifications, pair by pair; those that were there.
pub(super) async fn remove(tx: &Tx, devices: &[i64], nums: &[Num]) -> Result<Vec<(DeviceNum, Num)>, Failed> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    Ok(tx.query(REMOVE, &[&devices, &nums]).await?.iter().map(pair_of).collect())
}

/// Of the columns `device` and `num`.
pub(super) fn pair_of(row: &Row) -> (DeviceNum, Num) {
    (DeviceNum(row.get::<_, i64>(0) as u64), row.get(1))
}
