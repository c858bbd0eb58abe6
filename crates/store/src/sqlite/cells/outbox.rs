//! What was accepted for cells, in parts that wait until their cell has taken them.
//!
//! Invariant: a message's body is kept exactly as long as one of its parts waits.

use noroshi_types::{AppId, NotificationId, Target, Timestamp, TraceContext, limits};
use rusqlite::{Connection, OptionalExtension};

use super::residence;
use crate::cells::{
    CellNum, Depth, NewMessage, Part, PartEnd, PartState, Relayed, RelayedPart, Residence, Split, Taken,
    Wanted,
};
use crate::{Error, Idempotency, row};

pub(super) fn take(
    db: &Connection,
    messages: &[NewMessage],
    now: Timestamp,
) -> Result<Vec<Result<Taken, Error>>, Error> {
    // An engine that fails in the middle fails all: half a message is never kept.
    messages
        .iter()
        .map(|message| match take_one(db, message, now) {
            Err(error @ (Error::Engine(_) | Error::Full)) => Err(error),
            answer => Ok(answer),
        })
        .collect()
}

fn take_one(db: &Connection, message: &NewMessage, now: Timestamp) -> Result<Taken, Error> {
    if let Some(idempotency) = &message.idempotency
        && let Some(earlier) = answered_before(db, message.app, idempotency, now)?
    {
        return Ok(earlier);
    }
    let app = db.prepare_cached("SELECT 1 FROM apps WHERE id = ?1")?.exists((message.app.0,))?;
    if !app {
        return Err(Error::NotFound);
    }
    let targets = message.target.named_count();
    let Split { parts, unknown } = split(db, message, now)?;
    if parts.keys().any(|cell| message.full.contains(cell)) {
        return Err(Error::Overloaded);
    }
    let body = if parts.is_empty() { "" } else { &*message.body };
    db.prepare_cached(
        "INSERT INTO cell_messages (id, app, target, body, summary, targets, unknown, accepted_at, expires_at,
                                    trace)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute((
        message.id.as_bytes(),
        message.app.0,
        &*message.to,
        body,
        &*message.summary,
        targets.map(|count| count as i64),
        unknown as i64,
        now.0 as i64,
        message.expires_at.0 as i64,
        message.trace.map(TraceContext::to_stored),
    ))?;
    let num = db.last_insert_rowid();
    let mut statement = db.prepare_cached(
        "INSERT INTO cell_parts (num, cell, state, target, expires_at) VALUES (?1, ?2, 0, ?3, ?4)",
    )?;
    for (cell, target) in &parts {
        statement.execute((num, cell.0, target, message.expires_at.0 as i64))?;
    }
    if let Some(Idempotency { key, body_hash }) = &message.idempotency {
        db.prepare_cached(
            "INSERT OR REPLACE INTO cell_keys (app, key, body_hash, num, at) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((message.app.0, &**key, body_hash, num, now.0 as i64))?;
    }
    Ok(Taken { id: message.id, targets, cells: parts.into_keys().collect(), replayed: false })
}

fn answered_before(
    db: &Connection,
    app: AppId,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<Option<Taken>, Error> {
    let since = now.0.saturating_sub(limits::IDEMPOTENCY_WINDOW.as_millis() as u64);
    let mut statement = db.prepare_cached(
        "SELECT k.body_hash, m.id, m.targets FROM cell_keys AS k JOIN cell_messages AS m ON m.num = k.num
         WHERE k.app = ?1 AND k.key = ?2 AND k.at > ?3",
    )?;
    let found = statement
        .query_row((app.0, &*idempotency.key, since as i64), |row| {
            Ok((row.get::<_, [u8; 32]>(0)?, row.get(1)?, row.get::<_, Option<i64>>(2)?))
        })
        .optional()?;
    let Some((body_hash, id, targets)) = found else { return Ok(None) };
    if body_hash != idempotency.body_hash {
        return Err(Error::IdempotencyConflict);
    }
    Ok(Some(Taken {
        id: NotificationId::from_bytes(id),
        targets: targets.map(|count| count as u64),
        cells: Vec::new(),
        replayed: true,
    }))
}

fn split(db: &Connection, message: &NewMessage, now: Timestamp) -> Result<Split, Error> {
    match &message.target {
        Target::Users(users) => {
            let of_user = |user| residence::of_user(db, message.app, user, now);
            let cells = users.iter().map(of_user).collect::<Result<Vec<_>, _>>()?;
            Split::of("users", users.iter().map(|user| user.as_str()).zip(cells))
        }
        Target::Devices(devices) => {
            let of_device = |device| residence::of_device(db, &[message.app], device);
            let found = devices.iter().map(of_device).collect::<Result<Vec<_>, _>>()?;
            let cells = found.iter().map(|found| found.iter().flat_map(Residence::asked).collect());
            Split::of("devices", devices.iter().map(|device| device.as_str()).zip(cells))
        }
        Target::Topic(_) | Target::Condition(_) | Target::Everyone => {
            Ok(Split::everywhere(&message.everywhere))
        }
    }
}

pub(super) fn waiting(
    db: &Connection,
    cell: CellNum,
    wanted: &Wanted,
    rows_max: usize,
    bytes_max: usize,
) -> Result<Vec<Part>, Error> {
    // Parts first, by their number.
    let mut statement = db.prepare_cached(
        "SELECT p.num, m.id, m.app, coalesce(p.target, m.target), m.body, m.expires_at, m.trace
         FROM cell_parts AS p CROSS JOIN cell_messages AS m ON m.num = p.num
         WHERE p.cell = ?1 AND p.state = 0 AND p.num > ?3 AND (?4 IS NULL OR m.app = ?4)
             AND m.app NOT IN (SELECT value FROM json_each(?5))
         ORDER BY p.num LIMIT ?2",
    )?;
    let (of, apart, after) = wanted.columns();
    let apart = serde_json::to_string(&apart).map_err(|error| Error::Engine(error.to_string()))?;
    let mut rows = statement.query((cell.0, rows_max as i64, after, of, apart))?;
    let (mut parts, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let part = Part {
            num: row.get::<_, i64>(0)? as u64,
            id: NotificationId::from_bytes(row.get(1)?),
            app: AppId(row.get(2)?),
            to: row.get(3)?,
            body: row.get(4)?,
            expires_at: Timestamp(row.get::<_, i64>(5)? as u64),
            trace: row::trace_of(row.get_ref(6)?.as_blob_or_null().map_err(rusqlite::Error::from)?),
        };
        bytes += part.to.len() + part.body.len();
        if bytes > bytes_max && !parts.is_empty() {
            break;
        }
        parts.push(part);
    }
    Ok(parts)
}

pub(super) fn newest(db: &Connection) -> Result<u64, Error> {
    let mut statement = db.prepare_cached("SELECT coalesce(max(num), 0) FROM cell_messages")?;
    Ok(statement.query_row((), |row| row.get::<_, i64>(0))? as u64)
}

pub(super) fn waits_before(db: &Connection, cell: CellNum, app: AppId, num: u64) -> Result<bool, Error> {
    let mut statement = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM cell_parts AS p CROSS JOIN cell_messages AS m ON m.num = p.num
                        WHERE p.cell = ?1 AND p.state = 0 AND p.num < ?2 AND m.app = ?3)",
    )?;
    Ok(statement.query_row((cell.0, num as i64, app.0), |row| row.get(0))?)
}

