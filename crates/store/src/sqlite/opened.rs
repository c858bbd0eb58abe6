//! Notifications that users opened, as [`crate::engine::opened`] reads them.

use noroshi_types::{DeviceNum, NotificationId, Outcome, Timestamp};

use super::campaign_row;
use super::writer::Write;
use crate::Error;
use crate::engine::campaign::Count;
use crate::engine::record::Record;

/// Returns those that were not opened on this device before.
pub(crate) fn open(
    w: &Write<'_>,
    device: DeviceNum,
    ids: &[NotificationId],
    now: Timestamp,
) -> Result<Vec<NotificationId>, Error> {
    // A published batch names its campaign; the notification of a campaign is named by it.
    let known = "SELECT coalesce((SELECT c.num FROM campaigns c WHERE c.num = n.campaign),
                                 (SELECT c.num FROM campaigns c WHERE c.notification = n.num), 0)
                 FROM notifications n JOIN devices d ON d.num = ?2 AND d.app = n.app WHERE n.num = ?1";
    let add = "INSERT INTO openings (num, device, at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    let (mut opened, device) = (Vec::new(), device.0 as i64);
    for id in ids {
        let Some(num) = w.ids.num(*id) else { continue };
        let Some(campaign) = w.db.first(known, (num, device), |row| row.int(0))? else { continue };
        if w.db.run(add, (num, device, now.0 as i64))? == 0 {
            continue;
        }
        if campaign != 0 {
            let outcome = Outcome::Opened;
            campaign_row::count(w.db, &Count { campaign, num: Some(num), outcome, reason: None, count: 1 })?;
        }
        opened.push(*id);
    }
    Ok(opened)
}
