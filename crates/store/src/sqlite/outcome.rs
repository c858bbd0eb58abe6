//! What became of notifications: parts of equal outcome and time, each with its devices.

use noroshi_types::{DeviceNum, Outcome, Timestamp};
use rusqlite::Connection;

use super::device_list;
use super::ids::Num;
use super::writer::Write;
use crate::{Error, OutcomePart};

/// Adds a part; `devices` must be sorted. Nothing is written for nobody.
pub(super) fn add(
    db: &Connection,
    num: Num,
    outcome: Outcome,
    at: Timestamp,
    devices: &[DeviceNum],
    count: u64,
) -> Result<(), Error> {
    if count == 0 {
        return Ok(());
    }
    let mut statement = db.prepare_cached(
        "INSERT INTO outcomes (num, outcome, at, count, devices) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    statement.execute((num, outcome as u8, at.0 as i64, count as i64, device_list::encode(devices)))?;
    Ok(())
}

/// Adds parts that came from outside. Those of notifications that are not known (their row was left
/// out, or is pruned) would never be pruned themselves, so they are left out too.
pub(super) fn record(w: &Write<'_>, parts: Vec<OutcomePart>) -> Result<(), Error> {
    let mut known = w.db.prepare_cached("SELECT 1 FROM notifications WHERE num = ?1")?;
    for mut part in parts {
        part.devices.sort_unstable();
        if let Some(num) = w.ids.num(part.id)
            && known.exists((num,))?
        {
            add(w.db, num, part.outcome, part.at, &part.devices, part.count)?;
        }
    }
    Ok(())
}

/// Calls `each` with every part of a notification, oldest first, and the bytes of its device list.
pub(super) fn each_part(
    db: &Connection,
    num: Num,
    mut each: impl FnMut(Outcome, Timestamp, u64, &[u8]),
) -> Result<(), Error> {
    let mut statement =
        db.prepare_cached("SELECT outcome, at, count, devices FROM outcomes WHERE num = ?1 ORDER BY seq")?;
    let mut rows = statement.query((num,))?;
    while let Some(row) = rows.next()? {
        // A code this program does not know was written by a newer one: not ours to tell.
        if let Some(outcome) = Outcome::from_code(row.get(0)?) {
            let at = Timestamp(row.get::<_, i64>(1)? as u64);
            each(
                outcome,
                at,
                row.get::<_, i64>(2)? as u64,
                row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?,
            );
        }
    }
    Ok(())
}

/// Counts by the outcome's code.
pub(super) type Sums = [u64; Outcome::ALL.len() + 1];

pub(super) fn sums(db: &Connection, num: Num) -> Result<Sums, Error> {
    let mut sums = [0; Outcome::ALL.len() + 1];
    each_part(db, num, |outcome, _, count, _| sums[outcome as usize] += count)?;
    Ok(sums)
}

/// Every way out of an inbox, each recorded with its devices.
const WAYS_OUT: [Outcome; 5] =
    [Outcome::Acked, Outcome::Expired, Outcome::Collapsed, Outcome::Cancelled, Outcome::Evicted];

/// Inbox rows that are left.
pub(super) fn outstanding(sums: &Sums) -> u64 {
    let left = WAYS_OUT.into_iter().map(|outcome| sums[outcome as usize]).sum();
    sums[Outcome::Kept as usize].saturating_sub(left)
}

/// The devices whose inbox still has it, in order. Worked out from the lists, not by a look into the inbox
/// of each that ever had it: a prune that takes many rounds would look into all of them every time.
pub(super) fn outstanding_devices(db: &Connection, num: Num) -> Result<Vec<DeviceNum>, Error> {
    let (mut devices, mut out) = (Vec::new(), Vec::new());
    each_part(db, num, |outcome, _, _, list| {
        if outcome == Outcome::Kept {
            devices.extend(device_list::decode(list));
        } else if WAYS_OUT.contains(&outcome) {
            out.extend(device_list::decode(list));
        }
    })?;
    out.sort_unstable();
    let mut out = out.into_iter().peekable();
    devices.retain(|device| {
        while out.next_if(|gone| gone < device).is_some() {}
        out.peek() != Some(device)
    });
    Ok(devices)
}
