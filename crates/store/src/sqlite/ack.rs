//! Acknowledgements: inbox rows are removed, and positions in topics move forward.

use std::collections::HashMap;

use noroshi_types::{DeviceNum, Outcome, Timestamp, When};

use super::statement::Db;
use super::writer::Write;
use super::{campaign_row, inbox, outcome, push_queue};
use crate::engine::notification::Standing;
use crate::engine::outcome::Part;
use crate::engine::record::Record;
use crate::engine::topic::TopicNum;
use crate::ids::Num;
use crate::{Ack, Acked, Error};

/// What acknowledging a notification does that is not in the device's inbox; looked up once for all devices.
#[derive(Clone, Copy)]
enum MessageKind {
    /// A stored topic message: the position moves forward. `outstanding`: the message is still in the log, so the
    /// acknowledgement counts.
    Position {
        topic: TopicNum,
        offset: i64,
        outstanding: bool,
    },
    /// A push waits for the acknowledgement.
    Push,
    Nothing,
}

/// Processes a batch. Returns what was outstanding.
pub(crate) fn ack(w: &Write<'_>, acks: &[Ack], now: Timestamp) -> Result<Vec<Acked>, Error> {
    let mut acknowledged: HashMap<Num, Vec<DeviceNum>> = HashMap::new();
    let mut known: HashMap<Num, MessageKind> = HashMap::new();
    for Ack { device, ids } in acks {
        let mut nums: Vec<Num> = ids.iter().filter_map(|id| w.ids.num(*id)).collect();
        // In order, so that each topic message moves the position and counts.
        nums.sort_unstable();
        for num in nums {
            if acknowledge(w.db, *device, num, &mut known)? {
                acknowledged.entry(num).or_default().push(*device);
            }
        }
    }
    let mut acked = Vec::with_capacity(acknowledged.len());
    for (num, mut devices) in acknowledged {
        devices.sort_unstable();
        let count = devices.len() as u64;
        outcome::add(w.db, &Part::of(num, Outcome::Acked, now, devices))?;
        campaign_row::count_variant(w.db, num, Outcome::Acked, "", count)?;
        acked.push(Acked { id: w.ids.id(num), count });
    }
    Ok(acked)
}

/// True if the notification was outstanding on this device.
fn acknowledge(
    db: &Db,
    device: DeviceNum,
    num: Num,
    known: &mut HashMap<Num, MessageKind>,
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
        MessageKind::Position { topic, offset, outstanding } => {
            let sql =
                "UPDATE subscriptions SET position = ?3 WHERE device = ?1 AND topic = ?2 AND position < ?3";
            Ok(db.run(sql, (device.0 as i64, topic, offset))? > 0 && outstanding)
        }
        MessageKind::Push => push_queue::acknowledge(db, num, device),
        MessageKind::Nothing => Ok(false),
    }
}

/// Only stored messages move a position: an acknowledgement of a live message says nothing about the stored messages
/// before it.
fn look_up(db: &Db, num: Num) -> Result<MessageKind, Error> {
    let sql = "SELECT topic, topic_offset, standing FROM notifications
               WHERE num = ?1 AND topic IS NOT NULL AND delivery = ?2";
    let position = db.first(sql, (num, When::Stored as u8), |row| {
        let outstanding = row.code(2)? == Standing::Kept as u8;
        Ok(MessageKind::Position { topic: row.int(0)?, offset: row.int(1)?, outstanding })
    })?;
    match position {
        Some(position) => Ok(position),
        None if push_queue::waits_for_acknowledgement(db, num)? => Ok(MessageKind::Push),
        None => Ok(MessageKind::Nothing),
    }
}
