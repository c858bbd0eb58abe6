//! Rows that leave inboxes for their own sake: confirmed, expired, cancelled. What a group of accepts pushes out is
//! [`super::group`]'s. And parts of an inbox, to be read by the way.
//!
//! Whoever removes rows locks them by device and notification first, so that of two who remove some of the same
//! none waits for the other in a circle.

use noroshi_types::DeviceNum;
use tokio_postgres::Row;

use super::backlog;
use super::transaction::{Failed, Tx};
use crate::ids::{Ids, Num, numbers};
use crate::{Error, InboxPage, InboxPlace, InboxRange};

/// Part of an inbox; none if it is to begin at a message that is not in it.
pub(super) async fn range(tx: &Tx, ids: &Ids, asked: &InboxRange) -> Result<Option<InboxPage>, Failed> {
    let sql = "SELECT num FROM devices WHERE app = $1 AND id = $2";
    let device = tx.query_opt(sql, &[&i64::from(asked.app.0), &asked.device.as_str()]).await?;
    let device: i64 = device.ok_or(Error::NotFound)?.get(0);
    let (now, (since, until)) = (asked.now.0 as i64, numbers(asked.since, asked.until));
    let of = "FROM inbox i JOIN notifications n ON n.num = i.num
              WHERE i.device = $1 AND i.num BETWEEN $2 AND $3 AND n.expires_at > $4";
    let count = async |since: Num, until: Num| -> Result<u64, Failed> {
        let sql = format!("SELECT count(*) {of}");
        Ok(tx.query_one(&sql, &[&device, &since, &until, &now]).await?.get::<_, i64>(0) as u64)
    };
    let (first, last, order) = match asked.place {
        InboxPlace::First => (since, until, "ASC"),
        InboxPlace::Last => (since, until, "DESC"),
        InboxPlace::After(id) | InboxPlace::Before(id) => match ids.num(id) {
            Some(num) if count(num, num).await? > 0 => match asked.place {
                InboxPlace::After(_) => (since.max(num.saturating_add(1)), until, "ASC"),
                _ => (since, until.min(num - 1), "DESC"),
            },
            _ => return Ok(None),
        },
    };
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
