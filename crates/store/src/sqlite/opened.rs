//! Notifications that users opened: one row for a notification and a device, kept as long as the notification. Counts and
//! traces read the rows as [`Outcome::Opened`]; a part of `outcomes` for each would make the trace of a campaign as long as
//! its audience.

use noroshi_types::{DeviceNum, NotificationId, Outcome, Timestamp};
use rusqlite::Connection;

use super::campaign_row;
use super::statement::Statements;
use super::writer::Write;
use crate::engine::campaign::Count;
use crate::engine::record::Record;
use crate::ids::Num;
use crate::{Error, TraceStep};

/// Returns those that were not opened on this device before.
pub(super) fn open(
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

/// On how many devices it was opened.
pub(super) fn count(db: &Connection, num: Num) -> Result<u64, Error> {
    Ok(db.int("SELECT count(*) FROM openings WHERE num = ?1", (num,))? as u64)
}

/// When it was opened on a device.
pub(super) fn step(db: &Connection, num: Num, device: DeviceNum) -> Result<Option<TraceStep>, Error> {
    let sql = "SELECT at FROM openings WHERE num = ?1 AND device = ?2";
    db.first(sql, (num, device.0 as i64), |row| {
        Ok(TraceStep { at: row.time(0)?, outcome: Outcome::Opened, reason: None })
    })
}
