//! Walks: notifications to topics, conditions and everyone whose devices are gathered page by page.

use noroshi_types::{AppId, Condition, Timestamp, Topic};
use tokio_postgres::Row;

use super::queue::{self, Entry, NewRows};
use crate::ids::{Ids, Num};
use crate::postgres::outcome::{self, Part};
use crate::postgres::transaction::{Failed, Tx};
use crate::row::Fallback;
use crate::{Audience, Error, NewBatch, PushPart, Walk, Walks};

/// Batches counted of each walk: what is ahead of the senders is bounded, retries are not.
const WAITING_MAX: i64 = 256;

pub(super) async fn due(tx: Tx, ids: &Ids, now: Timestamp, limit: usize) -> Result<Walks, Failed> {
    let sql = "SELECT w.id, w.app, w.num, w.lane, w.due_at, w.cursor, n.target_text, n.topic IS NOT NULL,
                      (SELECT count(*) FROM (
                          SELECT 1 FROM push_queue q
                          WHERE q.num = w.num AND q.num > 0 AND q.leased_until = 0 AND q.due_at <= $1 LIMIT $3) waiting)
                          AS waiting
               FROM push_walks w JOIN notifications n ON n.num = w.num
               WHERE w.due_at <= $1 ORDER BY waiting, w.due_at, w.id LIMIT $2";
    let now = now.0 as i64;
    let (limit, next_sql) = (limit as i64, "SELECT min(due_at) FROM push_walks WHERE due_at > $1");
    let rows = async { tx.query(sql, &[&now, &limit, &WAITING_MAX]).await };
    let next = async { tx.query_one(next_sql, &[&now]).await };
    let (rows, next) = tokio::try_join!(rows, next)?;
    let due = rows.iter().map(|row| walk_of(row, ids)).collect::<Result<_, Failed>>()?;
    Ok(Walks { due, next_due: next.get::<_, Option<i64>>(0).map(|at| Timestamp(at as u64)) })
}

fn walk_of(row: &Row, ids: &Ids) -> Result<Walk, Failed> {
    let audience = match (row.get::<_, Option<&str>>(6), row.get(7)) {
        (Some(topic), true) => Audience::Topic(Topic::from_trusted(topic)),
        (Some(condition), false) => Audience::Condition(
            Condition::parse(condition)
                .map_err(|error| Error::Engine(format!("a stored condition: {error}")))?,
        ),
        (None, _) => Audience::Everyone,
    };
    Ok(Walk {
        id: row.get::<_, i64>(0) as u64,
        app: AppId(row.get::<_, i64>(1) as u32),
        notification: ids.id(row.get(2)),
        audience,
        cursor: row.get::<_, i64>(5) as u64,
        lane: queue::lane_of(row.get(3)),
        due_at: Timestamp(row.get::<_, i64>(4) as u64),
        batches_waiting: row.get::<_, i64>(8) as usize,
    })
}

/// A page of a walk.
pub(super) struct Page {
    pub walk: i64,
    pub from: i64,
    pub batches: Vec<NewBatch>,
    pub cursor: Option<u64>,
    pub parts: Vec<PushPart>,
}

/// Of two that take the same walk on the second waits for the first, at the walk's row, and finds its cursor moved.
pub(super) async fn walked(tx: &Tx, page: &Page, now: Timestamp) -> Result<bool, Failed> {
    let Page { walk, from, batches, cursor, parts } = page;
    let moved = match cursor {
        Some(cursor) => {
            let sql = "UPDATE push_walks SET cursor = $3 WHERE id = $1 AND cursor = $2 RETURNING app, num, fallback";
            tx.query_opt(sql, &[walk, from, &(*cursor as i64)]).await?
        }
        None => {
            let sql = "DELETE FROM push_walks WHERE id = $1 AND cursor = $2 RETURNING app, num, fallback";
            tx.query_opt(sql, &[walk, from]).await?
        }
    };
    let Some(row) = moved else { return Ok(false) };
    let (app, num): (_, Num) = (AppId(row.get::<_, i64>(0) as u32), row.get(1));
    let fallback = Fallback::from_code(row.get::<_, i64>(2) as u8);
    let mut rows = NewRows::default();
    for NewBatch { service, due_at, lane, recipients } in batches {
        if service.is_none() {
            return Err(Error::Engine("a walk's batch names no push service".to_owned()).into());
        }
        let (lane, service, due_at) = (*lane, *service, *due_at);
        let entry =
            Entry { app, lane, service, campaign: 0, num, variant: None, due_at, attempt: 0, fallback };
        rows.push(&entry, &queue::sorted(recipients.clone()));
    }
    let parts: Vec<Part> = parts
        .iter()
        .map(|part| {
            let devices = queue::sorted(part.devices.clone());
            Part { reason: part.reason, ..Part::of(num, part.outcome, now, devices) }
        })
        .collect();
    tokio::try_join!(rows.insert(tx), outcome::add(tx, &parts))?;
    Ok(true)
}
