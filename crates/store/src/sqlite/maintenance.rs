//! Removes expired rows, a bounded number per call.

use std::time::Duration;

use noroshi_types::{Outcome, Timestamp};

use super::reader::Read;
use super::statement::{Db, ready};
use super::writer::Write;
use super::{Sqlite, inbox, notification, outcome, topic};
use crate::engine::notification::Standing;
use crate::engine::outcome::{LISTED_PER_ROW, Part, outstanding};
use crate::engine::record::Record;
use crate::engine::{campaign, purge};
use crate::ids::Num;
use crate::{Error, Place, Pruned, Work};

/// SQLite remembers the greatest number ever given to a row of the table. Numbers of [`crate::Notifications::note`] are
/// drawn outside the writer, but such notifications have no rows in inboxes and logs, so their order does not matter.
pub(crate) fn place(read: Read<'_>) -> Result<Place, Error> {
    last(read.db)
}

pub(super) fn last(db: &Db) -> Result<Place, Error> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'notifications'";
    Ok(Place(db.first(sql, (), |row| row.int(0))?.unwrap_or(0)))
}

/// No other process can use the folder.
pub(crate) async fn lead(_: &Sqlite, _task: &str, _holder: u64, _lease: Duration) -> Result<bool, Error> {
    Ok(true)
}

pub(crate) async fn release_lead(_: &Sqlite, _task: &str, _holder: u64) -> Result<(), Error> {
    Ok(())
}

pub(crate) async fn prune(store: &Sqlite, now: Timestamp, rows_max: usize) -> Result<Pruned, Error> {
    store.write(rows_max, move |w| prune_all(w, now, rows_max.max(1))).await
}

fn prune_all(w: &Write<'_>, now: Timestamp, rows_max: usize) -> Result<Pruned, Error> {
    let (db, at, limit) = (w.db, now.0 as i64, rows_max as i64);
    let mut pruned = Pruned::default();
    expire(w, now, rows_max, &mut pruned)?;
    let sql = "UPDATE topics SET retained = NULL, retained_expires_at = NULL WHERE num IN (
                   SELECT num FROM topics WHERE retained IS NOT NULL AND retained_expires_at <= ?1 LIMIT ?2)";
    db.run(sql, (at, limit))?;
    forget(db, now, rows_max, &mut pruned)?;
    let sql = "DELETE FROM idempotency WHERE (app, key) IN (
                   SELECT app, key FROM idempotency WHERE expires_at <= ?1 LIMIT ?2)";
    pruned.idempotency = db.run(sql, (at, limit))? as u64;
    let retained_since = now.0.saturating_sub(w.options.trace_retention.as_millis() as u64);
    let sql = "DELETE FROM push_invalidations WHERE seq IN (
                   SELECT seq FROM push_invalidations WHERE at <= ?1 LIMIT ?2)";
    pruned.invalidations = db.run(sql, (retained_since as i64, limit))? as u64;
    let (lines, more_lines) = ready(campaign::prune_lines(db, Timestamp(retained_since), rows_max))?;
    pruned.campaign_lines = lines;
    let full = [pruned.idempotency, pruned.invalidations].contains(&(rows_max as u64));
    pruned.more |= full | more_lines | ready(purge::resume(db, now, rows_max))?;
    Ok(pruned)
}

/// Removes notifications whose ttl has ended from inboxes and logs.
fn expire(w: &Write<'_>, now: Timestamp, rows_max: usize, pruned: &mut Pruned) -> Result<(), Error> {
    let db = w.db;
    let sql = "SELECT num, topic, topic_offset FROM notifications
               WHERE standing = 1 AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2";
    let rows = db.all(sql, (now.0 as i64, rows_max as i64), |row| {
        Ok((row.int(0)?, row.int_or_null(1)?.zip(row.int_or_null(2)?)))
    })?;
    pruned.more |= rows.len() == rows_max;
    let (mut left, mut listed) = (rows_max, 0);
    for (num, place) in rows {
        if let Some((topic, offset)) = place {
            pruned.topic_log += u64::from(topic::remove_from_log(db, topic, offset, num)?);
        } else {
            let sums = outcome::sums(db, num)?;
            if outstanding(&sums) == 0 {
                notification::set_standing(db, num, Standing::Expired)?;
                continue;
            }
            // Reading lists costs time too, however few of their devices are left.
            if listed >= rows_max as u64 * LISTED_PER_ROW {
                pruned.more = true;
                break;
            }
            listed += sums[Outcome::Kept as usize];
            let devices = outcome::outstanding_devices(db, num)?;
            let removed = inbox::remove_from(db, &devices, num, left)?;
            let of = Some(Work::Notification(w.ids.id(num)));
            pruned.expired.add(of, Outcome::Expired, now, &removed);
            pruned.inbox += removed.len() as u64;
            left -= removed.len();
            outcome::add(db, &Part::of(num, Outcome::Expired, now, removed))?;
            if left == 0 {
                // This notification may have more rows: its standing stays.
                pruned.more = true;
                break;
            }
        }
        notification::set_standing(db, num, Standing::Expired)?;
    }
    Ok(())
}

/// Removes the rows that belong to a notification: acknowledgements that no claim needed, openings, and outcomes, of which a
/// campaign of small batches has many. Returns how many rows.
fn forget_parts(db: &Db, num: Num, rows_max: usize) -> Result<usize, Error> {
    let mut removed = 0;
    for sql in [
        "DELETE FROM push_confirmed
         WHERE num = ?1 AND device IN (SELECT device FROM push_confirmed WHERE num = ?1 LIMIT ?2)",
        "DELETE FROM outcomes
         WHERE num = ?1 AND seq IN (SELECT seq FROM outcomes WHERE num = ?1 LIMIT ?2)",
        "DELETE FROM openings
         WHERE num = ?1 AND device IN (SELECT device FROM openings WHERE num = ?1 LIMIT ?2)",
        "DELETE FROM variant_notifications WHERE num = ?1 AND ?2 > 0",
    ] {
        removed += db.run(sql, (num, (rows_max - removed) as i64))?;
    }
    Ok(removed)
}

/// Removes notifications whose retention has ended and that no push work needs, with their rows.
fn forget(db: &Db, now: Timestamp, rows_max: usize, pruned: &mut Pruned) -> Result<(), Error> {
    let sql = "SELECT num FROM notifications n WHERE keep_until <= ?1 AND standing <> 1
                   AND NOT EXISTS (SELECT 1 FROM push_queue q WHERE q.num = n.num AND q.num > 0)
                   AND NOT EXISTS (SELECT 1 FROM push_walks p WHERE p.num = n.num) LIMIT ?2";
    let nums = db.all(sql, (now.0 as i64, rows_max as i64), |row| row.int(0))?;
    let mut left = rows_max;
    for num in &nums {
        left -= forget_parts(db, *num, left)?;
        if left == 0 {
            pruned.more = true;
            break;
        }
        pruned.notifications += 1;
        db.run("DELETE FROM notifications WHERE num = ?1", (num,))?;
    }
    pruned.more |= nums.len() == rows_max;
    Ok(())
}
