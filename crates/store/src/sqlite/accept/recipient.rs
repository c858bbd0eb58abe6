//! The recipients of a target: users, devices and conditions as device numbers.

use std::collections::HashMap;

use noroshi_types::{AppId, Condition, DeviceId, DeviceNum, Target, UserId};
use rusqlite::OptionalExtension;

use crate::Error;
use crate::engine::accept::TruthTable;
use crate::engine::record::Record;
use crate::sqlite::statement::Db;

#[derive(Debug, Default)]
pub(super) struct Recipients {
    /// Sorted, each once.
    pub devices: Vec<DeviceNum>,
    /// How many of the named users or devices do not exist.
    pub unknown: u64,
}

/// The devices of a target that is not a topic.
pub(super) fn find(db: &Db, app: AppId, target: &Target) -> Result<Recipients, Error> {
    let mut found = match target {
        Target::Users(users) => of_users(db, app, users)?,
        Target::Devices(devices) => of_devices(db, app, devices)?,
        Target::Condition(condition) => of_condition(db, app, condition)?,
        Target::Topic(_) | Target::Everyone => Recipients::default(),
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

/// One pass over the subscribers of each topic sets a bit per device and topic; the truth table selects devices by their
/// bits. Where the condition holds without any subscription, it also selects devices without any of the topics.
fn of_condition(db: &Db, app: AppId, condition: &Condition) -> Result<Recipients, Error> {
    let mut subscribed: HashMap<DeviceNum, u32> = HashMap::new();
    let mut subscribers = db.prepare_cached(
        "SELECT device FROM subscriptions
         WHERE named = 1 AND topic = (SELECT num FROM topics WHERE app = ?1 AND name = ?2)",
    )?;
    for (bit, topic) in condition.topics().iter().enumerate() {
        let mut rows = subscribers.query((app.0, topic.as_str()))?;
        while let Some(row) = rows.next()? {
            *subscribed.entry(row.device(0)?).or_default() |= 1 << bit;
        }
    }
    let table = TruthTable::of(condition);
    let mut devices = Vec::new();
    if condition.matches_none() {
        let mut statement = db.prepare_cached("SELECT num FROM devices WHERE app = ?1")?;
        let mut rows = statement.query((app.0,))?;
        while let Some(row) = rows.next()? {
            let device = row.device(0)?;
            if table.holds(subscribed.get(&device).copied().unwrap_or(0)) {
                devices.push(device);
            }
        }
    } else {
        let selected = subscribed.into_iter().filter(|(_, bits)| table.holds(*bits));
        devices.extend(selected.map(|(device, _)| device));
    }
    Ok(Recipients { devices, unknown: 0 })
}
