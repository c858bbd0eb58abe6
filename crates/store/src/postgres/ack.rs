//! Acknowledgements: inbox rows are removed, and positions in topics move forward, with a few statements for all calls
//! that share a commit. One task writes them, so that a commit has many rows.
//!
//! The locks of an acknowledgement and of the claim of a push determine which comes first. Their order is that of
//! [`super::push::claim`]: the bucket of the notification, inbox rows by device and number, then subscriptions by
//! device and topic.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use noroshi_supervision::Heartbeat;
use noroshi_types::{DeviceNum, Outcome, Timestamp, When};
use tokio::sync::oneshot;

use super::push::claim;
use super::queue::Queued;
use super::transaction::{Failed, Tx, Values};
use super::{Postgres, campaign_sum, inbox, outcome};
use crate::engine::notification::Standing;
use crate::engine::topic::TopicNum;
use crate::ids::Num;
use crate::{Ack, Acked, Error, engine};

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

/// A queued call.
pub(super) struct AckCall {
    acks: Vec<Ack>,
    now: Timestamp,
    /// The caller may be gone and no longer need the answer.
    answer: oneshot::Sender<Result<Vec<Acked>, Error>>,
}

/// Calls and ids in one transaction. A call with more ids has a transaction to itself.
const GROUP_CALLS: usize = 512;
const GROUP_IDS: usize = 16_384;
/// While one group waits for the disk, the next one is written. Further calls gather for a larger group.
const GROUPS_AT_ONCE: usize = 2;

/// The task that writes acknowledgements: those that are queued meanwhile share the next transaction.
pub(super) struct AckWriter {
    pub store: Postgres,
    pub queued: Queued<AckCall>,
    pub pulse: Heartbeat,
}

/// Processes a batch. Returns what was outstanding. Dropping the future only loses the answer.
pub(crate) async fn ack(store: &Postgres, acks: Vec<Ack>, now: Timestamp) -> Result<Vec<Acked>, Error> {
    let ids = acks.iter().map(|ack| ack.ids.len()).sum();
    let (answer, answered) = oneshot::channel();
    if let Err((_, error)) = store.acks.push(ids, AckCall { acks, now, answer }) {
        store.metrics.refused.inc();
        return Err(error);
    }
    store.metrics.queue_operations.inc();
    answered.await.unwrap_or(Err(Error::Closed))
}

impl AckWriter {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(self) {
        let Self { store, queued, pulse } = self;
        let groups = futures_util::stream::unfold(queued, async |mut queued| {
            Some((queued.group(GROUP_CALLS, GROUP_IDS).await?, queued))
        });
        let write = async |calls| {
            // The write has its own timeouts, so the task only reports that it continues, never that it works.
            pulse.working();
            pulse.waiting();
            write_group(&store, calls).await;
        };
        groups.for_each_concurrent(GROUPS_AT_ONCE, write).await;
    }
}

async fn write_group(store: &Postgres, calls: Vec<AckCall>) {
    let started = Instant::now();
    let (calls, answers): (Vec<_>, Vec<_>) =
        calls.into_iter().map(|AckCall { acks, now, answer }| ((acks, now), answer)).unzip();
    store.metrics.queue_operations.dec_by(answers.len() as i64);
    let calls = Arc::new(calls);
    let written = store.write_here(move |tx| write(tx, Arc::clone(&calls))).await;
    store.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
    store.metrics.commit_operations.observe(answers.len() as f64);
    match written {
        Ok(acked) => {
            store.metrics.commits.inc();
            for (answer, acked) in answers.into_iter().zip(acked) {
                drop(answer.send(Ok(acked)));
            }
        }
        Err(error) => {
            store.metrics.commit_failures.inc();
            for answer in answers {
                drop(answer.send(Err(error.clone())));
            }
        }
    }
}

/// Writes a group in one transaction. Returns what was outstanding, by call. Of several calls that acknowledge the same
/// on a device, the first one counts.
async fn write(tx: Tx, calls: Arc<Vec<(Vec<Ack>, Timestamp)>>) -> Result<Vec<Vec<Acked>>, Failed> {
    let ids = tx.ids();
    let mut asked: Vec<(DeviceNum, Num, usize)> = Vec::new();
    for (call, (acks, _)) in calls.iter().enumerate() {
        let pairs = acks.iter().flat_map(|ack| ack.ids.iter().map(move |id| (ack.device, *id)));
        asked.extend(pairs.filter_map(|(device, id)| Some((device, ids.num(id)?, call))));
    }
    asked.sort_unstable();
    asked.dedup_by_key(|(device, num, _)| (*device, *num));
    let mut nums: Vec<Vec<Num>> = vec![Vec::new(); calls.len()];
    let mut acknowledged = Vec::with_capacity(asked.len());
    for (device, num) in
        acknowledge(&tx, asked.iter().map(|(device, num, _)| (*device, *num)).collect()).await?
    {
        let place = asked.binary_search_by_key(&(device, num), |(device, num, _)| (*device, *num));
        let Some(&(_, _, call)) = place.ok().and_then(|place| asked.get(place)) else { continue };
        nums[call].push(num);
        acknowledged.push((num, calls[call].1, device));
    }
    let parts = engine::ack::parts(acknowledged);
    let of_variants = parts.iter().map(|part| (part.num, Outcome::Acked, None, part.count));
    tokio::try_join!(biased; outcome::add(&tx, &parts), campaign_sum::count_variants(&tx, of_variants))?;
    Ok(nums.into_iter().map(|nums| engine::ack::answer(ids, nums)).collect())
}

/// Returns those of the pairs (sorted, each once) that were outstanding.
async fn acknowledge(tx: &Tx, pairs: Vec<(DeviceNum, Num)>) -> Result<Vec<(DeviceNum, Num)>, Failed> {
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
    let confirm_sql = confirm_sql();
    tx.prepare(&[inbox::REMOVE, ADVANCE, &confirm_sql]).await?;
    let (mut all, moved, confirmed) = tokio::try_join!(
        biased;
        inbox::remove(tx, &direct.0, &direct.1),
        positions.advance(tx),
        confirm(tx, &confirm_sql, &waiting),
    )?;
    all.extend(moved.into_iter().chain(confirmed));
    Ok(all)
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
fn confirm_sql() -> String {
    format!(
        "INSERT INTO push_confirmed (num, device)
         SELECT n.num, d.num FROM unnest($1::bigint[], $2::bigint[]) AS asked (device, num)
         JOIN notifications n ON n.num = asked.num JOIN devices d ON d.num = asked.device AND d.app = n.app
         WHERE {WAITS} ORDER BY n.num, d.num ON CONFLICT (num, device) DO NOTHING RETURNING device, num"
    )
}

async fn confirm(
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
