//! Invalidated tokens: removed on proof, suspended as suspect, and each recorded for export.

use noroshi_types::{AppId, DeviceNum, Timestamp};

use crate::engine::record::Record;
use crate::sqlite::statement::Db;
use crate::{Error, InvalidToken, SuspectToken};

/// A device's current token.
struct Token {
    device: String,
    service: u8,
    environment: u8,
    at: i64,
    suspect: bool,
}

/// True if the token is still the one that was pushed to, and was registered before the push service's time.
pub(super) fn remove(db: &Db, app: AppId, gone: &InvalidToken, now: Timestamp) -> Result<bool, Error> {
    let Some(token) = find(db, app, gone.device)? else { return Ok(false) };
    let registered_since = gone.since.is_some_and(|since| token.at as u64 >= since.0);
    if token.at as u64 != gone.token_at.0 || registered_since {
        return Ok(false);
    }
    let sql = "UPDATE devices SET push_token = NULL, push_service = NULL, push_environment = NULL, push_token_at = NULL,
                                  push_suspect_at = NULL, push_suspect_reason = NULL
               WHERE num = ?1";
    db.run(sql, (gone.device.0 as i64,))?;
    record(db, app, &token, gone.reason, true, now)?;
    Ok(true)
}

/// True if the token is still the one that was pushed to, and was not suspect before.
pub(super) fn set_aside(db: &Db, app: AppId, suspect: &SuspectToken, now: Timestamp) -> Result<bool, Error> {
    let Some(token) = find(db, app, suspect.device)? else { return Ok(false) };
    if token.at as u64 != suspect.token_at.0 || token.suspect {
        return Ok(false);
    }
    let sql = "UPDATE devices SET push_suspect_at = ?2, push_suspect_reason = ?3 WHERE num = ?1";
    db.run(sql, (suspect.device.0 as i64, now.0 as i64, suspect.reason))?;
    record(db, app, &token, suspect.reason, false, now)?;
    Ok(true)
}

fn find(db: &Db, app: AppId, device: DeviceNum) -> Result<Option<Token>, Error> {
    let sql =
        "SELECT id, push_service, push_environment, push_token_at, push_suspect_at IS NOT NULL FROM devices
               WHERE num = ?1 AND app = ?2 AND push_service IS NOT NULL";
    db.first(sql, (device.0 as i64, app.0), |row| {
        Ok(Token {
            device: row.string(0)?,
            service: row.code(1)?,
            environment: row.code(2)?,
            at: row.int(3)?,
            suspect: row.flag(4)?,
        })
    })
}

fn record(
    db: &Db,
    app: AppId,
    token: &Token,
    reason: &str,
    removed: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let sql = "INSERT INTO push_invalidations (app, at, device, service, environment, reason, removed)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let at = now.0 as i64;
    db.run(sql, (app.0, at, &token.device, token.service, token.environment, reason, removed)).map(drop)
}
