//! Reading an inbox, and the removal of rows that were acknowledged, expired or cancelled. [`super::group`] removes the
//! rows that accepting replaces or evicts.
//!
//! A removal first locks its rows, ordered by device and notification, so that two removals of the same rows do not
//! deadlock.

use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, DeviceNum, Message, Timestamp, Topic};
use tokio_postgres::Row;

use super::backlog::{self, MESSAGE_COLUMNS, PageRequest};
use super::transaction::{Failed, Tx, Values};
use crate::engine::device::{COLUMNS, device_of};
use crate::engine::inbox::Range;
use crate::engine::notification::message_of_row;
use crate::engine::record::Record;
use crate::ids::Num;
use crate::{Error, FirstCall, InboxPage, InboxRange, engine};

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

/// The number of columns of a device.
const DEVICE_COLUMNS: usize = 18;

/// The device with its inbox, with one statement: one round trip, and a consistent read without a transaction. The rows
/// are one per message, each with the device; one row for a device without messages.
pub(crate) async fn first_call(
    tx: &Tx,
    app: AppId,
    device: &DeviceId,
    newest: usize,
    now: Timestamp,
) -> Result<Option<FirstCall>, Failed> {
    let sql = format!(
        "SELECT {COLUMNS}, subscribed.names, unread.count, unread.expires_at, {MESSAGE_COLUMNS}
         FROM devices d
         CROSS JOIN LATERAL (
             SELECT array_agg(t.name ORDER BY t.name) AS names FROM subscriptions s JOIN topics t ON t.num = s.topic
             WHERE s.device = d.num AND s.named = 1) AS subscribed
         CROSS JOIN LATERAL (
             SELECT count(*) AS count, min(n.expires_at) AS expires_at
             FROM inbox i JOIN notifications n ON n.num = i.num
             WHERE i.device = d.num AND n.expires_at > $3) AS unread
         LEFT JOIN LATERAL (
             SELECT n.* FROM inbox i JOIN notifications n ON n.num = i.num
             WHERE i.device = d.num AND n.expires_at > $3 ORDER BY i.num DESC LIMIT $4) AS n ON true
         LEFT JOIN topics t ON t.num = n.topic
         WHERE d.app = $1 AND d.id = $2 ORDER BY n.num DESC NULLS LAST"
    );
    let values: Values<'_> = &[&i64::from(app.0), &device.as_str(), &(now.0 as i64), &(newest as i64)];
    let rows = tx.query(&sql, values).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let names: Option<Vec<String>> = first.get(DEVICE_COLUMNS);
    let mut device = device_of(first)?;
    // Sorted by bytes, whatever the database's collation.
    device.topics = names.unwrap_or_default().iter().map(|name| Topic::from_trusted(name)).collect();
    device.topics.sort_unstable();
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        if row.int_or_null(DEVICE_COLUMNS + 3)?.is_some() {
            messages.push(Arc::new(message_of_row(row, DEVICE_COLUMNS + 3, tx.ids())?));
        }
    }
    Ok(Some(FirstCall {
        device,
        unread: first.count(DEVICE_COLUMNS + 1)?,
        newest: messages,
        expires_at: first.time_or_null(DEVICE_COLUMNS + 2)?,
    }))
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
