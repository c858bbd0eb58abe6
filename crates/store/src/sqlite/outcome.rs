//! Outcomes of notifications as rows: parts of equal outcome and time, each with its devices.

use noroshi_types::{DeviceNum, Outcome};

use super::statement::Db;
use crate::Error;
use crate::engine::device_list;
use crate::engine::outcome::{NO_SUMS, Part, Sums};
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
    /// A device list.
    pub devices: &'r [u8],
}

/// Calls `each` with every part of a notification, oldest first. Outcomes that only a newer program knows are skipped.
pub(super) fn each_part(db: &Db, num: Num, mut each: impl FnMut(StoredPart<'_>)) -> Result<(), Error> {
    let sql = "SELECT outcome, devices FROM outcomes WHERE num = ?1 ORDER BY seq";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((num,))?;
    while let Some(row) = rows.next()? {
        if let Some(outcome) = Outcome::from_code(row.code(0)?) {
            each(StoredPart { outcome, devices: row.bytes(1)? });
        }
    }
    Ok(())
}

/// Reads no device lists, which may be long.
pub(super) fn sums(db: &Db, num: Num) -> Result<Sums, Error> {
    let mut sums = NO_SUMS;
    let sql = "SELECT outcome, count FROM outcomes WHERE num = ?1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((num,))?;
    while let Some(row) = rows.next()? {
        // Outcomes that only a newer program knows are skipped.
        if let Some(sum) = sums.get_mut(usize::from(row.code(0)?)) {
            *sum += row.count(1)?;
        }
    }
    Ok(sums)
}

/// Devices whose inbox got a notification, whether or not they still have it.
pub(super) struct KeptPage {
    pub devices: Vec<DeviceNum>,
    /// Where the next page starts; `None`: there is no more.
    pub next: Option<u64>,
}

/// At most `limit` devices from place `from` of the list on. A page costs little more than its own devices, so that a
/// notification to millions of devices can be removed in slices.
pub(super) fn kept_page(db: &Db, num: Num, from: u64, limit: usize) -> Result<KeptPage, Error> {
    let sql = "SELECT seq, count FROM outcomes WHERE num = ?1 AND outcome = ?2 ORDER BY seq";
    let parts = db.all(sql, (num, Outcome::Kept as u8), |row| Ok((row.int(0)?, row.count(1)?)))?;
    let (mut devices, mut before) = (Vec::new(), 0);
    for (seq, count) in parts {
        let skip = (from + devices.len() as u64).saturating_sub(before);
        before += count;
        if skip >= count {
            continue;
        }
        let room = limit - devices.len();
        let sql = "SELECT devices FROM outcomes WHERE seq = ?1";
        let listed = db.first(sql, (seq,), |row| {
            Ok(device_list::decode(row.bytes(0)?).skip(skip as usize).take(room).collect::<Vec<_>>())
        })?;
        devices.extend(listed.into_iter().flatten());
        if devices.len() == limit {
            break;
        }
    }
    let next = (devices.len() == limit).then_some(from + limit as u64);
    Ok(KeptPage { devices, next })
}
