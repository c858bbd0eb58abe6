//! Revoked app JWTs of devices and users.

use noroshi_types::{AppId, DeviceId, Timestamp, UserId};
use rusqlite::Connection;

use super::statement::Statements;
use crate::engine::record::Record;
use crate::revocation::Subject;
use crate::{Error, Revocation};

/// The time of a revocation only moves forward, even if the clock does not.
pub(super) fn revoke(
    db: &Connection,
    app: AppId,
    subject: Subject,
    id: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let sql = "INSERT INTO revocations (app, kind, id, revoked_at) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (app, kind, id) DO UPDATE SET revoked_at = max(revoked_at, excluded.revoked_at)";
    db.run(sql, (app.0, subject as u8, id, now.0 as i64)).map(drop)
}

pub(super) fn load(
    db: &Connection,
    app: AppId,
    device: &DeviceId,
    user: Option<&UserId>,
) -> Result<Revocation, Error> {
    let of = |subject: Subject, id: &str| {
        let sql = "SELECT revoked_at FROM revocations WHERE app = ?1 AND kind = ?2 AND id = ?3";
        db.first(sql, (app.0, subject as u8, id), |row| row.time(0))
    };
    let device = of(Subject::Device, device.as_str())?;
    let user = user.map(|user| of(Subject::User, user.as_str())).transpose()?.flatten();
    Ok(Revocation { device, user })
}