pub(super) fn end(db: &Connection, cell: CellNum, ended: &[(u64, PartEnd)]) -> Result<(), Error> {
    let mut forwarded = db.prepare_cached(
        "UPDATE cell_parts SET remote = ?3, target = NULL,
             state = CASE WHEN (SELECT cancelled FROM cell_messages WHERE num = ?1) THEN 5 ELSE 1 END
         WHERE num = ?1 AND cell = ?2 AND state IN (0, 4)",
    )?;
    let mut over = db.prepare_cached(
        "UPDATE cell_parts SET state = ?3, reason = ?4, target = NULL
         WHERE num = ?1 AND cell = ?2 AND state = 0",
    )?;
    for (num, end) in ended {
        let num = *num as i64;
        match end {
            PartEnd::Forwarded(remote) => forwarded.execute((num, cell.0, remote.as_bytes()))?,
            PartEnd::Refused(reason) => {
                over.execute((num, cell.0, PartState::Refused as u8, Some(reason)))?
            }
            PartEnd::Expired => over.execute((num, cell.0, PartState::Expired as u8, None::<&str>))?,
        };
        drop_body(db, num)?;
    }
    Ok(())
}

fn drop_body(db: &Connection, num: i64) -> Result<(), Error> {
    db.prepare_cached(
        "UPDATE cell_messages SET body = '' WHERE num = ?1
             AND NOT EXISTS (SELECT 1 FROM cell_parts WHERE num = ?1 AND state = 0)",
    )?
    .execute((num,))?;
    Ok(())
}

