//! Rows of the push queue, and the acknowledgements that spare a fallback push.

use std::time::Duration;

use noroshi_types::{BatchId, DeviceNum, Timestamp};

use super::statement::Db;
use super::writer::Write;
use crate::engine::cancel::CancelledWork;
use crate::engine::device_list;
use crate::engine::push::{Entry, service_code};
use crate::engine::push_token::key_text;
use crate::engine::record::Record;
use crate::ids::Num;
use crate::{Error, Lease, Renewal, VariantNum};

/// Adds one batch, unless it has no recipients; they must be sorted.
pub(super) fn insert(db: &Db, entry: &Entry, recipients: &[DeviceNum]) -> Result<(), Error> {
    if recipients.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO push_queue (app, lane, service, campaign, num, variant, due_at, attempt, fallback,
                                       leased_until, recipients, token)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, ?11)";
    let values = (
        entry.app.0,
        entry.lane as u8,
        service_code(entry.service),
        entry.campaign,
        entry.num,
        VariantNum::code(entry.variant),
        entry.due_at.0 as i64,
        entry.attempt,
        entry.fallback as u8,
        device_list::encode(recipients),
        key_text(entry.token.as_ref()),
    );
    db.run(sql, values).map(drop)
}

pub(crate) fn renew(
    &Write { db, .. }: &Write<'_>,
    leases: &[Lease],
    until: Timestamp,
    _: Duration,
    why: Renewal,
) -> Result<Vec<BatchId>, Error> {
    let sql = "UPDATE push_queue SET leased_until = ?3, takes = max(takes + ?4, 0)
               WHERE id = ?1 AND leased_until = ?2 AND leased_until > 0";
    let mut renewed = Vec::with_capacity(leases.len());
    for lease in leases {
        let values = (lease.batch.0 as i64, lease.until.0 as i64, until.0 as i64, why.takes());
        if db.run(sql, values)? > 0 {
            renewed.push(lease.batch);
        }
    }
    Ok(renewed)
}

/// Ends the leases of an earlier run, whose senders are gone. Batches that were taken more than once expire at the next
/// take instead, which spreads them.
pub(super) fn void_leases(db: &Db) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE push_queue SET leased_until = takes > 1 WHERE leased_until > 0")?.execute(())?;
    db.prepare_cached("UPDATE push_channels SET due_at = 0, lease = 0 WHERE lease > 0")?.execute(())?;
    db.prepare_cached("UPDATE activity_slices SET leased_until = 0 WHERE leased_until > 0")?.execute(())?;
    Ok(())
}

/// Removes the batches of a notification that no sender has taken, and its walk.
pub(super) fn cancel(db: &Db, num: Num) -> Result<CancelledWork, Error> {
    let walks = db.run("DELETE FROM push_walks WHERE num = ?1", (num,))?;
    let any = walks > 0 || db.has_row("SELECT 1 FROM push_queue WHERE num = ?1 AND num > 0", (num,))?;
    let mut work = CancelledWork { any, ..CancelledWork::default() };
    let sql = "DELETE FROM push_queue WHERE num = ?1 AND num > 0 AND leased_until = 0 RETURNING recipients, campaign";
    db.all(sql, (num,), |row| {
        work.add(row.bytes(0)?, row.int(1)?);
        Ok(())
    })?;
    Ok(work.finish())
}

/// Whether an acknowledgement of the notification would spare a device a push, and only `push_confirmed` could tell.
pub(super) fn waits_for_acknowledgement(db: &Db, num: Num) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM push_queue WHERE num = ?1 AND num > 0 AND fallback = 3)
                   OR EXISTS (SELECT 1 FROM push_walks WHERE num = ?1 AND fallback = 3)";
    Ok(db.int(sql, (num,))? != 0)
}

/// Writes an acknowledgement; false if there was one, or the device belongs to another app.
pub(super) fn acknowledge(db: &Db, num: Num, device: DeviceNum) -> Result<bool, Error> {
    let sql = "INSERT OR IGNORE INTO push_confirmed (num, device)
               SELECT n.num, d.num FROM notifications n JOIN devices d ON d.app = n.app
               WHERE n.num = ?1 AND d.num = ?2";
    Ok(db.run(sql, (num, device.0 as i64))? > 0)
}
