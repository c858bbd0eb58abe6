//! Who is meant: users, devices and conditions as device numbers.

use std::collections::HashMap;

use noroshi_types::{AppId, Condition, DeviceId, DeviceNum, Target, UserId};
use rusqlite::{Connection, OptionalExtension};

use crate::Error;

/// Sorted devices, and how many of those named do not exist.
#[derive(Debug, Default)]
pub(super) struct Recipients {
    pub devices: Vec<DeviceNum>,
    pub unknown: u64,
}

/// The devices meant by a target that is not a topic.
pub(super) fn find(db: &Connection, app: AppId, target: &Target) -> Result<Recipients, Error> {
    let mut found = match target {
        Target::Users(users) => of_users(db, app, users)?,
        Target::Devices(devices) => of_devices(db, app, devices)?,
        Target::Condition(condition) => of_condition(db, app, condition)?,
        Target::Topic(_) | Target::Everyone => Recipients::default(),
    };
    found.devices.sort_unstable();
    Ok(found)
}

fn of_users(db: &Connection, app: AppId, users: &[UserId]) -> Result<Recipients, Error> {
    let mut found = Recipients { devices: Vec::with_capacity(users.len()), unknown: 0 };
    let mut statement = db.prepare_cached("SELECT num FROM devices WHERE app = ?1 AND user = ?2")?;
    for user in users {
        let before = found.devices.len();
        let mut rows = statement.query((app.0, user.as_str()))?;
        while let Some(row) = rows.next()? {
            found.devices.push(DeviceNum(row.get::<_, i64>(0)? as u64));
        }
        if found.devices.len() == before {
            found.unknown += 1;
        }
    }
    Ok(found)
}

fn of_devices(db: &Connection, app: AppId, devices: &[DeviceId]) -> Result<Recipients, Error> {
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

/// One pass over the subscribers of each topic named gives every device a set of bits, which are
/// looked up in the condition's truth table. Where the condition holds without any subscription,
/// the devices that appeared nowhere are meant too.
fn of_condition(db: &Connection, app: AppId, condition: &Condition) -> Result<Recipients, Error> {
    let topics = condition.topics();
    let mut subscribed: HashMap<i64, u32> = HashMap::new();
    let mut subscribers = db.prepare_cached(
        "SELECT device FROM subscriptions
         WHERE named = 1 AND topic = (SELECT num FROM topics WHERE app = ?1 AND name = ?2)",
    )?;
    for (bit, topic) in topics.iter().enumerate() {
        let mut rows = subscribers.query((app.0, topic.as_str()))?;
        while let Some(row) = rows.next()? {
            *subscribed.entry(row.get(0)?).or_default() |= 1 << bit;
        }
    }
    // At most 5 topics (types::limits::CONDITION_TOPICS_MAX): 32 lines.
    let table: Vec<bool> = (0u32..1 << topics.len())
        .map(|bits| {
            condition.matches(|topic| topics.binary_search(&topic).is_ok_and(|bit| bits & (1 << bit) != 0))
        })
        .collect();
    let meant = |bits: u32| table.get(bits as usize).copied().unwrap_or(false);
    let mut devices = Vec::new();
    if condition.matches_none() {
        let mut statement = db.prepare_cached("SELECT num FROM devices WHERE app = ?1")?;
        let mut rows = statement.query((app.0,))?;
        while let Some(row) = rows.next()? {
            let num: i64 = row.get(0)?;
            if meant(subscribed.get(&num).copied().unwrap_or(0)) {
                devices.push(DeviceNum(num as u64));
            }
        }
    } else {
        let all = subscribed.into_iter().filter(|(_, bits)| meant(*bits));
        devices.extend(all.map(|(num, _)| DeviceNum(num as u64)));
    }
    Ok(Recipients { devices, unknown: 0 })
}
