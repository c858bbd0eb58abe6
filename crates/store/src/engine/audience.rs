//! Pages of audiences. A condition is evaluated in windows: the next devices of each of its topics, and of the whole app
//! where the condition holds without any subscription. Up to the smallest last device of the windows that are full,
//! every subscription is known, so that the condition can be decided.

use std::collections::BTreeMap;

use noroshi_types::Condition;

use super::accept::TruthTable;
use crate::{AudienceMember, AudiencePage};

/// A page that ends the audience unless it is full.
pub(crate) fn page_of(members: Vec<AudienceMember>, limit: usize) -> AudiencePage {
    let next = members.last().filter(|_| members.len() >= limit).map(|last| last.num.0);
    AudiencePage { members, unknown: 0, next }
}

pub(crate) struct Windows {
    limit: usize,
    /// The bits of each device.
    seen: BTreeMap<i64, u32>,
    horizon: i64,
}

impl Windows {
    /// Each window has at most `limit` devices.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, seen: BTreeMap::new(), horizon: i64::MAX }
    }

    /// Adds the window of a topic, sorted; `bits` has the topic's bit.
    pub(crate) fn add(&mut self, devices: &[i64], bits: u32) {
        if devices.len() >= self.limit {
            self.horizon = self.horizon.min(devices.last().copied().unwrap_or(i64::MAX));
        }
        for device in devices {
            *self.seen.entry(*device).or_default() |= bits;
        }
    }

    /// The devices that the condition selects, at most `limit`, and the cursor of the next page.
    pub(crate) fn select(self, condition: &Condition) -> (Vec<i64>, Option<u64>) {
        let table = TruthTable::of(condition);
        let selected = self.seen.range(..=self.horizon).filter(|(_, bits)| table.holds(**bits));
        let selected: Vec<i64> = selected.map(|(device, _)| *device).take(self.limit).collect();
        let full = selected.last().copied().filter(|_| selected.len() >= self.limit);
        let next = full.or((self.horizon < i64::MAX).then_some(self.horizon));
        (selected, next.map(|device| device as u64))
    }
}
