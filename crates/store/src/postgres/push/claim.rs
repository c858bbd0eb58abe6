//! Which devices of a `fallback` batch still need a push. Of an acknowledgement and a claim, on whichever nodes, the one
//! whose commit comes first takes effect. Their locks ensure that:
//!
//! 1. **Claim**: its queue rows `FOR UPDATE` (locked rows are skipped, so nothing waits here).
//! 2. Acknowledgements in `push_confirmed`: an advisory lock per bucket of notifications, in the order of buckets;
//!    exclusive for the claim ([`lock_alone`]), shared for acknowledgements ([`keep_out`]). The holder reads again.
//! 3. Inbox rows by (device, notification): the claim prevents their deletion (`FOR KEY SHARE`), an acknowledgement
//!    deletes them. The second call waits for the first, and then sees whether the row exists.
//! 4. Subscriptions by (device, topic): the claim prevents changes (`FOR SHARE`), an acknowledgement moves their
//!    position.
//!
//! Both lock in this order (an acknowledgement starts at 2), so they do not deadlock. The engine ends any other deadlock,
//! and the transaction is retried.

use std::collections::HashSet;

use noroshi_types::{DeviceNum, Outcome};

use crate::Fallback;
use crate::engine::device_list;
use crate::engine::push::Known;
use crate::ids::Num;
use crate::postgres::transaction::{Failed, Tx};

/// Names acknowledgements among the advisory locks ("push").
const LOCKS: i32 = 0x7075_7368;

/// Notifications are locked by buckets. Each is an entry in the server's lock table, which by default has about
/// 6,400; a take or an acknowledgement of many notifications must not fill it.
const BUCKETS_LOG2: u32 = 8;

/// A batch to decide.
pub(super) struct Ask<'a> {
    pub num: Num,
    pub known: Known,
    pub fallback: Fallback,
    pub expired: bool,
    pub devices: &'a [DeviceNum],
}

/// What was read about batches to decide.
pub(super) struct Answers {
    /// The inbox has it, or the position is before the message.
    needed: HashSet<(Num, DeviceNum)>,
    /// In `push_confirmed`, or acknowledged according to the trace.
    acknowledged: HashSet<(Num, DeviceNum)>,
}

impl Answers {
    /// The devices that need a push, and those that have acknowledged.
    pub(super) fn split(&self, ask: &Ask<'_>) -> (Vec<DeviceNum>, Vec<DeviceNum>) {
        ask.devices.iter().partition(|device| {
            let one = (ask.num, **device);
            match ask.fallback {
                Fallback::Settled => true,
                Fallback::Inbox if !ask.expired => self.needed.contains(&one),
                Fallback::Position => self.needed.contains(&one),
                // Pruning may have emptied the inboxes of expired notifications already; the trace has the
                // acknowledgements.
                Fallback::Inbox | Fallback::Acknowledged => !self.acknowledged.contains(&one),
            }
        })
    }
}

