//! Reads and writes for messages that wait for their cells.

use noroshi_types::{Target, Timestamp, TraceContext};

use super::residence;
use crate::cells::{CellNum, NewMessage, Part, PartEnd, PartState, Taken, Wanted};
use crate::engine::cells::cell_of;
use crate::engine::cells::outbox::{
    self as messages, KeyUse, NewRow, Reading, drop_body, keys_since, part_of, prune_keys_and_homes,
};
use crate::engine::record::Record;
use crate::sqlite::Sqlite;
use crate::sqlite::reader::Read;
use crate::sqlite::statement::{Db, ready};
use crate::sqlite::writer::Write;
use crate::{Error, Idempotency};

pub(crate) fn keep(
    w: &Write<'_>,
    messages: &[NewMessage],
    now: Timestamp,
) -> Result<Vec<Result<Taken, Error>>, Error> {
    let mut reading = Reading::default();
    for message in messages {
        read(w.db, message, now, &mut reading)?;
    }
    let (answers, rows) = reading.plan(messages)?;
    rows.iter().try_for_each(|row| write(w.db, row, now))?;
    Ok(answers)
}

fn read(db: &Db, message: &NewMessage, now: Timestamp, reading: &mut Reading) -> Result<(), Error> {
    let app = message.app;
    if db.has_row("SELECT 1 FROM apps WHERE id = ?1", (app.0,))? {
        reading.apps.insert(app);
    }
    if let Some(Idempotency { key, .. }) = &message.idempotency {
        let sql =
            "SELECT k.body_hash, m.id, m.targets FROM cell_keys AS k JOIN cell_messages AS m ON m.num = k.num
                   WHERE k.app = ?1 AND k.key = ?2 AND k.at > ?3";
        let found = db.first(sql, (app.0, key, keys_since(now)), |row| KeyUse::of_row(row, 0))?;
        reading.earlier.extend(found.map(|earlier| ((app, key.to_string()), earlier)));
    }
    match &message.target {
        Target::Users(users) => {
            let known = reading.users.entry(app).or_default();
            for user in users {
                known.insert(user.as_str().to_owned(), residence::of_user(db, app, user, now)?);
            }
        }
        Target::Devices(devices) => {
            let known = reading.devices.entry(app).or_default();
            for device in devices {
                let found = residence::in_app(db, app, device)?;
                known.extend(found.map(|found| (device.as_str().to_owned(), found)));
            }
        }
        Target::Topic(_) | Target::Condition(_) | Target::Everyone => {}
    }
    Ok(())
}

fn write(db: &Db, row: &NewRow<'_>, now: Timestamp) -> Result<(), Error> {
    let NewRow { message, split } = row;
    let sql = "INSERT INTO cell_messages (id, app, target, body, summary, targets, unknown, accepted_at, expires_at,
                                          trace)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let expires_at = message.expires_at.0 as i64;
    let values = (
        message.id.as_bytes(),
        message.app.0,
        &*message.to,
        row.body(),
        &*message.summary,
        message.target.named_count().map(|count| count as i64),
        split.unknown as i64,
        now.0 as i64,
        expires_at,
        message.trace.map(TraceContext::to_stored),
    );
    db.run(sql, values)?;
    let num = db.last_insert_rowid();
    for (cell, target) in &split.parts {
        let sql = "INSERT INTO cell_parts (num, cell, state, target, expires_at) VALUES (?1, ?2, 0, ?3, ?4)";
        db.run(sql, (num, cell.0, target, expires_at))?;
    }
    if let Some(Idempotency { key, body_hash }) = &message.idempotency {
        let sql =
            "INSERT OR REPLACE INTO cell_keys (app, key, body_hash, num, at) VALUES (?1, ?2, ?3, ?4, ?5)";
        db.run(sql, (message.app.0, &**key, body_hash, num, now.0 as i64))?;
    }
    Ok(())
}