pub(super) fn relayed(db: &Connection, id: NotificationId) -> Result<Option<Relayed>, Error> {
    let num: Option<i64> = db
        .prepare_cached("SELECT num FROM cell_messages WHERE id = ?1")?
        .query_row((id.as_bytes(),), |row| row.get(0))
        .optional()?;
    num.map(|num| load(db, num)).transpose()
}

pub(super) fn relayed_as(
    db: &Connection,
    cell: CellNum,
    remote: NotificationId,
) -> Result<Option<Relayed>, Error> {
    let num: Option<i64> = db
        .prepare_cached("SELECT num FROM cell_parts WHERE cell = ?1 AND remote = ?2")?
        .query_row((cell.0, remote.as_bytes()), |row| row.get(0))
        .optional()?;
    num.map(|num| load(db, num)).transpose()
}

fn load(db: &Connection, num: i64) -> Result<Relayed, Error> {
    let mut statement = db.prepare_cached(
        "SELECT id, app, summary, targets, unknown, accepted_at, expires_at, trace, cancelled
         FROM cell_messages WHERE num = ?1",
    )?;
    let mut found = statement.query_row((num,), |row| {
        Ok(Relayed {
            id: NotificationId::from_bytes(row.get(0)?),
            app: AppId(row.get(1)?),
            summary: row.get(2)?,
            targets: row.get::<_, Option<i64>>(3)?.map(|count| count as u64),
            unknown: row.get::<_, i64>(4)? as u64,
            accepted_at: Timestamp(row.get::<_, i64>(5)? as u64),
            expires_at: Timestamp(row.get::<_, i64>(6)? as u64),
            trace: row::trace_of(row.get_ref(7)?.as_blob_or_null()?),
            cancelled: row.get(8)?,
            parts: Vec::new(),
        })
    })?;
    let mut statement =
        db.prepare_cached("SELECT cell, state, remote, reason FROM cell_parts WHERE num = ?1 ORDER BY cell")?;
    let mut rows = statement.query((num,))?;
    while let Some(row) = rows.next()? {
        let code: u8 = row.get(1)?;
        found.parts.push(RelayedPart {
            cell: CellNum(row.get(0)?),
            state: PartState::from_code(code)
                .ok_or_else(|| Error::Engine(format!("a stored state of a part: {code}")))?,
            remote: row.get::<_, Option<[u8; 16]>>(2)?.map(NotificationId::from_bytes),
            reason: row.get(3)?,
        });
    }
    Ok(found)
}

