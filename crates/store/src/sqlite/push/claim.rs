//! Which devices of a `fallback` batch still need a push. Decided in the writer's transaction that leases the batch: a
//! acknowledgement was committed before it and counts, or comes after it and is too late.

use std::collections::HashSet;

use noroshi_types::{DeviceNum, Outcome, Timestamp};

use crate::Error;
use crate::Fallback;
use crate::engine::device_list;
use crate::engine::push::{Known, QueueRow};
use crate::ids::Num;
use crate::sqlite::outcome;
use crate::sqlite::statement::Db;

/// The devices that need a push, and those that have acknowledged.
pub(super) fn split(
    db: &Db,
    row: &QueueRow,
    known: &Known,
    now: Timestamp,
) -> Result<(Vec<DeviceNum>, Vec<DeviceNum>), Error> {
    let (num, fallback) = (row.entry.num, row.entry.fallback);
    if fallback == Fallback::Inbox && row.is_expired(now) {
        // Pruning may have emptied the inboxes already; the trace has the acknowledgements.
        let acked = acked(db, num)?;
        return Ok(row.recipients.iter().partition(|device| !acked.contains(device)));
    }
    let (mut needed, mut acknowledged) = (Vec::new(), Vec::new());
    for &device in &row.recipients {
        match needs_push(db, num, known, fallback, device.0 as i64)? {
            true => needed.push(device),
            false => acknowledged.push(device),
        }
    }
    Ok((needed, acknowledged))
}

fn needs_push(db: &Db, num: Num, known: &Known, fallback: Fallback, device: i64) -> Result<bool, Error> {
    match fallback {
        Fallback::Settled => Ok(true),
        Fallback::Inbox => db.has_row("SELECT 1 FROM inbox WHERE device = ?1 AND num = ?2", (device, num)),
        Fallback::Position => {
            let sql = "SELECT 1 FROM subscriptions WHERE device = ?1 AND topic = ?2 AND position < ?3";
            db.has_row(sql, (device, known.topic, known.offset))
        }
        // A device is in one batch, so no other batch needs the acknowledgement.
        Fallback::Acknowledged => {
            Ok(db.run("DELETE FROM push_confirmed WHERE num = ?1 AND device = ?2", (num, device))? == 0)
        }
    }
}

fn acked(db: &Db, num: Num) -> Result<HashSet<DeviceNum>, Error> {
    let mut acked = HashSet::new();
    outcome::each_part(db, num, |part| {
        if part.outcome == Outcome::Acked {
            acked.extend(device_list::decode(part.devices));
        }
    })?;
    Ok(acked)
}
