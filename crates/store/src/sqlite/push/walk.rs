//! Walks: notifications to topics, conditions and everyone, whose devices are collected page by page.

use noroshi_types::Timestamp;

use crate::engine::push::{DUE_WALKS, WAITING_MAX, WalkRow, page_part, sorted, walk_entry, walk_of};
use crate::engine::record::Record;
use crate::engine::session::values;
use crate::sqlite::reader::Read;
use crate::sqlite::writer::Write;
use crate::sqlite::{outcome, push_queue};
use crate::{Error, NewBatch, PushPart, Walk, Walks};

pub(crate) fn due(Read { db, ids }: Read<'_>, now: Timestamp, limit: usize) -> Result<Walks, Error> {
    let due = db.all_shared(DUE_WALKS, &values![now, limit, WAITING_MAX], |row| walk_of(row, ids))?;
    let sql = "SELECT min(due_at) FROM push_walks WHERE due_at > ?1";
    let next_due = db.first(sql, (now.0 as i64,), |row| row.time_or_null(0))?.flatten();
    Ok(Walks { due, next_due })
}

pub(crate) fn walked(
    &Write { db, .. }: &Write<'_>,
    walk: &Walk,
    batches: &[NewBatch],
    cursor: Option<u64>,
    parts: &[PushPart],
    now: Timestamp,
) -> Result<bool, Error> {
    let sql = match cursor {
        Some(_) => {
            "UPDATE push_walks SET cursor = ?2 WHERE id = ?1 AND cursor = ?3 RETURNING app, num, fallback, token"
        }
        None => {
            "DELETE FROM push_walks WHERE id = ?1 AND ?2 IS NULL AND cursor = ?3 RETURNING app, num, fallback, token"
        }
    };
    let values = (walk.id as i64, cursor.map(|cursor| cursor as i64), walk.cursor as i64);
    let Some(walk) = db.first(sql, values, |row| WalkRow::of_row(row))? else { return Ok(false) };
    for batch in batches {
        push_queue::insert(db, &walk_entry(&walk, batch)?, &sorted(batch.recipients.clone()))?;
    }
    parts.iter().try_for_each(|part| outcome::add(db, &page_part(walk.num, part, now)))?;
    Ok(true)
}
