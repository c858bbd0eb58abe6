//! Confirmations: inbox rows go, positions in topics move forward.

use std::collections::HashMap;

use noroshi_types::{DeviceNum, Outcome, Timestamp, When};
use rusqlite::{Connection, OptionalExtension};

use super::ids::Num;
use super::notification::Standing;
use super::push::queue;
use super::topic::TopicNum;
use super::writer::Write;
use super::{inbox, outcome, variant};
use crate::{Ack, Acked, Error};

/// What a confirmation of a notification that is not in the device's inbox does, looked up once for all
/// devices that confirm it.
#[derive(Clone, Copy)]
enum Settles {
    /// A stored topic message: the position moves. `outstanding`: it is still in the log, so that
    /// settles something.
    Position {
        topic: TopicNum,
        offset: i64,
        outstanding: bool,
    },
    /// A push waits for it.
    Push,
    Nothing,
}

/// Takes in a batch; what was outstanding of it.
pub(super) fn ack(w: &Write<'_>, acks: &[Ack], now: Timestamp) -> Result<Vec<Acked>, Error> {
    let mut confirmed: HashMap<Num, Vec<DeviceNum>> = HashMap::new();
    let mut known: HashMap<Num, Settles> = HashMap::new();
    for Ack { device, ids } in acks {
        let mut nums: Vec<Num> = ids.iter().filter_map(|id| w.ids.num(*id)).collect();
        // In order, so that each topic message moves the position and counts.
        nums.sort_unstable();
        for num in nums {
            if confirm(w.db, *device, num, &mut known)? {
                confirmed.entry(num).or_default().push(*device);
            }
        }
    }
    let mut acked = Vec::with_capacity(confirmed.len());
    for (num, mut devices) in confirmed {
        devices.sort_unstable();
        let count = devices.len() as u64;
        outcome::add(w.db, num, Outcome::Acked, now, &devices, count)?;
        variant::count(w.db, num, Outcome::Acked, None, count)?;
        acked.push(Acked { id: w.ids.id(num), count });
    }
    Ok(acked)
}

/// True if it was outstanding on this device.
fn confirm(
    db: &Connection,
    device: DeviceNum,
    num: Num,
    known: &mut HashMap<Num, Settles>,
) -> Result<bool, Error> {
    if inbox::remove(db, device, num)? {
        return Ok(true);
    }
    let settles = match known.get(&num) {
        Some(settles) => *settles,
        None => {
            let settles = look_up(db, num)?;
            known.insert(num, settles);
            settles
        }
    };
    match settles {
        Settles::Position { topic, offset, outstanding } => {
            let mut advance = db.prepare_cached(
                "UPDATE subscriptions SET position = ?3 WHERE device = ?1 AND topic = ?2 AND position < ?3",
            )?;
            let advanced = advance.execute((device.0 as i64, topic, offset))? > 0;
            Ok(advanced && outstanding)
        }
        Settles::Push => queue::confirm(db, num, device),
        Settles::Nothing => Ok(false),
    }
}

/// Only what was stored moves a position: what was for those who were there says nothing about the
/// stored messages before it.
fn look_up(db: &Connection, num: Num) -> Result<Settles, Error> {
    let mut statement = db.prepare_cached(
        "SELECT topic, topic_offset, standing FROM notifications
         WHERE num = ?1 AND topic IS NOT NULL AND delivery = ?2",
    )?;
    let found = statement.query_row((num, When::Stored as u8), |row| {
        let outstanding = row.get::<_, u8>(2)? == Standing::Kept as u8;
        Ok(Settles::Position { topic: row.get(0)?, offset: row.get(1)?, outstanding })
    });
    match found.optional()? {
        Some(position) => Ok(position),
        None if queue::waits_for_confirmation(db, num)? => Ok(Settles::Push),
        None => Ok(Settles::Nothing),
    }
}
