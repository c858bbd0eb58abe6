//! What an app shows first of a device, with one statement: one round trip, and a consistent read without a transaction.

use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, Timestamp, Topic};

use super::backlog::MESSAGE_COLUMNS;
use super::transaction::{Failed, Tx, Values};
use crate::FirstCall;
use crate::engine::device::{COLUMNS, device_of};
use crate::engine::notification::message_of_row;
use crate::engine::record::Record;
use crate::ids::Ids;

/// The number of columns of a device.
const DEVICE_COLUMNS: usize = 18;

/// One row per message, each with the device; one row for a device without messages.
pub(super) async fn first_call(
    tx: &Tx,
    ids: &Ids,
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
            messages.push(Arc::new(message_of_row(row, DEVICE_COLUMNS + 3, ids)?));
        }
    }
    Ok(Some(FirstCall {
        device,
        unread: first.count(DEVICE_COLUMNS + 1)?,
        newest: messages,
        expires_at: first.time_or_null(DEVICE_COLUMNS + 2)?,
    }))
}
