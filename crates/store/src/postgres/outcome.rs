//! Outcomes of notifications as rows: parts of equal outcome and time, each with its devices.

use std::collections::HashMap;

use noroshi_types::{DeviceNum, Outcome};

use super::columns::columns;
use super::transaction::{Failed, Tx};
use crate::engine::device_list;
use crate::engine::outcome::{NO_SUMS, OutstandingDevices, Part, Sums};
use crate::engine::record::Record;
use crate::ids::Num;

columns! {
    /// Columns of [`INSERT`].
    Columns {
        nums: Num, outcomes: i64, ats: i64, counts: i64, devices: Vec<u8>, reasons: Option<&'static str>,
    }
}

impl Columns {
    /// Parts without devices are left out.
    pub(super) fn of<'p>(parts: impl IntoIterator<Item = &'p Part>) -> Self {
        let mut columns = Self::default();
        for Part { num, outcome, reason, at, devices, count } in
            parts.into_iter().filter(|part| part.count > 0)
        {
            let devices = device_list::encode(devices);
            columns.push_row((*num, *outcome as i64, at.0 as i64, *count as i64, devices, *reason));
        }
        columns
    }
}

pub(super) const INSERT: &str = "INSERT INTO outcomes (num, outcome, at, count, devices, reason)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::text[])";

/// Adds parts with one statement. Parts without devices are not written.
pub(super) async fn add<'p>(tx: &Tx, parts: impl IntoIterator<Item = &'p Part>) -> Result<(), Failed> {
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
    /// A device list.
    pub devices: Vec<u8>,
}

/// Every part of these notifications, those of each oldest first. Outcomes that only a newer program knows are skipped.
pub(super) async fn parts(tx: &Tx, nums: &[Num]) -> Result<Vec<StoredPart>, Failed> {
    let sql = "SELECT num, outcome, devices FROM outcomes WHERE num = ANY($1) ORDER BY num, seq";
    let mut parts = Vec::new();
    for row in tx.query(sql, &[&nums]).await? {
        if let Some(outcome) = Outcome::from_code(row.code(1)?) {
            parts.push(StoredPart { num: row.int(0)?, outcome, devices: row.bytes(2)?.to_vec() });
        }
    }
    Ok(parts)
}

/// Sums of every notification that has outcomes.
pub(super) async fn sums(tx: &Tx, nums: &[Num]) -> Result<HashMap<Num, Sums>, Failed> {
    let sql =
        "SELECT num, outcome, sum(count)::bigint FROM outcomes WHERE num = ANY($1) GROUP BY num, outcome";
    let mut sums: HashMap<Num, Sums> = HashMap::new();
    for row in tx.query(sql, &[&nums]).await? {
        let sums = sums.entry(row.int(0)?).or_insert(NO_SUMS);
        if let Some(sum) = sums.get_mut(usize::from(row.code(1)?)) {
            *sum = row.count(2)?;
        }
    }
    Ok(sums)
}

/// The devices whose inbox still has a notification with these parts, sorted.
pub(super) fn outstanding_devices<'p>(parts: impl Iterator<Item = &'p StoredPart>) -> Vec<DeviceNum> {
    let mut outstanding = OutstandingDevices::default();
    parts.for_each(|part| outstanding.add(part.outcome, &part.devices));
    outstanding.finish()
}
