//! Outcomes of notifications: parts, sums, and which devices still have a notification in their inbox.

use std::collections::HashSet;

use noroshi_types::{DeviceNum, Outcome, Timestamp};

use super::device_list;
use crate::OutcomePart;
use crate::ids::{Ids, Num};

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
        let OutcomePart { id, outcome, at, mut devices, count, .. } = part;
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
