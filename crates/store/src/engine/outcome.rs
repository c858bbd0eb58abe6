//! Outcomes of notifications: parts, sums, and which devices still have a notification in their inbox.

use std::collections::HashSet;

use noroshi_types::{AppId, DeviceId, DeviceNum, Outcome, Timestamp};

use super::record::{Record, trace_of};
use super::session::{self, Session, values};
use super::{device_list, opened};
use crate::ids::{Ids, Num};
use crate::{Error, OutcomePart, Trace, TraceStep};

/// A part to write: `count` devices with the same outcome at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub num: Num,
    pub outcome: Outcome,
    pub reason: Option<&'static str>,
    pub at: Timestamp,
    /// Sorted.
    pub devices: Vec<DeviceNum>,
    pub count: u64,
}

impl Part {
    /// All devices are known; they must be sorted.
    pub(crate) fn of(num: Num, outcome: Outcome, at: Timestamp, devices: Vec<DeviceNum>) -> Self {
        let count = devices.len() as u64;
        Self { num, outcome, reason: None, at, devices, count }
    }
}

/// Parts that callers record, without those whose id this store never gave out.
pub(crate) fn recorded(ids: &Ids, parts: Vec<OutcomePart>) -> Vec<Part> {
    let parts = parts.into_iter().filter_map(|part| {
        let OutcomePart { id, outcome, at, mut devices, count } = part;
        devices.sort_unstable();
        Some(Part { num: ids.num(id)?, outcome, reason: None, at, devices, count })
    });
    parts.collect()
}

/// Counts by the outcome's code.
pub(crate) type Sums = [u64; Outcome::ALL.len() + 1];

pub(crate) const NO_SUMS: Sums = [0; Outcome::ALL.len() + 1];

/// Outcomes with which a notification leaves an inbox; each is recorded with its devices.
const LEAVES_INBOX: [Outcome; 5] =
    [Outcome::Acked, Outcome::Expired, Outcome::Collapsed, Outcome::Cancelled, Outcome::Evicted];

/// Devices that a prune reads from lists for each row that it may remove: 10 ns each, a row 10 µs.
pub(crate) const LISTED_PER_ROW: u64 = 100;

/// How many inbox rows a notification still has.
pub(crate) fn outstanding(sums: &Sums) -> u64 {
    let left = LEAVES_INBOX.into_iter().map(|outcome| sums[outcome as usize]).sum();
    sums[Outcome::Kept as usize].saturating_sub(left)
}

/// Collects the devices whose inbox still has a notification from the lists of its parts. Looking into every inbox
/// that ever had it would repeat that work in each round of a long prune.
#[derive(Default)]
pub(crate) struct OutstandingDevices {
    kept: Vec<DeviceNum>,
    left: HashSet<DeviceNum>,
}

impl OutstandingDevices {
    /// `devices` is a device list.
    pub(crate) fn add(&mut self, outcome: Outcome, devices: &[u8]) {
        if outcome == Outcome::Kept {
            self.kept.extend(device_list::decode(devices));
        } else if LEAVES_INBOX.contains(&outcome) {
            self.left.extend(device_list::decode(devices));
        }
    }

    /// Sorted.
    pub(crate) fn finish(mut self) -> Vec<DeviceNum> {
        self.kept.retain(|device| !self.left.contains(device));
        self.kept
    }
}

/// The step of a device, if the part lists it. Outcomes that only a newer program knows are skipped.
fn step_of(row: &dyn Record, device: DeviceNum) -> Result<Option<TraceStep>, Error> {
    let Some(outcome) = Outcome::from_code(row.code(0)?) else { return Ok(None) };
    match device_list::decode(row.bytes(2)?).any(|listed| listed == device) {
        true => Ok(Some(TraceStep { at: row.time(1)?, outcome, reason: row.string_or_null(3)? })),
        false => Ok(None),
    }
}

/// What became of a notification on a device.
pub(crate) async fn trace<S: Session>(
    session: &S,
    num: Num,
    app: AppId,
    device: &DeviceId,
) -> Result<Option<Trace>, S::Error> {
    let sql = "SELECT d.num, EXISTS (SELECT 1 FROM inbox i WHERE i.device = d.num AND i.num = n.num),
                      EXISTS (SELECT 1 FROM subscriptions s WHERE s.device = d.num AND s.topic = n.topic),
                      n.trace
               FROM notifications n JOIN devices d ON d.app = n.app AND d.id = $3 WHERE n.num = $1 AND n.app = $2";
    let values = values![num, app, device.as_str()];
    let found = session::first(session, sql, &values, |row| {
        Ok((row.device(0)?, row.flag(1)?, row.flag(2)?, trace_of(row, 3)?))
    });
    let Some((device, in_inbox, subscribed, trace)) = found.await? else { return Ok(None) };
    let sql = "SELECT outcome, at, devices, reason FROM outcomes WHERE num = $1 ORDER BY seq";
    let steps = session.query(sql, &values![num], |row| step_of(row, device)).await?;
    let mut steps: Vec<TraceStep> = steps.into_iter().flatten().collect();
    steps.extend(opened::step(session, num, device).await?);
    steps.sort_by_key(|step| (step.at, step.outcome as u8));
    Ok(Some(Trace { steps, in_inbox, subscribed, trace }))
}