pub(crate) fn waiting(
    read: Read<'_>,
    cell: CellNum,
    wanted: &Wanted,
    rows_max: usize,
    bytes_max: usize,
) -> Result<Vec<Part>, Error> {
    // Parts first, by their number.
    let sql = "SELECT p.num, m.id, m.app, coalesce(p.target, m.target), m.body, m.expires_at, m.trace
               FROM cell_parts AS p CROSS JOIN cell_messages AS m ON m.num = p.num
               WHERE p.cell = ?1 AND p.state = 0 AND p.num > ?3 AND (?4 IS NULL OR m.app = ?4)
                   AND m.app NOT IN (SELECT value FROM json_each(?5))
               ORDER BY p.num LIMIT ?2";
    let (of, apart, after) = wanted.values();
    let apart = serde_json::to_string(&apart).map_err(|error| Error::Engine(error.to_string()))?;
    let mut statement = read.db.prepare_cached(sql)?;
    let mut rows = statement.query((cell.0, rows_max as i64, after, of, apart))?;
    let (mut parts, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let part = part_of(row)?;
        bytes += part.to.len() + part.body.len();
        if bytes > bytes_max && !parts.is_empty() {
            break;
        }
        parts.push(part);
    }
    Ok(parts)
}

/// The number of the newest message.
pub(crate) async fn newest(store: &Sqlite) -> Result<u64, Error> {
    store.read(|read| ready(messages::newest(read.db))).await
}

pub(crate) fn end(w: &Write<'_>, cell: CellNum, ended: &[(u64, PartEnd)]) -> Result<(), Error> {
    let db = w.db;
    let forwarded = "UPDATE cell_parts SET remote = ?3, target = NULL,
             state = CASE WHEN (SELECT cancelled FROM cell_messages WHERE num = ?1) THEN 5 ELSE 1 END
         WHERE num = ?1 AND cell = ?2 AND state IN (0, 4)";
    let over = "UPDATE cell_parts SET state = ?3, reason = ?4, target = NULL
         WHERE num = ?1 AND cell = ?2 AND state = 0";
    for (num, end) in ended {
        let num = *num as i64;
        match end {
            PartEnd::Forwarded(remote) => db.run(forwarded, (num, cell.0, remote.as_bytes()))?,
            PartEnd::Refused(reason) => {
                db.run(over, (num, cell.0, PartState::Refused as u8, Some(reason)))?
            }
            PartEnd::Expired => db.run(over, (num, cell.0, PartState::Expired as u8, None::<&str>))?,
        };
        ready(drop_body(db, num))?;
    }
    Ok(())
}

/// The cell has cancelled these.
pub(crate) fn cancelled(w: &Write<'_>, cell: CellNum, nums: &[u64]) -> Result<(), Error> {
    let sql = "UPDATE cell_parts SET state = 1 WHERE num = ?1 AND cell = ?2 AND state = 5";
    nums.iter().try_for_each(|num| w.db.run(sql, (*num as i64, cell.0)).map(drop))
}

pub(crate) fn prune(
    w: &Write<'_>,
    now: Timestamp,
    expired: Timestamp,
    forgotten: Timestamp,
    rows_max: usize,
) -> Result<bool, Error> {
    let (db, limit) = (w.db, rows_max as i64);
    let sql =
        "SELECT num, cell FROM cell_parts WHERE state = 0 AND expires_at < ?1 ORDER BY expires_at LIMIT ?2";
    let over = db.all(sql, (expired.0 as i64, limit), |row| Ok((row.count(0)?, cell_of(row, 1)?)))?;
    for (num, cell) in &over {
        end(w, *cell, &[(*num, PartEnd::Expired)])?;
    }
    let sql = "SELECT num FROM cell_messages AS m WHERE accepted_at < ?1
                   AND NOT EXISTS (SELECT 1 FROM cell_parts WHERE num = m.num AND state IN (0, 5))
               ORDER BY accepted_at LIMIT ?2";
    let old = db.all(sql, (forgotten.0 as i64, limit), |row| row.int(0))?;
    for num in &old {
        db.run("DELETE FROM cell_parts WHERE num = ?1", (num,))?;
        db.run("DELETE FROM cell_messages WHERE num = ?1", (num,))?;
    }
    let [keys, homes] = ready(prune_keys_and_homes(db, now, rows_max))?;
    Ok([over.len(), old.len(), keys, homes].contains(&rows_max))
}
