//! Acknowledgements: inbox rows are removed, and positions in topics move forward, with a few statements for a whole
//! batch.
//!
//! The locks of an acknowledgement and of the claim of a push determine which comes first. Their order is that of
//! [`super::push::claim`]: the bucket of the notification, inbox rows by device and number, then subscriptions by
//! device and topic.

use std::collections::{BTreeMap, HashMap};

use noroshi_types::{DeviceNum, Outcome, Timestamp, When};

use super::push::claim;
use super::transaction::{Failed, Tx, Values};
use super::{campaign_sum, inbox, outcome};
use crate::engine::notification::Standing;
use crate::engine::outcome::Part;
use crate::engine::topic::TopicNum;
use crate::ids::Num;
use crate::{Ack, Acked};

/// What acknowledging a notification does.
#[derive(Clone, Copy)]
enum MessageKind {
    /// A stored topic message: the position moves forward. `outstanding`: the message is still in the log, so the
    /// acknowledgement counts.
    Position { topic: TopicNum, offset: i64, outstanding: bool },
    /// A push waits for the acknowledgement.
    Push,
    /// An inbox may have a row.
    Nothing,
}

/// Processes a batch. Returns what was outstanding.
pub(crate) async fn ack(tx: &Tx, acks: &[Ack], now: Timestamp) -> Result<Vec<Acked>, Failed> {
    let ids = tx.ids();
    let pairs = acks.iter().flat_map(|ack| ack.ids.iter().map(move |id| (ack.device, *id)));
    let pairs = pairs.filter_map(|(device, id)| Some((device, ids.num(id)?)));
    let mut pairs: Vec<(DeviceNum, Num)> = pairs.collect();
    pairs.sort_unstable();
    pairs.dedup();
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let settles = look_up(tx, &pairs).await?;
    let kind = |num: &Num| settles.get(num).copied().unwrap_or(MessageKind::Nothing);
    let of = |pairs: &mut dyn Iterator<Item = &(DeviceNum, Num)>| -> (Vec<i64>, Vec<Num>) {
        pairs.map(|(device, num)| (device.0 as i64, *num)).unzip()
    };
    let waiting = of(&mut pairs.iter().filter(|(_, num)| matches!(kind(num), MessageKind::Push)));
    let direct = of(&mut pairs.iter().filter(|(_, num)| matches!(kind(num), MessageKind::Nothing)));
    let positions = NewPositions::of(&pairs, kind);

    if !waiting.1.is_empty() {
        claim::keep_out(tx, &waiting.1).await?;
    }
    let acknowledge_sql = acknowledge_sql();
    tx.prepare(&[inbox::REMOVE, ADVANCE, &acknowledge_sql]).await?;
    let (removed, moved, acknowledged) = tokio::try_join!(
        biased;
        inbox::remove(tx, &direct.0, &direct.1),
        positions.advance(tx),
        acknowledge(tx, &acknowledge_sql, &waiting),
    )?;
    let mut all: BTreeMap<Num, Vec<DeviceNum>> = BTreeMap::new();
    for (device, num) in removed.into_iter().chain(moved).chain(acknowledged) {
        all.entry(num).or_default().push(device);
    }
    let (mut parts, mut acked) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
    for (num, mut devices) in all {
        devices.sort_unstable();
        acked.push(Acked { id: ids.id(num), count: devices.len() as u64 });
        parts.push(Part::of(num, Outcome::Acked, now, devices));
    }
    let of_variants = parts.iter().map(|part| (part.num, Outcome::Acked, None, part.count));
    tokio::try_join!(biased; outcome::add(tx, &parts), campaign_sum::count_variants(tx, of_variants))?;
    Ok(acked)
}

/// Only stored messages move a position: an acknowledgement of a live message says nothing about the stored messages
/// before it. If no push waits for an acknowledgement, none will; if one does, it is checked again under the lock.
async fn look_up(tx: &Tx, pairs: &[(DeviceNum, Num)]) -> Result<HashMap<Num, MessageKind>, Failed> {
    let mut nums: Vec<Num> = pairs.iter().map(|(_, num)| *num).collect();
    nums.sort_unstable();
    nums.dedup();
    let sql = format!(
        "SELECT asked.num, n.topic, n.topic_offset, n.standing, {WAITS} FROM unnest($1::bigint[]) AS asked (num)
         LEFT JOIN notifications n ON n.num = asked.num AND n.topic IS NOT NULL AND n.delivery = $2"
    );
    let rows = tx.query(&sql, &[&nums, &(When::Stored as i64)]).await?;
    let settles = rows.iter().map(|row| {
        let settles = match row.get::<_, Option<TopicNum>>(1) {
            Some(topic) => MessageKind::Position {
                topic,
                offset: row.get::<_, Option<i64>>(2).unwrap_or(0),
                outstanding: row.get::<_, Option<i64>>(3) == Some(Standing::Kept as i64),
            },
            None if row.get(4) => MessageKind::Push,
            None => MessageKind::Nothing,
        };
        (row.get(0), settles)
    });
    Ok(settles.collect())
}

