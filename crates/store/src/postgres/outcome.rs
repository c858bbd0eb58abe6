//! What became of notifications: parts of equal outcome and time, each with its devices.

use std::collections::{HashMap, HashSet};

use noroshi_types::{DeviceNum, Outcome, Timestamp};

use super::transaction::{Failed, Tx};
use crate::device_list;
use crate::ids::Num;
use crate::row::{Sums, WAYS_OUT};

/// A part to be added.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub num: Num,
    pub outcome: Outcome,
    pub reason: Option<&'static str>,
    pub at: Timestamp,
    /// Sorted.
    pub devices: Vec<DeviceNum>,
    pub count: u64,
}

impl Part {
    /// Of devices that are all known; they must be sorted.
    pub(super) fn of(num: Num, outcome: Outcome, at: Timestamp, devices: Vec<DeviceNum>) -> Self {
        let count = devices.len() as u64;
        Self { num, outcome, reason: None, at, devices, count }
    }
}

/// Parts as the columns of [`INSERT`].
#[derive(Default)]
pub(super) struct Columns {
    nums: Vec<i64>,
    outcomes: Vec<i64>,
    ats: Vec<i64>,
    counts: Vec<i64>,
    devices: Vec<Vec<u8>>,
    reasons: Vec<Option<&'static str>>,
}

impl Columns {
    /// Without those that are of nobody.
    pub(super) fn of(parts: &[Part]) -> Self {
        let mut columns = Self::default();
        for part in parts.iter().filter(|part| part.count > 0) {
            columns.nums.push(part.num);
            columns.outcomes.push(part.outcome as i64);
            columns.ats.push(part.at.0 as i64);
            columns.counts.push(part.count as i64);
            columns.devices.push(device_list::encode(&part.devices));
            columns.reasons.push(part.reason);
        }
        columns
    }

    pub(super) fn nums(&self) -> &[Num] {
        &self.nums
    }

    pub(super) fn values(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 6] {
        [&self.nums, &self.outcomes, &self.ats, &self.counts, &self.devices, &self.reasons]
    }
}

pub(super) const INSERT: &str = "INSERT INTO outcomes (num, outcome, at, count, devices, reason)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::text[])";

/// Adds parts, all with one statement. Nothing is written for nobody.
pub(super) async fn add(tx: &Tx, parts: &[Part]) -> Result<(), Failed> {
    let columns = Columns::of(parts);
    if !columns.nums.is_empty() {
        tx.execute(INSERT, &columns.values()).await?;
    }
    Ok(())
}

/// A part as it is stored.
pub(super) struct StoredPart {
    pub num: Num,
    pub outcome: Outcome,
    pub at: Timestamp,
    /// A device list.
    pub devices: Vec<u8>,
    pub reason: Option<String>,
}

/// Every part of these notifications, those of each oldest first.
pub(super) async fn parts(tx: &Tx, nums: &[Num]) -> Result<Vec<StoredPart>, Failed> {
    let sql = "SELECT num, outcome, at, devices, reason FROM outcomes WHERE num = ANY($1) ORDER BY num, seq";
    let rows = tx.query(sql, &[&nums]).await?;
    // A code this program does not know was written by a newer one: not ours to tell.
    let parts = rows.iter().filter_map(|row| {
        Some(StoredPart {
            num: row.get(0),
            outcome: Outcome::from_code(u8::try_from(row.get::<_, i64>(1)).ok()?)?,
            at: Timestamp(row.get::<_, i64>(2) as u64),
            devices: row.get(3),
            reason: row.get(4),
        })
    });
    Ok(parts.collect())
}

/// Counts by the outcome's code, of every notification that has any.
pub(super) async fn sums(tx: &Tx, nums: &[Num]) -> Result<HashMap<Num, Sums>, Failed> {
    let sql =
        "SELECT num, outcome, sum(count)::bigint FROM outcomes WHERE num = ANY($1) GROUP BY num, outcome";
    let mut sums: HashMap<Num, Sums> = HashMap::new();
    for row in tx.query(sql, &[&nums]).await? {
        let sums = sums.entry(row.get(0)).or_insert([0; Outcome::ALL.len() + 1]);
        if let Some(sum) = usize::try_from(row.get::<_, i64>(1)).ok().and_then(|code| sums.get_mut(code)) {
            *sum = row.get::<_, i64>(2) as u64;
        }
    }
    Ok(sums)
}

/// The devices whose inbox still has it, in order, from all parts of one notification.
pub(super) fn outstanding_devices<'p>(parts: impl Iterator<Item = &'p StoredPart>) -> Vec<DeviceNum> {
    let (mut kept, mut out) = (Vec::new(), HashSet::new());
    for part in parts {
        if part.outcome == Outcome::Kept {
            kept.extend(device_list::decode(&part.devices));
        } else if WAYS_OUT.contains(&part.outcome) {
            out.extend(device_list::decode(&part.devices));
        }
    }
    kept.retain(|device| !out.contains(device));
    kept
}
