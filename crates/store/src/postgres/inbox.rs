//! Reading an inbox, and the removal of rows that were acknowledged, expired or cancelled. [`super::group`] removes the
//! rows that accepting replaces or evicts.
//!
//! A removal first locks its rows, ordered by device and notification, so that two removals of the same rows do not
//! deadlock.

use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, DeviceNum, Message, Timestamp};
use tokio_postgres::Row;

use super::backlog::{self, PageRequest};
use super::transaction::{Failed, Tx};
use crate::engine::inbox::Range;
use crate::ids::Num;
use crate::{Error, InboxPage, InboxRange, engine};

/// Part of an inbox; `None` if the message to start at is not in it.
pub(crate) async fn range(tx: &Tx, asked: &InboxRange) -> Result<Option<InboxPage>, Failed> {
    let Some(Range { nums, index, total }) = engine::inbox::range(tx, tx.ids(), asked).await? else {
        return Ok(None);
    };
    Ok(Some(InboxPage { messages: backlog::messages_in_order(tx, &nums).await?, index, total }))
}

/// The oldest `limit` messages that have not expired, and how many there are in all.
pub(crate) async fn list(
    tx: &Tx,
    app: AppId,
    device: &DeviceId,
    limit: usize,
    now: Timestamp,
) -> Result<(Vec<Arc<Message>>, u64), Failed> {
    let device = engine::device::number(tx, app, device).await?.ok_or(Error::NotFound)?;
    let requests = [PageRequest { device: Some(device), after: 0, sources: Vec::new(), retained: None, now }];
    let (total, nums) = tokio::try_join!(
        engine::inbox::unread(tx, device, now),
        backlog::inbox_nums(tx, &requests, limit as i64)
    )?;
    Ok((backlog::messages_in_order(tx, &nums.concat()).await?, total))
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
