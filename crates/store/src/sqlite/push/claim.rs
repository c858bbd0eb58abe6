//! Who of a `fallback` batch still needs a push. Decided in the writer's transaction that leases the
//! batch: a confirmation was committed before it and counts, or comes after it and is too late.

use std::collections::HashSet;

use noroshi_types::{DeviceNum, Outcome, Timestamp};
use rusqlite::Connection;

use super::queue::Fallback;
use super::take::Known;
use crate::Error;
use crate::sqlite::ids::Num;
use crate::sqlite::{device_list, outcome};

/// Nobody is to hear of it any more. With a ttl of 0 an unconditional push is tried once (RFC 8030 §5.2:
/// the push service delivers now or never).
pub(super) fn expired(known: &Known, fallback: Fallback, now: Timestamp) -> bool {
    let at_once = fallback == Fallback::Settled && known.expires_at == known.created_at;
    known.expires_at <= now.0 as i64 && !at_once
}

/// Those that need it and those that have confirmed.
pub(super) fn split(
    db: &Connection,
    num: Num,
    known: &Known,
    fallback: Fallback,
    devices: &[DeviceNum],
    expired: bool,
) -> Result<(Vec<DeviceNum>, Vec<DeviceNum>), Error> {
    let needed = |device: &DeviceNum| -> Result<bool, Error> {
        let device = device.0 as i64;
        match fallback {
            Fallback::Settled => Ok(true),
            Fallback::Inbox => {
                let sql = "SELECT 1 FROM inbox WHERE device = ?1 AND num = ?2";
                Ok(db.prepare_cached(sql)?.exists((device, num))?)
            }
            Fallback::Position => {
                let sql = "SELECT 1 FROM subscriptions WHERE device = ?1 AND topic = ?2 AND position < ?3";
                Ok(db.prepare_cached(sql)?.exists((device, known.topic, known.offset))?)
            }
            Fallback::Confirmed => {
                // A device is in one batch, so nobody else asks.
                let sql = "DELETE FROM push_confirmed WHERE num = ?1 AND device = ?2";
                Ok(db.prepare_cached(sql)?.execute((num, device))? == 0)
            }
        }
    };
    if expired && fallback == Fallback::Inbox {
        // Pruning may have emptied the inboxes before: what was confirmed is in the trace.
        let acked = acked(db, num)?;
        return Ok(devices.iter().partition(|device| !acked.contains(device)));
    }
    let (mut still, mut confirmed) = (Vec::new(), Vec::new());
    for device in devices {
        match needed(device)? {
            true => still.push(*device),
            false => confirmed.push(*device),
        }
    }
    Ok((still, confirmed))
}

fn acked(db: &Connection, num: Num) -> Result<HashSet<DeviceNum>, Error> {
    let mut acked = HashSet::new();
    outcome::each_part(db, num, |part| {
        if part.outcome == Outcome::Acked {
            acked.extend(device_list::decode(part.devices));
        }
    })?;
    Ok(acked)
}
