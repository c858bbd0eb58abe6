//! Reads and writes for residences; the writer excludes other decisions.

use std::collections::{BTreeSet, HashMap};

use noroshi_types::{AppId, DeviceId, Timestamp, UserId};

use crate::Error;
use crate::cells::{Assign, CellNum, MoveStep, Residence};
use crate::engine::cells::cell_of;
use crate::engine::cells::residence::{Assignments, CellDevice, DEVICE_COLUMNS, Residences, set_home};
use crate::sqlite::reader::Read;
use crate::sqlite::statement::{Db, ready};
use crate::sqlite::writer::Write;

impl Residences for Db {
    fn lock(&self, _: AppId) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }
}

pub(crate) fn assign(
    &Write { db, .. }: &Write<'_>,
    app: AppId,
    devices: &[Assign],
    now: Timestamp,
) -> Result<Vec<Result<Residence, Error>>, Error> {
    let (mut known, mut homes) = (HashMap::new(), HashMap::new());
    for one in devices {
        let device = device(db, app, &one.device)?;
        let users = one.user.as_ref().map(UserId::as_str).into_iter();
        for user in users.chain(device.as_ref().and_then(|device| device.user.as_deref())) {
            let sql = "SELECT cell FROM cell_users WHERE app = ?1 AND user = ?2 AND until = 0";
            let home = db.first(sql, (app.0, user), |row| cell_of(row, 0))?;
            homes.extend(home.map(|home| (user.to_owned(), home)));
        }
        known.extend(device.map(|device| (one.device.as_str().to_owned(), device)));
    }
    let mut assignments = Assignments::new(known, homes);
    let answers = devices.iter().map(|one| assignments.assign(app, one)).collect();
    for (user, home) in &assignments.new_homes {
        ready(set_home(db, app, user, *home))?;
    }
    for (device, CellDevice { user, cell, previous, step }) in &assignments.changed {
        let sql = "INSERT INTO cell_devices (app, device, user, cell, previous, step, moved_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                   ON CONFLICT (app, device) DO UPDATE SET user = ?3, cell = ?4, previous = ?5, step = ?6,
                       moved_at = CASE WHEN step = ?6 THEN moved_at ELSE ?7 END";
        let previous = previous.map(|cell| cell.0);
        db.run(sql, (app.0, device, user, cell.0, previous, *step as u8, now.0 as i64))?;
    }
    Ok(answers)
}

pub(crate) fn arrived(
    &Write { db, .. }: &Write<'_>,
    app: AppId,
    devices: &[(DeviceId, CellNum)],
) -> Result<Vec<DeviceId>, Error> {
    let sql =
        "UPDATE cell_devices SET step = ?4 WHERE app = ?1 AND device = ?2 AND cell = ?3 AND step IN (?5, ?6)";
    let mut elsewhere = Vec::new();
    for (id, cell) in devices {
        let (tell, told) = (MoveStep::Tell as u8, MoveStep::Told as u8);
        db.run(sql, (app.0, id.as_str(), cell.0, MoveStep::Arrived as u8, tell, told))?;
        if device(db, app, id)?.is_none_or(|device| device.cell != *cell) {
            elsewhere.push(id.clone());
        }
    }
    Ok(elsewhere)
}

pub(crate) fn of_device(read: Read<'_>, apps: &[AppId], id: &DeviceId) -> Result<Vec<Residence>, Error> {
    let apps: BTreeSet<AppId> = apps.iter().copied().collect();
    let found = apps.into_iter().map(|app| in_app(read.db, app, id));
    found.filter_map(Result::transpose).collect()
}

pub(super) fn in_app(db: &Db, app: AppId, id: &DeviceId) -> Result<Option<Residence>, Error> {
    Ok(device(db, app, id)?.map(|device| device.residence(app)))
}

/// The cells to ask for each user, home first.
pub(crate) fn of_users(
    read: Read<'_>,
    app: AppId,
    users: &[UserId],
    now: Timestamp,
) -> Result<Vec<Vec<CellNum>>, Error> {
    users.iter().map(|user| of_user(read.db, app, user, now)).collect()
}

/// The cells to ask for a user, home first.
pub(super) fn of_user(db: &Db, app: AppId, user: &UserId, now: Timestamp) -> Result<Vec<CellNum>, Error> {
    let sql = "SELECT cell FROM cell_users WHERE app = ?1 AND user = ?2 AND (until = 0 OR until > ?3) ORDER BY until";
    db.all(sql, (app.0, user.as_str(), now.0 as i64), |row| cell_of(row, 0))
}

fn device(db: &Db, app: AppId, id: &DeviceId) -> Result<Option<CellDevice>, Error> {
    let sql = format!("SELECT {DEVICE_COLUMNS} FROM cell_devices WHERE app = ?1 AND device = ?2");
    db.first(&sql, (app.0, id.as_str()), |row| CellDevice::of_row(row, 0))
}
