//! Reading an inbox, and the removal of rows that were acknowledged, expired or cancelled. [`super::group`] removes the
//! rows that accepting replaces or evicts.
//!
//! A removal locks its rows ordered by device and notification, so that two removals of the same rows do not deadlock.

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

/// The statement of [`remove`]. A nested loop over the lists is its only plan ([`super::connect`] turns the other joins
/// off), so rows are locked in the order of the lists.
pub(super) const REMOVE: &str =
    "DELETE FROM inbox i USING unnest($1::bigint[], $2::bigint[]) AS asked (device, num)
     WHERE i.device = asked.device AND i.num = asked.num RETURNING i.device, i.num";

/// Removes rows by pairs of device and notification. Returns those that existed.
pub(super) async fn remove(tx: &Tx, devices: &[i64], nums: &[Num]) -> Result<Vec<(DeviceNum, Num)>, Failed> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let mut pairs: Vec<(i64, Num)> = devices.iter().copied().zip(nums.iter().copied()).collect();
    pairs.sort_unstable();
    let (devices, nums): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    Ok(tx.query(REMOVE, &[&devices, &nums]).await?.iter().map(pair_of).collect())
}

/// Reads the columns `device` and `num`.
pub(super) fn pair_of(row: &Row) -> (DeviceNum, Num) {
    (DeviceNum(row.get::<_, i64>(0) as u64), row.get(1))
}
