//! Ranges of an inbox, and the removal of rows that were acknowledged, expired or cancelled. [`super::group`] removes the
//! rows that accepting replaces or evicts.
//!
//! A removal first locks its rows, ordered by device and notification, so that two removals of the same rows do not
//! deadlock.

use noroshi_types::{AppId, DeviceId, DeviceNum};
use tokio_postgres::Row;

use super::backlog;
use super::transaction::{Failed, Tx};
use crate::engine::inbox::{Window, anchor};
use crate::engine::record::Record;
use crate::ids::{Ids, Num, numbers};
use crate::{Error, InboxPage, InboxRange};

/// The device's number.
pub(super) async fn device(tx: &Tx, app: AppId, device: &DeviceId) -> Result<i64, Failed> {
    let sql = "SELECT num FROM devices WHERE app = $1 AND id = $2";
    let row = tx.query_opt(sql, &[&i64::from(app.0), &device.as_str()]).await?;
    Ok(row.ok_or(Error::NotFound)?.int(0)?)
}

/// Part of an inbox; `None` if the message to start at is not in it.
pub(super) async fn range(tx: &Tx, ids: &Ids, asked: &InboxRange) -> Result<Option<InboxPage>, Failed> {
    let device = device(tx, asked.app, &asked.device).await?;
    let (now, (since, until)) = (asked.now.0 as i64, numbers(asked.since, asked.until));
    let of = "FROM inbox i JOIN notifications n ON n.num = i.num
              WHERE i.device = $1 AND i.num BETWEEN $2 AND $3 AND n.expires_at > $4";
    let count = async |since: Num, until: Num| -> Result<u64, Failed> {
        let sql = format!("SELECT count(*) {of}");
        Ok(tx.query_one(&sql, &[&device, &since, &until, &now]).await?.count(0)?)
    };
    match anchor(asked.place, ids) {
        Some(Some(num)) if count(num, num).await? > 0 => {}
        Some(_) => return Ok(None),
        None => {}
    }
    let Window { first, last, order } = Window::of(asked.place, ids, since, until);
    let sql = format!("SELECT i.num {of} ORDER BY i.num {order} LIMIT $5");
    let limit = i64::try_from(asked.limit).unwrap_or(i64::MAX);
    let rows = tx.query(&sql, &[&device, &first, &last, &now, &limit]).await?;
    let mut nums: Vec<Num> = rows.iter().map(|row| row.get(0)).collect();
    nums.sort_unstable();
    let messages = backlog::messages(tx, ids, &nums).await?;
    let index = match nums.first() {
        Some(first) if *first > since => count(since, *first - 1).await?,
        _ => 0,
    };
    let messages = nums.iter().filter_map(|num| messages.get(num).cloned()).collect();
    Ok(Some(InboxPage { messages, index, total: count(since, until).await? }))
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
