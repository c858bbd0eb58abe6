//! Revoked app JWTs of devices and users.

use noroshi_types::{AppId, DeviceId, Timestamp, UserId};
use rusqlite::{Connection, OptionalExtension};

use super::writer::Write;
use crate::revocation::Subject;
use crate::{Error, Revocation};

/// The time only moves forward, whatever the clock does.
pub(super) fn revoke(
    w: &Write<'_>,
    app: AppId,
    subject: Subject,
    id: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let mut statement = w.db.prepare_cached(
        "INSERT INTO revocations (app, kind, id, revoked_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (app, kind, id) DO UPDATE SET revoked_at = max(revoked_at, excluded.revoked_at)",
    )?;
    statement.execute((app.0, subject as u8, id, now.0 as i64))?;
    Ok(())
}

pub(super) fn load(
    db: &Connection,
    app: AppId,
    device: &DeviceId,
    user: Option<&UserId>,
) -> Result<Revocation, Error> {
    let mut statement =
        db.prepare_cached("SELECT revoked_at FROM revocations WHERE app = ?1 AND kind = ?2 AND id = ?3")?;
    let mut of = |subject: Subject, id: &str| {
        let at = statement.query_row((app.0, subject as u8, id), |row| row.get::<_, i64>(0)).optional()?;
        Ok::<_, Error>(at.map(|at| Timestamp(at as u64)))
    };
    let device = of(Subject::Device, device.as_str())?;
    let user = user.map(|user| of(Subject::User, user.as_str())).transpose()?.flatten();
    Ok(Revocation { device, user })
}
