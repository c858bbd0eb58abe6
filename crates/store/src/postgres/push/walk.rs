//! Walks: notifications to topics, conditions and everyone, whose devices are collected page by page.

use noroshi_types::Timestamp;

use crate::engine::outcome::Part;
use crate::engine::push::{DUE_WALKS, WAITING_MAX, WalkRow, page_part, sorted, walk_entry, walk_of};
use crate::engine::record::Record;
use crate::postgres::outcome;
use crate::postgres::push_queue::NewRows;
use crate::postgres::transaction::{Failed, Tx};
use crate::{NewBatch, PushPart, Walk, Walks};

pub(crate) async fn due(tx: &Tx, now: Timestamp, limit: usize) -> Result<Walks, Failed> {
    let (now, limit, waiting_max) = (now.0 as i64, limit as i64, WAITING_MAX as i64);
    let rows = async { tx.query(DUE_WALKS, &[&now, &limit, &waiting_max]).await };
    let next = async { tx.query_one("SELECT min(due_at) FROM push_walks WHERE due_at > $1", &[&now]).await };
    let (rows, next) = tokio::try_join!(rows, next)?;
    let due = rows.iter().map(|row| Ok(walk_of(row, tx.ids())?)).collect::<Result<_, Failed>>()?;
    Ok(Walks { due, next_due: next.time_or_null(0)? })
}

/// Of two calls that move the same walk, the second waits for the first at the walk's row and finds its cursor moved.
pub(crate) async fn walked(
    tx: &Tx,
    walk: &Walk,
    batches: &[NewBatch],
    cursor: Option<u64>,
    parts: &[PushPart],
    now: Timestamp,
) -> Result<bool, Failed> {
    let (id, from) = (walk.id as i64, walk.cursor as i64);
    let moved = match cursor {
        Some(cursor) => {
            let sql = "UPDATE push_walks SET cursor = $3 WHERE id = $1 AND cursor = $2 RETURNING app, num, fallback, token";
            tx.query_opt(sql, &[&id, &from, &(cursor as i64)]).await?
        }
        None => {
            let sql =
                "DELETE FROM push_walks WHERE id = $1 AND cursor = $2 RETURNING app, num, fallback, token";
            tx.query_opt(sql, &[&id, &from]).await?
        }
    };
    let Some(row) = moved else { return Ok(false) };
    let walk = WalkRow::of_row(&row)?;
    let mut rows = NewRows::default();
    for batch in batches {
        rows.push(&walk_entry(&walk, batch)?, &sorted(batch.recipients.clone()));
    }
    let parts: Vec<Part> = parts.iter().map(|part| page_part(walk.num, part, now)).collect();
    tokio::try_join!(rows.insert(tx), outcome::add(tx, &parts))?;
    Ok(true)
}
