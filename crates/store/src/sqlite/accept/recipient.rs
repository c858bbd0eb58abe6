//! The recipients that a target names: users and devices as device numbers.

use noroshi_types::{AppId, DeviceId, DeviceNum, Target, UserId};
use rusqlite::OptionalExtension;

use crate::Error;
use crate::engine::record::Record;
use crate::sqlite::statement::Db;

#[derive(Debug, Default)]
pub(super) struct Recipients {
    /// Sorted, each once.
    pub devices: Vec<DeviceNum>,
    /// How many of the named users or devices do not exist.
    pub unknown: u64,
}

/// The devices of a target that names users or devices.
pub(super) fn find(db: &Db, app: AppId, target: &Target) -> Result<Recipients, Error> {
    let mut found = match target {
        Target::Users(users) => of_users(db, app, users)?,
        Target::Devices(devices) => of_devices(db, app, devices)?,
        Target::Condition(_) | Target::Topic(_) | Target::Everyone => Recipients::default(),
    };
    found.devices.sort_unstable();
    found.devices.dedup();
    Ok(found)
}

fn of_users(db: &Db, app: AppId, users: &[UserId]) -> Result<Recipients, Error> {
    let mut found = Recipients { devices: Vec::with_capacity(users.len()), unknown: 0 };
    let mut statement = db.prepare_cached("SELECT num FROM devices WHERE app = ?1 AND user = ?2")?;
    for user in users {
        let before = found.devices.len();
        let mut rows = statement.query((app.0, user.as_str()))?;
        while let Some(row) = rows.next()? {
            found.devices.push(row.device(0)?);
        }
        found.unknown += u64::from(found.devices.len() == before);
    }
    Ok(found)
}

fn of_devices(db: &Db, app: AppId, devices: &[DeviceId]) -> Result<Recipients, Error> {
    let mut found = Recipients { devices: Vec::with_capacity(devices.len()), unknown: 0 };
    let mut statement = db.prepare_cached("SELECT num FROM devices WHERE app = ?1 AND id = ?2")?;
    for device in devices {
        match statement.query_row((app.0, device.as_str()), |row| row.get::<_, i64>(0)).optional()? {
            Some(num) => found.devices.push(DeviceNum(num as u64)),
            None => found.unknown += 1,
        }
    }
    Ok(found)
}
