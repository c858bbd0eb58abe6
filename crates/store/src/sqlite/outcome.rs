//! What became of notifications: parts of equal outcome and time, each with its devices.

use noroshi_types::{DeviceNum, Outcome, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::campaign::{self, CampaignNum};
use super::ids::Num;
use super::writer::Write;
use super::{device_list, variant};
pub(super) use crate::row::outstanding;
use crate::row::{Sums, WAYS_OUT};
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
    add_with_reason(db, num, outcome, None, at, devices, count)
}

/// As [`add`], with what a push service said.
pub(super) fn add_with_reason(
    db: &Connection,
    num: Num,
    outcome: Outcome,
    reason: Option<&str>,
    at: Timestamp,
    devices: &[DeviceNum],
    count: u64,
) -> Result<(), Error> {
    if count == 0 {
        return Ok(());
    }
    let mut statement = db.prepare_cached(
        "INSERT INTO outcomes (num, outcome, at, count, devices, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let devices = device_list::encode(devices);
    statement.execute((num, outcome as u8, at.0 as i64, count as i64, devices, reason))?;
    Ok(())
}

/// Adds parts that came from outside. Those of notifications that are not known (their row was left
/// out, or is pruned) would never be pruned themselves, so they are left out too. A campaign counts those of
/// what its batches published.
pub(super) fn record(w: &Write<'_>, parts: Vec<OutcomePart>) -> Result<(), Error> {
    // 0: of no campaign, or of one that was deleted.
    let mut known = w.db.prepare_cached(
        "SELECT coalesce((SELECT c.num FROM campaigns c WHERE c.num = n.campaign), 0) FROM notifications n
         WHERE n.num = ?1",
    )?;
    for mut part in parts {
        part.devices.sort_unstable();
        let Some(num) = w.ids.num(part.id) else { continue };
        let found = known.query_row((num,), |row| row.get::<_, CampaignNum>(0)).optional()?;
        let Some(campaign) = found else { continue };
        add(w.db, num, part.outcome, part.at, &part.devices, part.count)?;
        if campaign != 0 {
            campaign::count(w.db, campaign, part.outcome, None, part.count)?;
            variant::count(w.db, num, part.outcome, None, part.count)?;
        }
    }
    Ok(())
}

/// A part as it is stored.
pub(super) struct StoredPart<'r> {
    pub outcome: Outcome,
    pub at: Timestamp,
    pub count: u64,
    /// A device list.
    pub devices: &'r [u8],
    pub reason: Option<&'r str>,
}

/// Calls `each` with every part of a notification, oldest first.
pub(super) fn each_part(
    db: &Connection,
    num: Num,
    mut each: impl FnMut(StoredPart<'_>),
) -> Result<(), Error> {
    let mut statement = db.prepare_cached(
        "SELECT outcome, at, count, devices, reason FROM outcomes WHERE num = ?1 ORDER BY seq",
    )?;
    let mut rows = statement.query((num,))?;
    while let Some(row) = rows.next()? {
        // A code this program does not know was written by a newer one: not ours to tell.
        if let Some(outcome) = Outcome::from_code(row.get(0)?) {
            each(StoredPart {
                outcome,
                at: Timestamp(row.get::<_, i64>(1)? as u64),
                count: row.get::<_, i64>(2)? as u64,
                devices: row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?,
                reason: row.get_ref(4)?.as_str_or_null().map_err(rusqlite::Error::from)?,
            });
        }
    }
    Ok(())
}

pub(super) fn sums(db: &Connection, num: Num) -> Result<Sums, Error> {
    let mut sums = [0; Outcome::ALL.len() + 1];
    each_part(db, num, |part| sums[part.outcome as usize] += part.count)?;
    Ok(sums)
}

/// The devices whose inbox still has it, in order. Worked out from the lists, not by a look into the inbox
/// of each that ever had it: a prune that takes many rounds would look into all of them every time.
pub(super) fn outstanding_devices(db: &Connection, num: Num) -> Result<Vec<DeviceNum>, Error> {
    let (mut devices, mut out) = (Vec::new(), Vec::new());
    each_part(db, num, |part| {
        if part.outcome == Outcome::Kept {
            devices.extend(device_list::decode(part.devices));
        } else if WAYS_OUT.contains(&part.outcome) {
            out.extend(device_list::decode(part.devices));
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
