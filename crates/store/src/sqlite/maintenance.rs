//! Removes expired rows, a bounded number per call.

use std::time::{Duration, Instant};

use noroshi_types::{Outcome, Timestamp};

use super::reader::Read;
use super::statement::{Db, ready};
use super::writer::Write;
use super::{Sqlite, accept, inbox, notification, outcome, topic};
use crate::engine::broadcast::forgotten_broadcasts;
use crate::engine::notification::Standing;
use crate::engine::outcome::{Part, outstanding};
use crate::engine::push::sorted;
use crate::engine::record::Record;
use crate::engine::unused_topic::{self, REMOVED_MAX};
use crate::engine::{campaign, clean_up, item, preferences, purge};
use crate::ids::Num;
use crate::metrics::Held;
use crate::{Error, Place, Pruned, Work};

/// SQLite remembers the greatest number ever given to a row of the table. Numbers of [`crate::Notifications::note`] are
/// drawn outside the writer, but such notifications have no rows in inboxes and logs, so their order does not matter.
pub(crate) fn place(read: Read<'_>) -> Result<Place, Error> {
    last(read.db)
}

/// A notification whose rows are still being written comes later.
pub(super) fn last(db: &Db) -> Result<Place, Error> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'notifications'";
    let last = db.first(sql, (), |row| row.int(0))?.unwrap_or(0);
    let sql = "SELECT min(num) FROM expansions WHERE state = 0";
    let open = db.first(sql, (), |row| row.int_or_null(0))?.flatten();
    Ok(Place(open.map_or(last, |open| last.min(open - 1))))
}

/// No other process can use the folder.
pub(crate) async fn lead(_: &Sqlite, _task: &str, _holder: u64, _lease: Duration) -> Result<bool, Error> {
    Ok(true)
}

pub(crate) async fn release_lead(_: &Sqlite, _task: &str, _holder: u64) -> Result<(), Error> {
    Ok(())
}

/// For how long one commit removes rows. Others wait for the writer meanwhile.
const SLICE: Duration = Duration::from_millis(20);
/// Rows that one statement removes between two looks at the clock.
const CHUNK: usize = 200;

/// Each kind of row has its own commit, so that other writes run in between.
pub(crate) async fn prune(store: &Sqlite, now: Timestamp, rows_max: usize) -> Result<Pruned, Error> {
    let rows = rows_max.max(1);
    let mut pruned = step(store, rows, move |w| expire(w, now, rows)).await?;
    let forgotten = step(store, rows, move |w| forget(w.db, now, rows)).await?;
    let small = step(store, rows, move |w| forget_small(w, now, rows)).await?;
    let (lines, more_lines) = step(store, rows, move |w| prune_lines(w, now, rows)).await?;
    let purging = step(store, rows, move |w| ready(purge::resume(w.db, now, rows))).await?;
    let (items, more_items) = step(store, rows, move |w| ready(item::prune(w.db, now, rows))).await?;
    let expanded = step(store, rows, move |w| accept::settle_expansions(w, now)).await?;
    step(store, rows, move |w| ready(unused_topic::mark(w.db, now, rows))).await?;
    let (topics, more_unused) = step(store, rows, move |w| forget_topics(w, now, rows)).await?;
    pruned.inbox += expanded.inbox;
    pruned.departed.append(expanded.departed);
    pruned.more |= forgotten.more || small.more || more_lines || purging || more_items;
    pruned.more |= expanded.more || more_unused;
    let notifications = forgotten.notifications;
    Ok(Pruned { notifications, campaign_lines: lines, items, topics, ..small_of(pruned, small) })
}

async fn step<T: Send + 'static>(
    store: &Sqlite,
    rows: usize,
    work: impl FnOnce(&mut Write<'_>) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let work = move |w: &mut Write<'_>| {
        w.held.set(Held::CleanUp);
        work(w)
    };
    store.write(rows, work).await
}

fn small_of(pruned: Pruned, small: Pruned) -> Pruned {
    let Pruned { idempotency, invalidations, push_tokens, push_records, deleted_devices, .. } = small;
    Pruned { idempotency, invalidations, push_tokens, push_records, deleted_devices, ..pruned }
}

fn retained_since(w: &Write<'_>, now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(w.options.trace_retention.as_millis() as u64))
}

fn prune_lines(w: &Write<'_>, now: Timestamp, rows_max: usize) -> Result<(u64, bool), Error> {
    ready(campaign::prune_lines(w.db, retained_since(w, now), rows_max))
}

