//! Who of a `fallback` batch still needs a push. Of a confirmation and the claim exactly the one wins whose commit
//! came first, on whichever nodes they are; that is a matter of what each of them locks:
//!
//! 1. **Claim**: its queue rows `FOR UPDATE` (rows that are locked are passed over, so nothing waits here).
//! 2. What only `push_confirmed` tells of: an advisory lock a bucket of notifications, in the buckets' order; the
//!    claim has it alone ([`alone`]), confirmations share it ([`keep_out`]). Whoever has it looks afresh.
//! 3. Inbox rows in the order of (device, notification): the claim keeps them from being deleted (`FOR KEY SHARE`),
//!    a confirmation deletes them. The second waits for the first and then sees the row, or that it is gone.
//! 4. Subscriptions in the order of (device, topic): the claim keeps them from being changed (`FOR SHARE`), a
//!    confirmation moves their position.
//!
//! Both lock in this order (a confirmation begins with 2.), so neither waits for one that waits for it. What comes
//! to wait all the same is a deadlock, which the engine ends and the transaction is tried again.

use std::collections::HashSet;

use noroshi_types::{DeviceNum, Outcome, Timestamp};

use crate::device_list;
use crate::ids::Num;
use crate::postgres::transaction::{Failed, Tx};
use crate::row::Fallback;

/// Stands for confirmations among the advisory locks ("push").
const LOCKS: i32 = 0x7075_7368;

/// Buckets that notifications are locked by. Each is an entry of the server's table of locks, which has some 6,400
/// by default and which a take or a confirmation of many notifications must not fill.
const BUCKETS_LOG2: u32 = 8;

/// What the batches of a notification need to know of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub created_at: i64,
    pub expires_at: i64,
    pub topic: Option<i64>,
    pub offset: i64,
}

/// A batch to be decided.
pub(super) struct Ask<'a> {
    pub num: Num,
    pub known: Known,
    pub fallback: Fallback,
    pub expired: bool,
    pub devices: &'a [DeviceNum],
}

/// Nobody is to hear of it any more. With a ttl of 0 an unconditional push is tried once (RFC 8030 §5.2:
/// the push service delivers now or never).
pub(super) fn expired(known: &Known, fallback: Fallback, now: Timestamp) -> bool {
    let at_once = fallback == Fallback::Settled && known.expires_at == known.created_at;
    known.expires_at <= now.0 as i64 && !at_once
}

/// What was found of batches to be decided.
#[derive(Default)]
pub(super) struct Answers {
    /// In an inbox, or a position before the message.
    needed: HashSet<(Num, DeviceNum)>,
    /// In `push_confirmed`, or acked according to the trace.
    confirmed: HashSet<(Num, DeviceNum)>,
}

impl Answers {
    /// Those that need it and those that have confirmed.
    pub(super) fn split(&self, ask: &Ask<'_>) -> (Vec<DeviceNum>, Vec<DeviceNum>) {
        ask.devices.iter().partition(|device| {
            let one = (ask.num, **device);
            match ask.fallback {
                Fallback::Settled => true,
                Fallback::Inbox if !ask.expired => self.needed.contains(&one),
                Fallback::Position => self.needed.contains(&one),
                // Pruning may have emptied the inboxes of what expired before: what was confirmed is in the trace.
                Fallback::Inbox | Fallback::Confirmed => !self.confirmed.contains(&one),
            }
        })
    }
}

/// Asks for all batches at once, by a statement for each kind.
pub(super) async fn ask(tx: &Tx, asks: &[Ask<'_>]) -> Result<Answers, Failed> {
    let of = |fallback| asks.iter().filter(move |ask| ask.fallback == fallback);
    let mut answers = Answers::default();
    confirmed(tx, of(Fallback::Confirmed), &mut answers).await?;
    in_inboxes(tx, of(Fallback::Inbox).filter(|ask| !ask.expired), &mut answers).await?;
    acked(tx, of(Fallback::Inbox).filter(|ask| ask.expired), &mut answers).await?;
    before(tx, of(Fallback::Position), &mut answers).await?;
    Ok(answers)
}

fn bucket(num: Num) -> i32 {
    // Fibonacci hashing: neighbours in time are spread.
    ((num as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS_LOG2)) as i32
}

fn buckets(nums: impl IntoIterator<Item = Num>) -> Vec<i32> {
    let mut buckets: Vec<_> = nums.into_iter().map(bucket).collect();
    buckets.sort_unstable();
    buckets.dedup();
    buckets
}

/// Confirmations of these have ended before, or wait for the end of this transaction.
async fn alone(tx: &Tx, nums: impl IntoIterator<Item = Num>) -> Result<(), Failed> {
    let sql = "SELECT pg_advisory_xact_lock($1, bucket) FROM unnest($2::int[]) AS bucket";
    tx.query(sql, &[&LOCKS, &buckets(nums)]).await?;
    Ok(())
}

/// Claims of these have ended before, or wait for the end of this transaction.
pub(in crate::postgres) async fn keep_out(tx: &Tx, nums: &[Num]) -> Result<(), Failed> {
    let sql = "SELECT pg_advisory_xact_lock_shared($1, bucket) FROM unnest($2::int[]) AS bucket";
    tx.query(sql, &[&LOCKS, &buckets(nums.iter().copied())]).await?;
    Ok(())
}

/// Devices with the number of a notification each, in order.
fn pairs<'a>(asks: impl Iterator<Item = &'a Ask<'a>>) -> Vec<(DeviceNum, &'a Ask<'a>)> {
    let mut pairs: Vec<_> =
        asks.flat_map(|ask| ask.devices.iter().map(move |device| (*device, ask))).collect();
    pairs.sort_unstable_by_key(|(device, ask)| (*device, ask.num));
    pairs
}

