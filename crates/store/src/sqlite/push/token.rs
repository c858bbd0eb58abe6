//! Invalidated tokens: removed on proof, suspended as suspect, and each recorded for export.

use noroshi_types::{AppId, DeviceNum, Timestamp, TokenKey};

use crate::engine::push_token::{main_service, message_kinds};
use crate::engine::record::Record;
use crate::sqlite::statement::Db;
use crate::sqlite::writer::Write;
use crate::{Error, InvalidToken, SuspectToken, TokenReport};

/// The tokens of one kind and name, to which a batch was sent.
pub(super) struct Tokens<'a> {
    pub db: &'a Db,
    pub app: AppId,
    pub key: &'a TokenKey,
    pub now: Timestamp,
}

/// A device's current token of the kind and name.
struct Token {
    device: String,
    service: u8,
    environment: u8,
    at: i64,
    suspect: bool,
    is_main: bool,
}

impl Tokens<'_> {
    /// True if the token is still the one that was pushed to, and was registered before the push service's time.
    pub(super) fn remove(&self, gone: &InvalidToken) -> Result<bool, Error> {
        let Some(token) = self.find(gone.device, gone.token_at)? else { return Ok(false) };
        if gone.since.is_some_and(|since| token.at as u64 >= since.0) {
            return Ok(false);
        }
        let num = gone.device.0 as i64;
        if token.is_main {
            let sql = "UPDATE devices SET push_token = NULL, push_service = NULL, push_environment = NULL,
                                          push_token_at = NULL, push_suspect_at = NULL, push_suspect_reason = NULL
                       WHERE num = ?1";
            self.db.run(sql, (num,))?;
            self.promote(num)?;
        } else {
            let sql = "DELETE FROM push_tokens WHERE device = ?1 AND kind = ?2 AND name = ?3";
            self.db.run(sql, (num, self.key.kind() as u8, self.key.name()))?;
        }
        self.record(&token, gone.reason, true)?;
        Ok(true)
    }

    /// True if the token is still the one that was pushed to, and was not suspect before.
    pub(super) fn set_aside(&self, suspect: &SuspectToken) -> Result<bool, Error> {
        let Some(token) = self.find(suspect.device, suspect.token_at)? else { return Ok(false) };
        if token.suspect {
            return Ok(false);
        }
        let (num, at) = (suspect.device.0 as i64, self.now.0 as i64);
        if token.is_main {
            let sql = "UPDATE devices SET push_suspect_at = ?2, push_suspect_reason = ?3 WHERE num = ?1";
            self.db.run(sql, (num, at, suspect.reason))?;
        } else {
            let sql = "UPDATE push_tokens SET suspect_at = ?4, suspect_reason = ?5
                       WHERE device = ?1 AND kind = ?2 AND name = ?3";
            self.db.run(sql, (num, self.key.kind() as u8, self.key.name(), at, suspect.reason))?;
        }
        self.record(&token, suspect.reason, false)?;
        Ok(true)
    }

    /// The message token that was registered last becomes the main token of a device without one.
    fn promote(&self, device: i64) -> Result<(), Error> {
        let sql = format!(
            "SELECT kind FROM push_tokens WHERE device = ?1 AND kind IN {} AND name = ''
             ORDER BY registered_at DESC, kind LIMIT 1",
            message_kinds()
        );
        let Some(kind) = self.db.first(&sql, (device,), |row| row.int(0))? else { return Ok(()) };
        let sql = "UPDATE devices SET push_token = t.token, push_service = t.service, push_environment = t.environment,
                                      push_token_at = t.registered_at, push_suspect_at = t.suspect_at,
                                      push_suspect_reason = t.suspect_reason
                   FROM push_tokens t WHERE devices.num = ?1 AND t.device = ?1 AND t.kind = ?2 AND t.name = ''";
        self.db.run(sql, (device, kind))?;
        let sql = "DELETE FROM push_tokens WHERE device = ?1 AND kind = ?2 AND name = ''";
        self.db.run(sql, (device, kind)).map(drop)
    }

    /// The token that was registered at this time.
    fn find(&self, device: DeviceNum, at: Timestamp) -> Result<Option<Token>, Error> {
        let (num, at) = (device.0 as i64, at.0 as i64);
        let sql = "SELECT id, push_service, push_environment, push_token_at, push_suspect_at IS NOT NULL, 1
                   FROM devices WHERE num = ?1 AND app = ?2 AND push_service = ?3 AND push_token_at = ?4";
        let values = (num, self.app.0, main_service(self.key), at);
        if let found @ Some(_) = self.db.first(sql, values, token_of)? {
            return Ok(found);
        }
        let sql = "SELECT d.id, t.service, t.environment, t.registered_at, t.suspect_at IS NOT NULL, 0
                   FROM push_tokens t JOIN devices d ON d.num = t.device
                   WHERE t.device = ?1 AND t.kind = ?2 AND t.name = ?3 AND d.app = ?4 AND t.registered_at = ?5";
        self.db.first(sql, (num, self.key.kind() as u8, self.key.name(), self.app.0, at), token_of)
    }

    fn record(&self, token: &Token, reason: &str, removed: bool) -> Result<(), Error> {
        let sql = "INSERT INTO push_invalidations (app, at, device, service, environment, reason, removed, kind, name)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let (at, kind, name) = (self.now.0 as i64, self.key.kind() as u8, self.key.name());
        let Token { device, service, environment, .. } = token;
        self.db
            .run(sql, (self.app.0, at, device, service, environment, reason, removed, kind, name))
            .map(drop)
    }
}

/// Removes and suspends tokens. Returns how many of each.
pub(crate) fn invalidate(
    w: &Write<'_>,
    reports: &[TokenReport],
    now: Timestamp,
) -> Result<(u64, u64), Error> {
    let (mut removed, mut suspended) = (0, 0);
    for TokenReport { app, key, gone, suspects } in reports {
        let tokens = Tokens { db: w.db, app: *app, key, now };
        for gone in gone {
            removed += u64::from(tokens.remove(gone)?);
        }
        for suspect in suspects {
            suspended += u64::from(tokens.set_aside(suspect)?);
        }
    }
    Ok((removed, suspended))
}

fn token_of(row: &rusqlite::Row<'_>) -> Result<Token, Error> {
    Ok(Token {
        device: row.string(0)?,
        service: row.code(1)?,
        environment: row.code(2)?,
        at: row.int(3)?,
        suspect: row.flag(4)?,
        is_main: row.flag(5)?,
    })
}