/// Reads for all batches at once, with one statement per kind.
pub(super) async fn ask(tx: &Tx, asks: &[Ask<'_>]) -> Result<Answers, Failed> {
    let of = |fallback| asks.iter().filter(move |ask| ask.fallback == fallback);
    let mut acknowledged = acknowledged(tx, &pairs(of(Fallback::Acknowledged))).await?;
    let mut needed = in_inboxes(tx, &pairs(of(Fallback::Inbox).filter(|ask| !ask.expired))).await?;
    let expired = of(Fallback::Inbox).filter(|ask| ask.expired);
    acknowledged.extend(acked(tx, expired.map(|ask| ask.num).collect()).await?);
    let positions = of(Fallback::Position).filter(|ask| ask.known.topic.is_some());
    needed.extend(before(tx, &pairs(positions)).await?);
    Ok(Answers { needed: needed.into_iter().collect(), acknowledged: acknowledged.into_iter().collect() })
}

fn bucket(num: Num) -> i32 {
    // Fibonacci hashing spreads notifications that are close in time.
    ((num as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS_LOG2)) as i32
}

fn buckets(nums: impl IntoIterator<Item = Num>) -> Vec<i32> {
    let mut buckets: Vec<_> = nums.into_iter().map(bucket).collect();
    buckets.sort_unstable();
    buckets.dedup();
    buckets
}

/// Acknowledgements of these have ended, or wait for the end of this transaction.
async fn lock_alone(tx: &Tx, nums: impl IntoIterator<Item = Num>) -> Result<(), Failed> {
    let sql = "SELECT pg_advisory_xact_lock($1, bucket) FROM unnest($2::int[]) AS bucket";
    tx.query(sql, &[&LOCKS, &buckets(nums)]).await?;
    Ok(())
}

/// Claims of these have ended, or wait for the end of this transaction.
pub(in crate::postgres) async fn keep_out(tx: &Tx, nums: &[Num]) -> Result<(), Failed> {
    let sql = "SELECT pg_advisory_xact_lock_shared($1, bucket) FROM unnest($2::int[]) AS bucket";
    tx.query(sql, &[&LOCKS, &buckets(nums.iter().copied())]).await?;
    Ok(())
}

/// Notifications, each on one device.
type Pairs = Vec<(Num, DeviceNum)>;

/// Devices with their question, sorted by device and notification.
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

/// Runs a statement about each pair.
async fn found(tx: &Tx, sql: &str, pairs: &[(DeviceNum, &Ask<'_>)]) -> Result<Pairs, Failed> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let (devices, nums) = columns(pairs);
    Ok(tx.query(sql, &[&devices, &nums]).await?.iter().map(pair_of).collect())
}

async fn acknowledged(tx: &Tx, pairs: &[(DeviceNum, &Ask<'_>)]) -> Result<Pairs, Failed> {
    if !pairs.is_empty() {
        lock_alone(tx, pairs.iter().map(|(_, ask)| ask.num)).await?;
    }
    // A device is in one batch, so no other batch needs the acknowledgement.
    let sql = "DELETE FROM push_confirmed c USING unnest($1::bigint[], $2::bigint[]) AS ask (device, num)
               WHERE c.num = ask.num AND c.device = ask.device RETURNING c.num, c.device";
    found(tx, sql, pairs).await
}

async fn in_inboxes(tx: &Tx, pairs: &[(DeviceNum, &Ask<'_>)]) -> Result<Pairs, Failed> {
    let sql = "SELECT i.num, i.device FROM unnest($1::bigint[], $2::bigint[]) AS ask (device, num)
               JOIN inbox i ON i.device = ask.device AND i.num = ask.num
               ORDER BY i.device, i.num FOR KEY SHARE OF i";
    found(tx, sql, pairs).await
}

async fn acked(tx: &Tx, nums: Vec<Num>) -> Result<Pairs, Failed> {
    let mut acked = Vec::new();
    if nums.is_empty() {
        return Ok(acked);
    }
    let sql = "SELECT num, devices FROM outcomes WHERE num = ANY($1) AND outcome = $2";
    for row in tx.query(sql, &[&nums, &(Outcome::Acked as i64)]).await? {
        let num: Num = row.get(0);
        acked.extend(device_list::decode(row.get(1)).map(|device| (num, device)));
    }
    Ok(acked)
}

async fn before(tx: &Tx, pairs: &[(DeviceNum, &Ask<'_>)]) -> Result<Pairs, Failed> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let (devices, nums) = columns(pairs);
    let topics: Vec<_> = pairs.iter().map(|(_, ask)| ask.known.topic).collect();
    let offsets: Vec<_> = pairs.iter().map(|(_, ask)| ask.known.offset).collect();
    let sql = "SELECT ask.num, s.device
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS ask (device, num, topic, message)
         JOIN subscriptions s ON s.device = ask.device AND s.topic = ask.topic
         WHERE s.position < ask.message ORDER BY s.device, s.topic FOR SHARE OF s";
    Ok(tx.query(sql, &[&devices, &nums, &topics, &offsets]).await?.iter().map(pair_of).collect())
}