pub(super) fn cancel(db: &Connection, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error> {
    let num: Option<i64> = db
        .prepare_cached("UPDATE cell_messages SET cancelled = 1 WHERE id = ?1 AND app = ?2 RETURNING num")?
        .query_row((id.as_bytes(), app.0), |row| row.get(0))
        .optional()?;
    let Some(num) = num else { return Ok(None) };
    db.prepare_cached(
        "UPDATE cell_parts SET state = CASE state WHEN 0 THEN 4 ELSE 5 END WHERE num = ?1 AND state IN (0, 1)",
    )?
    .execute((num,))?;
    drop_body(db, num)?;
    load(db, num).map(Some)
}

pub(super) fn cancelling(
    db: &Connection,
    cell: CellNum,
    limit: usize,
) -> Result<Vec<(u64, AppId, NotificationId)>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT p.num, m.app, p.remote FROM cell_parts AS p JOIN cell_messages AS m ON m.num = p.num
         WHERE p.cell = ?1 AND p.state = 5 ORDER BY p.num LIMIT ?2",
    )?;
    let rows = statement.query_map((cell.0, limit as i64), |row| {
        let num = row.get::<_, i64>(0)? as u64;
        Ok((num, AppId(row.get(1)?), NotificationId::from_bytes(row.get(2)?)))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn cancelled(db: &Connection, cell: CellNum, nums: &[u64]) -> Result<(), Error> {
    let mut statement =
        db.prepare_cached("UPDATE cell_parts SET state = 1 WHERE num = ?1 AND cell = ?2 AND state = 5")?;
    for num in nums {
        statement.execute((*num as i64, cell.0))?;
    }
    Ok(())
}

pub(super) fn depths(db: &Connection) -> Result<Vec<Depth>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT p.cell, p.parts, m.accepted_at
         FROM (SELECT cell, count(*) AS parts, min(num) AS first FROM cell_parts WHERE state = 0 GROUP BY cell) AS p
         JOIN cell_messages AS m ON m.num = p.first ORDER BY p.cell",
    )?;
    let rows = statement.query_map((), |row| {
        Ok(Depth {
            cell: CellNum(row.get(0)?),
            parts: row.get::<_, i64>(1)? as u64,
            oldest: row.get::<_, Option<i64>>(2)?.map(|at| Timestamp(at as u64)),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn prune(
    db: &Connection,
    now: Timestamp,
    expired: Timestamp,
    forgotten: Timestamp,
    rows_max: usize,
) -> Result<bool, Error> {
    let limit = rows_max as i64;
    let mut statement = db.prepare_cached(
        "SELECT num, cell FROM cell_parts WHERE state = 0 AND expires_at < ?1 ORDER BY expires_at LIMIT ?2",
    )?;
    let over: Vec<(i64, u32)> = statement
        .query_map((expired.0 as i64, limit), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (num, cell) in &over {
        end(db, CellNum(*cell), &[(*num as u64, PartEnd::Expired)])?;
    }
    let mut statement = db.prepare_cached(
        "SELECT num FROM cell_messages AS m WHERE accepted_at < ?1
             AND NOT EXISTS (SELECT 1 FROM cell_parts WHERE num = m.num AND state IN (0, 5))
         ORDER BY accepted_at LIMIT ?2",
    )?;
    let old: Vec<i64> =
        statement.query_map((forgotten.0 as i64, limit), |row| row.get(0))?.collect::<Result<_, _>>()?;
    for num in &old {
        db.prepare_cached("DELETE FROM cell_parts WHERE num = ?1")?.execute((num,))?;
        db.prepare_cached("DELETE FROM cell_messages WHERE num = ?1")?.execute((num,))?;
    }
    let keys_since = now.0.saturating_sub(limits::IDEMPOTENCY_WINDOW.as_millis() as u64) as i64;
    let keys = db
        .prepare_cached(
            "DELETE FROM cell_keys WHERE (app, key) IN
                 (SELECT app, key FROM cell_keys WHERE at <= ?1 LIMIT ?2)",
        )?
        .execute((keys_since, limit))?;
    let places = db
        .prepare_cached(
            "DELETE FROM cell_users WHERE (app, user, cell) IN
                 (SELECT app, user, cell FROM cell_users WHERE until > 0 AND until <= ?1 LIMIT ?2)",
        )?
        .execute((now.0 as i64, limit))?;
    Ok([over.len(), old.len(), keys, places].contains(&rows_max))
}
