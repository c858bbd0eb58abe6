//! Outcomes of notifications as rows: parts of equal outcome and time, each with its devices.

use noroshi_types::{DeviceNum, Outcome};

use super::statement::Db;
use crate::Error;
use crate::engine::device_list;
use crate::engine::outcome::{NO_SUMS, OutstandingDevices, Part, Sums};
use crate::engine::record::Record;
use crate::ids::Num;

/// Writes a part, unless it has no devices.
pub(super) fn add(db: &Db, part: &Part) -> Result<(), Error> {
    let Part { num, outcome, reason, at, devices, count } = part;
    if *count > 0 {
        let sql =
            "INSERT INTO outcomes (num, outcome, at, count, devices, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let devices = device_list::encode(devices);
        db.run(sql, (num, *outcome as u8, at.0 as i64, *count as i64, devices, reason))?;
    }
    Ok(())
}

/// A part as it is stored.
pub(super) struct StoredPart<'r> {
    pub outcome: Outcome,
    pub count: u64,
    /// A device list.
    pub devices: &'r [u8],
}

/// Calls `each` with every part of a notification, oldest first. Outcomes that only a newer program knows are skipped.
pub(super) fn each_part(db: &Db, num: Num, mut each: impl FnMut(StoredPart<'_>)) -> Result<(), Error> {
    let sql = "SELECT outcome, count, devices FROM outcomes WHERE num = ?1 ORDER BY seq";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((num,))?;
    while let Some(row) = rows.next()? {
        if let Some(outcome) = Outcome::from_code(row.code(0)?) {
            each(StoredPart { outcome, count: row.count(1)?, devices: row.bytes(2)? });
        }
    }
    Ok(())
}

pub(super) fn sums(db: &Db, num: Num) -> Result<Sums, Error> {
    let mut sums = NO_SUMS;
    each_part(db, num, |part| sums[part.outcome as usize] += part.count)?;
    Ok(sums)
}

/// The devices whose inbox still has the notification, sorted.
pub(super) fn outstanding_devices(db: &Db, num: Num) -> Result<Vec<DeviceNum>, Error> {
    let mut outstanding = OutstandingDevices::default();
    each_part(db, num, |part| outstanding.add(part.outcome, part.devices))?;
    Ok(outstanding.finish())
}
