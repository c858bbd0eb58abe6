//! Inbox rows that go for the notification's sake. What a group puts there is [`super::group`]'s, confirmations
//! are [`super::ack`]'s.

use noroshi_types::DeviceNum;

use super::transaction::{Failed, Tx};
use crate::ids::Num;

/// Removes the rows of a notification from the inboxes of `devices`; those that had one, sorted.
pub(super) async fn remove(tx: &Tx, num: Num, devices: &[DeviceNum]) -> Result<Vec<DeviceNum>, Failed> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let devices: Vec<i64> = devices.iter().map(|device| device.0 as i64).collect();
    let sql = "DELETE FROM inbox i USING unnest($1::bigint[]) u (device)
               WHERE i.device = u.device AND i.num = $2 RETURNING i.device";
    let rows = tx.query(sql, &[&devices, &num]).await?;
    let mut removed: Vec<DeviceNum> = rows.iter().map(|row| DeviceNum(row.get::<_, i64>(0) as u64)).collect();
    removed.sort_unstable();
    Ok(removed)
}