/// Removes rows that have their own expiry.
fn forget_small(w: &Write<'_>, now: Timestamp, rows_max: usize) -> Result<Pruned, Error> {
    let at = now.0 as i64;
    let sql = "UPDATE topics SET retained = NULL, retained_expires_at = NULL WHERE num IN (
                   SELECT num FROM topics WHERE retained IS NOT NULL AND retained_expires_at <= ?1 LIMIT ?2)";
    let (_, more_topics) = in_chunks(rows_max, |limit| w.db.run(sql, (at, limit)))?;
    let sql = "DELETE FROM idempotency WHERE (app, key) IN (
                   SELECT app, key FROM idempotency WHERE expires_at <= ?1 LIMIT ?2)";
    let (idempotency, more_keys) = in_chunks(rows_max, |limit| w.db.run(sql, (at, limit)))?;
    let since = retained_since(w, now).0 as i64;
    let sql = "DELETE FROM push_invalidations WHERE seq IN (
                   SELECT seq FROM push_invalidations WHERE at <= ?1 LIMIT ?2)";
    let (invalidations, more) = in_chunks(rows_max, |limit| w.db.run(sql, (since, limit)))?;
    let sql = "DELETE FROM push_tokens WHERE (device, kind, name) IN (
                   SELECT device, kind, name FROM push_tokens WHERE expires_at <= ?1 LIMIT ?2)";
    let (push_tokens, more_tokens) = in_chunks(rows_max, |limit| w.db.run(sql, (at, limit)))?;
    let sql = "DELETE FROM push_records WHERE id IN (
                   SELECT id FROM push_records WHERE keep_until <= ?1 LIMIT ?2)";
    let (push_records, more_records) = in_chunks(rows_max, |limit| w.db.run(sql, (at, limit)))?;
    let (deleted_devices, more_deleted) = forget_deleted(w.db, now, rows_max)?;
    let before = forgotten_broadcasts(retained_since(w, now), now).0 as i64;
    let sql = "DELETE FROM broadcasts WHERE num IN (
                   SELECT num FROM broadcasts WHERE ended_at <= ?1 LIMIT ?2)";
    let (_, more_broadcasts) = in_chunks(rows_max, |limit| w.db.run(sql, (before, limit)))?;
    let (_, more_counts) = ready(preferences::prune(w.db, now, rows_max))?;
    let more =
        [more_topics, more_keys, more, more_tokens, more_records, more_deleted, more_broadcasts, more_counts]
            .contains(&true);
    Ok(Pruned {
        idempotency,
        invalidations,
        push_tokens,
        push_records,
        deleted_devices,
        more,
        ..Pruned::default()
    })
}

/// Removes deleted devices whose tokens have expired.
fn forget_deleted(db: &Db, now: Timestamp, rows_max: usize) -> Result<(u64, bool), Error> {
    // Of older programs.
    let sql = "UPDATE deleted_devices SET deleted_at = ?1 WHERE (app, id) IN (
                   SELECT app, id FROM deleted_devices WHERE deleted_at = 0 LIMIT ?2)";
    let (_, more_old) = in_chunks(rows_max, |limit| db.run(sql, (now.0 as i64, limit)))?;
    let before = ready(clean_up::tokens_expired(db, now))?.0 as i64;
    let sql = "DELETE FROM deleted_devices WHERE (app, id) IN (
                   SELECT app, id FROM deleted_devices WHERE deleted_at > 0 AND deleted_at <= ?1 LIMIT ?2)";
    let (removed, more) = in_chunks(rows_max, |limit| db.run(sql, (before, limit)))?;
    Ok((removed, more_old || more))
}

/// Removes unused topics; true if there may be more.
fn forget_topics(w: &Write<'_>, now: Timestamp, rows_max: usize) -> Result<(u64, bool), Error> {
    let before = Timestamp(now.0.saturating_sub(w.options.unused_topic_retention.as_millis() as u64));
    let (started, mut left, mut removed) = (Instant::now(), rows_max.min(REMOVED_MAX), 0);
    // Every call makes progress, however slow the disk is.
    loop {
        let limit = left.min(unused_topic::CHUNK);
        let marked = ready(unused_topic::marked(w.db, before, limit))?;
        removed += ready(unused_topic::settle(w.db, &marked, before))?.removed;
        left -= limit;
        if marked.len() < limit || left == 0 || started.elapsed() >= SLICE {
            return Ok((removed, marked.len() == limit));
        }
    }
}