/// Whether a push waits for acknowledgements of `asked.num`. Not an EXISTS, for which the planner may scan the whole
/// queue.
const WAITS: &str = "coalesce(
        (SELECT true FROM push_queue q WHERE q.num = asked.num AND q.num > 0 AND q.fallback = 3 LIMIT 1),
        (SELECT true FROM push_walks w WHERE w.num = asked.num AND w.fallback = 3 LIMIT 1), false)";

/// Acknowledgements of devices of the notification's app, while a push waits.
fn acknowledge_sql() -> String {
    format!(
        "INSERT INTO push_confirmed (num, device)
         SELECT n.num, d.num FROM unnest($1::bigint[], $2::bigint[]) AS asked (device, num)
         JOIN notifications n ON n.num = asked.num JOIN devices d ON d.num = asked.device AND d.app = n.app
         WHERE {WAITS} ORDER BY n.num, d.num ON CONFLICT (num, device) DO NOTHING RETURNING device, num"
    )
}

async fn acknowledge(
    tx: &Tx,
    sql: &str,
    (devices, nums): &(Vec<i64>, Vec<Num>),
) -> Result<Vec<(DeviceNum, Num)>, Failed> {
    if nums.is_empty() {
        return Ok(Vec::new());
    }
    Ok(tx.query(sql, &[devices, nums]).await?.iter().map(inbox::pair_of).collect())
}

/// Positions only move forward. Returns the old positions.
const ADVANCE: &str = "WITH found AS (
        SELECT s.device, s.topic, s.position, asked.furthest
        FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS asked (device, topic, furthest)
        JOIN subscriptions s ON s.device = asked.device AND s.topic = asked.topic
        WHERE s.position < asked.furthest ORDER BY s.device, s.topic FOR NO KEY UPDATE OF s)
    UPDATE subscriptions s SET position = found.furthest FROM found
    WHERE s.device = found.device AND s.topic = found.topic
    RETURNING s.device, s.topic, found.position";

/// A message up to a device's new position.
struct PassedMessage {
    offset: i64,
    num: Num,
    outstanding: bool,
}

/// The new positions of devices in topics.
struct NewPositions(BTreeMap<(DeviceNum, TopicNum), Vec<PassedMessage>>);

impl NewPositions {
    fn of(pairs: &[(DeviceNum, Num)], kind: impl Fn(&Num) -> MessageKind) -> Self {
        let mut positions: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (device, num) in pairs {
            if let MessageKind::Position { topic, offset, outstanding } = kind(num) {
                positions.entry((*device, topic)).or_default().push(PassedMessage {
                    offset,
                    num: *num,
                    outstanding,
                });
            }
        }
        Self(positions)
    }

    /// Moves positions forward. Returns the outstanding messages that they passed.
    async fn advance(&self, tx: &Tx) -> Result<Vec<(DeviceNum, Num)>, Failed> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let (mut devices, mut topics, mut furthest) = (Vec::new(), Vec::new(), Vec::new());
        for ((device, topic), offsets) in &self.0 {
            devices.push(device.0 as i64);
            topics.push(*topic);
            furthest.push(offsets.iter().map(|message| message.offset).max().unwrap_or(0));
        }
        let values: Values<'_> = &[&devices, &topics, &furthest];
        let mut passed = Vec::new();
        for row in tx.query(ADVANCE, values).await? {
            let device = DeviceNum(row.get::<_, i64>(0) as u64);
            let before: i64 = row.get(2);
            let candidates = self.0.get(&(device, row.get(1))).into_iter().flatten();
            let passed_now = candidates.filter(|message| message.outstanding && message.offset > before);
            passed.extend(passed_now.map(|message| (device, message.num)));
        }
        Ok(passed)
    }
}
