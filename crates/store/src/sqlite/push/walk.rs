//! Walks: notifications to topics, conditions and everyone whose devices are gathered page by page.

use noroshi_types::{AppId, Condition, Lane, Timestamp, Topic};
use rusqlite::{Connection, OptionalExtension, Row};

use super::queue::{self, Entry, Fallback};
use crate::sqlite::ids::Ids;
use crate::sqlite::outcome;
use crate::{Audience, Error, NewBatch, PushPart, Walk, Walks};

/// Batches counted of each walk: what is ahead of the senders is bounded, retries are not.
const WAITING_MAX: i64 = 256;

pub(super) fn due(db: &Connection, ids: &Ids, now: Timestamp, limit: usize) -> Result<Walks, Error> {
    let mut statement = db.prepare_cached(
        "SELECT w.id, w.app, w.num, w.lane, w.due_at, w.cursor, n.target_text, n.topic IS NOT NULL,
                (SELECT count(*) FROM (
                    SELECT 1 FROM push_queue q
                    WHERE q.num = w.num AND q.num > 0 AND q.leased_until = 0 AND q.due_at <= ?1 LIMIT ?3)) AS waiting
         FROM push_walks w JOIN notifications n ON n.num = w.num
         WHERE w.due_at <= ?1 ORDER BY waiting, w.due_at, w.id LIMIT ?2",
    )?;
    let values = (now.0 as i64, limit as i64, WAITING_MAX);
    let rows = statement.query_map(values, |row| Ok(walk_of(row, ids)))?;
    let due = rows.map(|row| row?).collect::<Result<Vec<_>, Error>>()?;
    let sql = "SELECT min(due_at) FROM push_walks WHERE due_at > ?1";
    let next_due: Option<i64> = db.prepare_cached(sql)?.query_row((now.0 as i64,), |row| row.get(0))?;
    Ok(Walks { due, next_due: next_due.map(|at| Timestamp(at as u64)) })
}

fn walk_of(row: &Row<'_>, ids: &Ids) -> Result<Walk, Error> {
    let text = row.get_ref(6)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    let audience = match (text, row.get(7)?) {
        (Some(topic), true) => Audience::Topic(Topic::from_trusted(topic)),
        (Some(condition), false) => Audience::Condition(
            Condition::parse(condition)
                .map_err(|error| Error::Engine(format!("a stored condition: {error}")))?,
        ),
        (None, _) => Audience::Everyone,
    };
    Ok(Walk {
        id: row.get::<_, i64>(0)? as u64,
        app: AppId(row.get(1)?),
        notification: ids.id(row.get(2)?),
        audience,
        cursor: row.get::<_, i64>(5)? as u64,
        lane: Lane::from_code(row.get(3)?).unwrap_or(Lane::Direct),
        due_at: Timestamp(row.get::<_, i64>(4)? as u64),
        batches_waiting: row.get::<_, i64>(8)? as usize,
    })
}

pub(super) fn walked(
    db: &Connection,
    (walk, from): (u64, u64),
    batches: Vec<NewBatch>,
    cursor: Option<u64>,
    parts: Vec<PushPart>,
    now: Timestamp,
) -> Result<bool, Error> {
    let moved = match cursor {
        Some(_) => {
            "UPDATE push_walks SET cursor = ?2 WHERE id = ?1 AND cursor = ?3 RETURNING app, num, fallback"
        }
        None => {
            "DELETE FROM push_walks WHERE id = ?1 AND ?2 IS NULL AND cursor = ?3 RETURNING app, num, fallback"
        }
    };
    let found = db
        .prepare_cached(moved)?
        .query_row((walk as i64, cursor.map(|cursor| cursor as i64), from as i64), |row| {
            Ok((AppId(row.get(0)?), row.get(1)?, Fallback::from_code(row.get(2)?)))
        })
        .optional()?;
    let Some((app, num, fallback)) = found else { return Ok(false) };
    for NewBatch { service, due_at, lane, recipients } in batches {
        if service.is_none() {
            return Err(Error::Engine("a walk's batch names no push service".to_owned()));
        }
        let entry =
            Entry { app, lane, service, campaign: 0, num, variant: None, due_at, attempt: 0, fallback };
        queue::insert(db, &entry, &queue::sorted(recipients))?;
    }
    for PushPart { outcome, reason, devices, .. } in parts {
        let devices = queue::sorted(devices);
        outcome::add_with_reason(db, num, outcome, reason, now, &devices, devices.len() as u64)?;
    }
    Ok(true)
}