/// Runs a statement that changes at most a given number of rows, until it finds fewer, `rows_max` are changed, or the
/// slice is over. Returns how many rows, and whether there may be more.
fn in_chunks(
    rows_max: usize,
    mut statement: impl FnMut(i64) -> Result<usize, Error>,
) -> Result<(u64, bool), Error> {
    let (started, mut changed) = (Instant::now(), 0);
    // Every call makes progress, however slow the disk is.
    while changed < rows_max && (changed == 0 || started.elapsed() < SLICE) {
        let limit = CHUNK.min(rows_max - changed);
        let rows = statement(limit as i64)?;
        changed += rows;
        if rows < limit {
            return Ok((changed as u64, false));
        }
    }
    Ok((changed as u64, true))
}

/// Removes notifications whose ttl has ended from inboxes and logs.
fn expire(w: &mut Write<'_>, now: Timestamp, rows_max: usize) -> Result<Pruned, Error> {
    let (db, started) = (w.db, Instant::now());
    let sql = "SELECT num, app, topic, topic_offset FROM notifications
               WHERE standing = 1 AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2";
    let rows = db.all(sql, (now.0 as i64, rows_max as i64), |row| {
        Ok((row.int(0)?, row.app(1)?, row.int_or_null(2)?.zip(row.int_or_null(3)?)))
    })?;
    let mut pruned = Pruned { more: rows.len() == rows_max, ..Pruned::default() };
    // Inboxes that may still be looked into.
    let mut left = rows_max;
    for (index, (num, app, place)) in rows.into_iter().enumerate() {
        // Every call makes progress, however slow the disk is.
        if index > 0 && started.elapsed() >= SLICE {
            pruned.more = true;
            break;
        }
        if let Some((topic, offset)) = place {
            pruned.topic_log += u64::from(topic::remove_from_log(db, topic, offset, num)?);
            notification::set_standing(db, num, Standing::Expired)?;
            continue;
        }
        let mut from = w.expiring.place_of(num);
        if from.is_none() && outstanding(&outcome::sums(db, num)?) > 0 {
            from = Some(0);
        }
        let mut removed = Vec::new();
        while let Some(start) = from
            && left > 0
        {
            let page = outcome::kept_page(db, num, start, left.min(CHUNK))?;
            removed.extend(inbox::remove_from(db, &page.devices, num)?);
            left -= page.devices.len();
            from = page.next;
            if started.elapsed() >= SLICE {
                break;
            }
        }
        let removed = sorted(removed);
        let of = Some(Work::Notification(w.ids.id(num)));
        pruned.departed.add(app, of, Outcome::Expired, now, &removed);
        pruned.inbox += removed.len() as u64;
        outcome::add(db, &Part::of(num, Outcome::Expired, now, removed))?;
        if from.is_some() {
            // This notification may have more rows: its standing stays.
            w.expiring.set(num, from);
            pruned.more = true;
            break;
        }
        w.expiring.clear();
        notification::set_standing(db, num, Standing::Expired)?;
    }
    Ok(pruned)
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
fn forget(db: &Db, now: Timestamp, rows_max: usize) -> Result<Pruned, Error> {
    let (started, mut pruned) = (Instant::now(), Pruned::default());
    let sql = "SELECT num FROM notifications n WHERE keep_until <= ?1 AND standing <> 1
                   AND NOT EXISTS (SELECT 1 FROM push_queue q WHERE q.num = n.num AND q.num > 0)
                   AND NOT EXISTS (SELECT 1 FROM push_walks p WHERE p.num = n.num) LIMIT ?2";
    let nums = db.all(sql, (now.0 as i64, rows_max as i64), |row| row.int(0))?;
    let mut left = rows_max;
    for num in &nums {
        let is_empty = loop {
            let limit = left.min(CHUNK);
            let removed = forget_parts(db, *num, limit)?;
            left -= removed;
            if removed < limit || left == 0 || started.elapsed() >= SLICE {
                break removed < limit;
            }
        };
        if !is_empty {
            pruned.more = true;
            break;
        }
        pruned.notifications += 1;
        db.run("DELETE FROM notifications WHERE num = ?1", (num,))?;
        if left == 0 || started.elapsed() >= SLICE {
            pruned.more = true;
            break;
        }
    }
    pruned.more |= nums.len() == rows_max;
    Ok(pruned)
}
