//! Removing what has expired, a bounded number of rows at a time, and checking that the store works.

use std::time::Duration;

use noroshi_types::{Outcome, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::ids::Num;
use super::notification::{self, Standing};
use super::topic::{self, TopicNum};
use super::writer::Write;
use super::{Sqlite, campaign, inbox, outcome, purge};
use crate::{Error, Maintenance, Place, Pruned, Work};

/// Devices read from lists for each row that may be removed: some 10 ns each, a row some 10 µs.
const LISTED_PER_ROW: u64 = 100;

#[async_trait::async_trait]
impl Maintenance for Sqlite {
    async fn prune(&self, now: Timestamp, rows_max: usize) -> Result<Pruned, Error> {
        self.write(rows_max, move |w| prune(w, now, rows_max.max(1))).await
    }

    async fn check(&self) -> Result<(), Error> {
        let written = self
            .write(1, |w| {
                let sql = "INSERT INTO secrets (name, value) VALUES ('$check', randomblob(8))
                           ON CONFLICT DO UPDATE SET value = excluded.value RETURNING value";
                Ok(w.db.query_row(sql, (), |row| row.get::<_, Vec<u8>>(0))?)
            })
            .await?;
        let read = self
            .read(|db| {
                let sql = "SELECT value FROM secrets WHERE name = '$check'";
                Ok(db.query_row(sql, (), |row| row.get::<_, Vec<u8>>(0))?)
            })
            .await?;
        // Another check may have written since; what must not happen is that nothing is there.
        match read.len() == written.len() {
            true => Ok(()),
            false => Err(Error::Engine("what was written was not read back".to_owned())),
        }
    }

    async fn place(&self) -> Result<Place, Error> {
        self.read(place).await
    }

    /// Nobody else has the folder.
    async fn lead(&self, _task: &str, _holder: u64, _lease: Duration) -> Result<bool, Error> {
        Ok(true)
    }

    async fn yield_lead(&self, _task: &str, _holder: u64) -> Result<(), Error> {
        Ok(())
    }

    async fn close(&self) {
        self.close_and_wait().await;
    }
}

/// SQLite keeps the greatest number ever given to a row also when the row is gone. Numbers that are drawn off the
/// writer ([`crate::Notifications::note`]) have no rows in inboxes and logs, so where they fall does not matter.
pub(super) fn place(db: &Connection) -> Result<Place, Error> {
    let mut statement = db.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'notifications'")?;
    Ok(Place(statement.query_row((), |row| row.get(0)).optional()?.unwrap_or(0)))
}

fn prune(w: &Write<'_>, now: Timestamp, rows_max: usize) -> Result<Pruned, Error> {
    let db = w.db;
    let mut pruned = Pruned::default();
    expire(w, now, rows_max, &mut pruned)?;
    db.prepare_cached(
        "UPDATE topics SET retained = NULL, retained_expires_at = NULL
         WHERE num IN (SELECT num FROM topics WHERE retained IS NOT NULL AND retained_expires_at <= ?1 LIMIT ?2)",
    )?
    .execute((now.0 as i64, rows_max as i64))?;
    forget(db, now, rows_max, &mut pruned)?;
    let forgotten = db
        .prepare_cached(
            "DELETE FROM idempotency
             WHERE (app, key) IN (SELECT app, key FROM idempotency WHERE expires_at <= ?1 LIMIT ?2)",
        )?
        .execute((now.0 as i64, rows_max as i64))?;
    pruned.idempotency = forgotten as u64;
    pruned.more |= forgotten == rows_max;
    let noted_before = now.0.saturating_sub(w.options.trace_retention.as_millis() as u64);
    let forgotten = db
        .prepare_cached(
            "DELETE FROM push_invalidations
             WHERE seq IN (SELECT seq FROM push_invalidations WHERE at <= ?1 LIMIT ?2)",
        )?
        .execute((noted_before as i64, rows_max as i64))?;
    pruned.invalidations = forgotten as u64;
    pruned.more |= forgotten == rows_max;
    let (lines, more) = campaign::prune_lines(w, now, rows_max)?;
    pruned.campaign_lines = lines;
    pruned.more |= more;
    pruned.more |= purge::resume(db, now, rows_max)?;
    Ok(pruned)
}

/// Takes notifications whose ttl has ended out of inboxes and logs.
fn expire(w: &Write<'_>, now: Timestamp, rows_max: usize, pruned: &mut Pruned) -> Result<(), Error> {
    let db = w.db;
    let mut statement = db.prepare_cached(
        "SELECT num, topic, topic_offset FROM notifications
         WHERE standing = 1 AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2",
    )?;
    let rows = statement
        .query_map((now.0 as i64, rows_max as i64), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<Vec<(Num, Option<TopicNum>, Option<i64>)>>>()?;
    pruned.more |= rows.len() == rows_max;
    let (mut left, mut listed) = (rows_max, 0);
    for (num, topic, offset) in rows {
        if let (Some(topic), Some(offset)) = (topic, offset) {
            pruned.topic_log += u64::from(topic::remove_from_log(db, topic, offset, num)?);
        } else {
            let sums = outcome::sums(db, num)?;
            if outcome::outstanding(&sums) == 0 {
                notification::set_standing(db, num, Standing::Expired)?;
                continue;
            }
            // Lists cost time too, however few of their devices are left.
            if listed >= rows_max as u64 * LISTED_PER_ROW {
                pruned.more = true;
                break;
            }
            listed += sums[Outcome::Kept as usize];
            let devices = outcome::outstanding_devices(db, num)?;
            let removed = inbox::remove_from(db, &devices, num, left)?;
            outcome::add(db, num, Outcome::Expired, now, &removed, removed.len() as u64)?;
            let of = Some(Work::Notification(w.ids.id(num)));
            pruned.expired.add(of, Outcome::Expired, now, &removed);
            pruned.inbox += removed.len() as u64;
            left -= removed.len();
            if left == 0 {
                // There may be more rows of this one: it stays on the list.
                pruned.more = true;
                break;
            }
        }
        notification::set_standing(db, num, Standing::Expired)?;
    }
    Ok(())
}

/// What hangs on a notification: confirmations that no claim asked for, openings, and outcomes, of which a campaign
/// of small batches has a great many. How many rows were removed.
fn forget_parts(db: &Connection, num: Num, rows_max: usize) -> Result<usize, Error> {
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
        removed += db.prepare_cached(sql)?.execute((num, (rows_max - removed) as i64))?;
    }
    Ok(removed)
}

/// Removes notifications that are not to be kept any longer and that no push work needs, with their
/// outcomes.
fn forget(db: &Connection, now: Timestamp, rows_max: usize, pruned: &mut Pruned) -> Result<(), Error> {
    let mut statement = db.prepare_cached(
        "SELECT num FROM notifications n WHERE keep_until <= ?1 AND standing <> 1
             AND NOT EXISTS (SELECT 1 FROM push_queue q WHERE q.num = n.num AND q.num > 0)
             AND NOT EXISTS (SELECT 1 FROM push_walks p WHERE p.num = n.num) LIMIT ?2",
    )?;
    let nums = statement
        .query_map((now.0 as i64, rows_max as i64), |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<Num>>>()?;
    let mut left = rows_max;
    for num in &nums {
        left -= forget_parts(db, *num, left)?;
        if left == 0 {
            pruned.more = true;
            break;
        }
        pruned.notifications += 1;
        db.prepare_cached("DELETE FROM notifications WHERE num = ?1")?.execute((num,))?;
    }
    pruned.more |= nums.len() == rows_max;
    Ok(())
}
