//! Revoked app JWTs of devices and users.

use noroshi_types::{AppId, DeviceId, UserId};

use super::statement::Db;
use crate::engine::record::Record;
use crate::revocation::Subject;
use crate::{Error, Revocation};

pub(super) fn load(
    db: &Db,
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
