//! Acknowledgements: inbox rows are removed, and positions in topics move forward.
//!
//! An acknowledgement names notifications of earlier commits, so it does not wait for the staged rows of its group.

use std::collections::HashMap;

use noroshi_types::{DeviceNum, Timestamp, When};

use super::statement::Db;
use super::writer::Write;
use super::{Sqlite, inbox, push_queue};
use crate::engine::notification::Standing;
use crate::engine::record::Record;
use crate::engine::topic::TopicNum;
use crate::ids::Num;
use crate::metrics::Held;
use crate::{Ack, Acked, Error, engine};

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
pub(crate) async fn ack(store: &Sqlite, acks: Vec<Ack>, now: Timestamp) -> Result<Vec<Acked>, Error> {
    let rows = acks.iter().map(|ack| ack.ids.len()).sum();
    store.write_repeatable(rows, move |w| acknowledge(w, &acks, now)).await
}

fn acknowledge(w: &mut Write<'_>, acks: &[Ack], now: Timestamp) -> Result<Vec<Acked>, Error> {
    w.held.set(Held::by("Sessions"));
    let pairs = acks.iter().flat_map(|ack| ack.ids.iter().map(move |id| (ack.device, *id)));
    let mut pairs: Vec<(DeviceNum, Num)> =
        pairs.filter_map(|(device, id)| Some((device, w.ids.num(id)?))).collect();
    // In the order of the inboxes' key. Each message of a topic moves the position, and counts.
    pairs.sort_unstable();
    pairs.dedup();
    let db = w.db;
    let mut remove = db.prepare_cached(inbox::REMOVE)?;
    let mut known: HashMap<Num, MessageKind> = HashMap::new();
    let mut acknowledged = Vec::with_capacity(pairs.len());
    for (device, num) in pairs {
        // No inbox has a message whose position is stored.
        let is_position = matches!(known.get(&num), Some(MessageKind::Position { .. }));
        if !is_position && remove.execute((device.0 as i64, num))? > 0
            || acknowledge_elsewhere(db, device, num, &mut known)?
        {
            w.staged.add_acked(num, now, device);
            acknowledged.push(num);
        }
    }
    if !w.staged.takes(acknowledged.len(), w.options) {
        w.staged.write(db)?;
    }
    Ok(engine::ack::answer(w.ids, acknowledged))
}

/// True if the notification, which is not in the device's inbox, was outstanding.
fn acknowledge_elsewhere(
    db: &Db,
    device: DeviceNum,
    num: Num,
    known: &mut HashMap<Num, MessageKind>,
) -> Result<bool, Error> {
    let kind = match known.get(&num) {
        Some(kind) => *kind,
        None => {
            let kind = look_up(db, num)?;
            known.insert(num, kind);
            kind
        }
    };
    match kind {
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
