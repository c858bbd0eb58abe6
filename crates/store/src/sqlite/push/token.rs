//! The end of tokens: removed on proof, set aside on doubt, each noted for export.

use noroshi_types::{AppId, DeviceId, DeviceNum, PushEnvironment, PushService, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use crate::{Error, Invalidation, TokenGone, TokenSuspect};

/// A device's token as it is now.
struct Token {
    device: String,
    service: u8,
    environment: u8,
    at: i64,
    suspect: bool,
}

/// True if it was the token that was pushed to, and registered before the push service's time.
pub(super) fn remove(db: &Connection, app: AppId, gone: &TokenGone, now: Timestamp) -> Result<bool, Error> {
    let Some(token) = find(db, app, gone.device)? else { return Ok(false) };
    let registered_since = gone.since.is_some_and(|since| token.at as u64 >= since.0);
    if token.at as u64 != gone.token_at.0 || registered_since {
        return Ok(false);
    }
    db.prepare_cached(
        "UPDATE devices SET push_token = NULL, push_service = NULL, push_environment = NULL, push_token_at = NULL,
                            push_suspect_at = NULL, push_suspect_reason = NULL
         WHERE num = ?1",
    )?
    .execute((gone.device.0 as i64,))?;
    note(db, app, &token, gone.reason, true, now)?;
    Ok(true)
}

/// True if it was the token that was pushed to, and nobody doubted it before.
pub(super) fn set_aside(
    db: &Connection,
    app: AppId,
    suspect: &TokenSuspect,
    now: Timestamp,
) -> Result<bool, Error> {
    let Some(token) = find(db, app, suspect.device)? else { return Ok(false) };
    if token.at as u64 != suspect.token_at.0 || token.suspect {
        return Ok(false);
    }
    let sql = "UPDATE devices SET push_suspect_at = ?2, push_suspect_reason = ?3 WHERE num = ?1";
    db.prepare_cached(sql)?.execute((suspect.device.0 as i64, now.0 as i64, suspect.reason))?;
    note(db, app, &token, suspect.reason, false, now)?;
    Ok(true)
}

fn find(db: &Connection, app: AppId, device: DeviceNum) -> Result<Option<Token>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT id, push_service, push_environment, push_token_at, push_suspect_at IS NOT NULL FROM devices
         WHERE num = ?1 AND app = ?2 AND push_service IS NOT NULL",
    )?;
    let found = statement.query_row((device.0 as i64, app.0), |row| {
        Ok(Token {
            device: row.get(0)?,
            service: row.get(1)?,
            environment: row.get(2)?,
            at: row.get(3)?,
            suspect: row.get(4)?,
        })
    });
    Ok(found.optional()?)
}

fn note(
    db: &Connection,
    app: AppId,
    token: &Token,
    reason: &str,
    removed: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let mut statement = db.prepare_cached(
        "INSERT INTO push_invalidations (app, at, device, service, environment, reason, removed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let at = now.0 as i64;
    statement.execute((app.0, at, &token.device, token.service, token.environment, reason, removed))?;
    Ok(())
}

pub(super) fn invalidations(
    db: &Connection,
    app: AppId,
    after: u64,
    limit: usize,
) -> Result<Vec<Invalidation>, Error> {
    let unknown = || Error::Engine("a stored invalidation is not known to this program".to_owned());
    let mut statement = db.prepare_cached(
        "SELECT seq, at, device, service, environment, reason, removed FROM push_invalidations
         WHERE app = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut rows = statement.query((app.0, after, limit as i64))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let device = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
        found.push(Invalidation {
            seq: row.get::<_, i64>(0)? as u64,
            at: Timestamp(row.get::<_, i64>(1)? as u64),
            device: DeviceId::parse(device).map_err(|_| unknown())?,
            service: PushService::from_code(row.get(3)?).ok_or_else(unknown)?,
            environment: PushEnvironment::from_code(row.get(4)?).unwrap_or_default(),
            reason: row.get(5)?,
            removed: row.get(6)?,
        });
    }
    Ok(found)
}
