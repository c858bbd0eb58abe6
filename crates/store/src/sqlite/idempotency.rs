//! Idempotency keys of notifications and campaigns.

use noroshi_types::{AppId, Timestamp};

use super::statement::Db;
use crate::engine::accept::key_expires_at;
use crate::engine::record::Record;
use crate::ids::Num;
use crate::{Error, Idempotency};

/// The notification that the key was used for, while the key is remembered; an error if the body was another.
pub(super) fn find(db: &Db, app: AppId, key: &Idempotency, now: Timestamp) -> Result<Option<Num>, Error> {
    let sql = "SELECT num, body_hash FROM idempotency WHERE app = ?1 AND key = ?2 AND expires_at > ?3";
    db.first(sql, (app.0, &*key.key, now.0 as i64), |row| {
        if row.bytes(1)? == key.body_hash { row.int(0) } else { Err(Error::IdempotencyConflict) }
    })
}

pub(super) fn remember(
    db: &Db,
    app: AppId,
    key: &Idempotency,
    num: Num,
    now: Timestamp,
) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO idempotency (app, key, body_hash, num, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)";
    let expires_at = key_expires_at(now).0 as i64;
    db.run(sql, (app.0, &*key.key, key.body_hash, num, expires_at)).map(drop)
}
