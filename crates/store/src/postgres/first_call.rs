//! What a device is told when its app starts, by one statement: one round trip, and one state without a transaction.

use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, Timestamp, Topic};
use tokio_postgres::Row;

use super::backlog::{MESSAGE_COLUMNS, message_from};
use super::device::{COLUMNS, device_of};
use super::transaction::{Failed, Tx, Values};
use crate::FirstCall;
use crate::ids::Ids;

/// Columns of a device.
const DEVICE_COLUMNS: usize = 18;

/// A row for each message, each with the device; one for a device without messages.
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
    // In the order of their bytes, whatever the database's collation.
    device.topics = names.unwrap_or_default().iter().map(|name| Topic::from_trusted(name)).collect();
    device.topics.sort_unstable();
    let expires_at: Option<i64> = first.get(DEVICE_COLUMNS + 2);
    let of_message = |row: &&Row| row.get::<_, Option<i64>>(DEVICE_COLUMNS + 3).is_some();
    let messages = rows.iter().filter(of_message);
    let newest = messages.map(|row| message_from(row, DEVICE_COLUMNS + 3, ids).map(Arc::new));
    Ok(Some(FirstCall {
        device,
        unread: first.get::<_, i64>(DEVICE_COLUMNS + 1) as u64,
        newest: newest.collect::<Result<_, _>>()?,
        expires_at: expires_at.map(|at| Timestamp(at as u64)),
    }))
}
