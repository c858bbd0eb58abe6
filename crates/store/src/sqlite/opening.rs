//! What users opened: a row once for a notification and a device, kept as long as the notification. The counts and
//! traces of [`super::notification`] read it as [`Outcome::Opened`]; a part of `outcomes` for each would make a campaign's
//! trace as long as its audience.

use noroshi_types::{DeviceNum, NotificationId, Outcome, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::campaign::{self, CampaignNum};
use super::ids::Num;
use super::variant;
use super::writer::Write;
use crate::{Error, TraceStep};

/// What was not opened on this device before.
pub(super) fn open(
    w: &Write<'_>,
    device: DeviceNum,
    ids: &[NotificationId],
    now: Timestamp,
) -> Result<Vec<NotificationId>, Error> {
    // Of a published batch the campaign is in its row; of a push it is the one whose notification this is.
    let mut known = w.db.prepare_cached(
        "SELECT coalesce((SELECT c.num FROM campaigns c WHERE c.num = n.campaign),
                         (SELECT c.num FROM campaigns c WHERE c.notification = n.num), 0)
         FROM notifications n JOIN devices d ON d.num = ?2 AND d.app = n.app WHERE n.num = ?1",
    )?;
    let mut add = w.db.prepare_cached(
        "INSERT INTO openings (num, device, at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )?;
    let mut opened = Vec::new();
    for id in ids {
        let Some(num) = w.ids.num(*id) else { continue };
        let found = known.query_row((num, device.0 as i64), |row| row.get::<_, CampaignNum>(0)).optional()?;
        let Some(campaign) = found else { continue };
        if add.execute((num, device.0 as i64, now.0 as i64))? == 0 {
            continue;
        }
        if campaign != 0 {
            campaign::count(w.db, campaign, Outcome::Opened, None, 1)?;
            variant::count(w.db, num, Outcome::Opened, None, 1)?;
        }
        opened.push(*id);
    }
    Ok(opened)
}

/// On how many devices it was opened.
pub(super) fn sum(db: &Connection, num: Num) -> Result<u64, Error> {
    let sql = "SELECT count(*) FROM openings WHERE num = ?1";
    Ok(db.prepare_cached(sql)?.query_row((num,), |row| row.get::<_, i64>(0))? as u64)
}

/// When it was opened on a device.
pub(super) fn step(db: &Connection, num: Num, device: DeviceNum) -> Result<Option<TraceStep>, Error> {
    let sql = "SELECT at FROM openings WHERE num = ?1 AND device = ?2";
    let found = db.prepare_cached(sql)?.query_row((num, device.0 as i64), |row| row.get::<_, i64>(0));
    let at = found.optional()?;
    Ok(at.map(|at| TraceStep { at: Timestamp(at as u64), outcome: Outcome::Opened, reason: None }))
}