fn columns(pairs: &[(DeviceNum, &Ask<'_>)]) -> (Vec<i64>, Vec<i64>) {
    pairs.iter().map(|(device, ask)| (device.0 as i64, ask.num)).unzip()
}

fn pair_of(row: &tokio_postgres::Row) -> (Num, DeviceNum) {
    (row.get(0), DeviceNum(row.get::<_, i64>(1) as u64))
}

/// Asks about each pair.
async fn found(tx: &Tx, sql: &str, pairs: &[(DeviceNum, &Ask<'_>)]) -> Result<Vec<(Num, DeviceNum)>, Failed> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let (devices, nums) = columns(pairs);
    Ok(tx.query(sql, &[&devices, &nums]).await?.iter().map(pair_of).collect())
}

async fn confirmed<'a>(
    tx: &Tx,
    asks: impl Iterator<Item = &'a Ask<'a>>,
    answers: &mut Answers,
) -> Result<(), Failed> {
    let pairs = pairs(asks);
    if !pairs.is_empty() {
        alone(tx, pairs.iter().map(|(_, ask)| ask.num)).await?;
    }
    // A device is in one batch, so nobody else asks.
    let sql = "DELETE FROM push_confirmed c USING unnest($1::bigint[], $2::bigint[]) AS ask (device, num)
               WHERE c.num = ask.num AND c.device = ask.device RETURNING c.num, c.device";
    answers.confirmed.extend(found(tx, sql, &pairs).await?);
    Ok(())
}

async fn in_inboxes<'a>(
    tx: &Tx,
    asks: impl Iterator<Item = &'a Ask<'a>>,
    answers: &mut Answers,
) -> Result<(), Failed> {
    let sql = "SELECT i.num, i.device FROM unnest($1::bigint[], $2::bigint[]) AS ask (device, num)
               JOIN inbox i ON i.device = ask.device AND i.num = ask.num
               ORDER BY i.device, i.num FOR KEY SHARE OF i";
    answers.needed.extend(found(tx, sql, &pairs(asks)).await?);
    Ok(())
}

async fn acked<'a>(
    tx: &Tx,
    asks: impl Iterator<Item = &'a Ask<'a>>,
    answers: &mut Answers,
) -> Result<(), Failed> {
    let nums: Vec<Num> = asks.map(|ask| ask.num).collect();
    if nums.is_empty() {
        return Ok(());
    }
    let sql = "SELECT num, devices FROM outcomes WHERE num = ANY($1) AND outcome = $2";
    for row in tx.query(sql, &[&nums, &(Outcome::Acked as i64)]).await? {
        let num: Num = row.get(0);
        answers.confirmed.extend(device_list::decode(row.get(1)).map(|device| (num, device)));
    }
    Ok(())
}

async fn before<'a>(
    tx: &Tx,
    asks: impl Iterator<Item = &'a Ask<'a>>,
    answers: &mut Answers,
) -> Result<(), Failed> {
    let pairs = pairs(asks.filter(|ask| ask.known.topic.is_some()));
    if pairs.is_empty() {
        return Ok(());
    }
    let (devices, nums) = columns(&pairs);
    let topics: Vec<_> = pairs.iter().map(|(_, ask)| ask.known.topic).collect();
    let offsets: Vec<_> = pairs.iter().map(|(_, ask)| ask.known.offset).collect();
    let rows = tx
        .query(
            "SELECT ask.num, s.device
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS ask (device, num, topic, message)
             JOIN subscriptions s ON s.device = ask.device AND s.topic = ask.topic
             WHERE s.position < ask.message ORDER BY s.device, s.topic FOR SHARE OF s",
            &[&devices, &nums, &topics, &offsets],
        )
        .await?;
    answers.needed.extend(rows.iter().map(pair_of));
    Ok(())
}
