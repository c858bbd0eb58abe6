//! Outcomes of messages on this shard, collected for a turn and reported in one call.

use std::collections::HashMap;

use noroshi_delivery::Delivery;
use noroshi_store::OutcomePart;
use noroshi_types::{AppId, DeviceNum, Message, NotificationId, Outcome, Timestamp};

#[derive(Default)]
pub(crate) struct Outcomes {
    parts: Vec<OutcomePart>,
    /// Outcomes of messages written one by one: pages and held messages.
    single: HashMap<(NotificationId, Outcome), (AppId, Vec<DeviceNum>)>,
    /// Messages written for each app, in runs.
    written: Vec<(AppId, u64)>,
}

impl Outcomes {
    pub(crate) fn one(&mut self, message: &Message, outcome: Outcome, device: DeviceNum) {
        let of_app = || (message.app, Vec::new());
        self.single.entry((message.id, outcome)).or_insert_with(of_app).1.push(device);
    }

    /// Messages of an app were written: they count for its quota of deliveries.
    pub(crate) fn wrote(&mut self, app: AppId, count: usize) {
        match self.written.last_mut() {
            _ if count == 0 => {}
            Some((last, sum)) if *last == app => *sum += count as u64,
            _ => self.written.push((app, count as u64)),
        }
    }

    /// All devices of one fan-out with the same outcome, and `unknown` more whose numbers are not known.
    pub(crate) fn many(
        &mut self,
        (app, id): (AppId, NotificationId),
        outcome: Outcome,
        mut devices: Vec<DeviceNum>,
        unknown: u64,
        at: Timestamp,
    ) {
        let count = devices.len() as u64 + unknown;
        if count > 0 {
            devices.sort_unstable();
            self.parts.push(OutcomePart { app, id, outcome, at, devices, count });
        }
    }

    /// Reports what was collected.
    pub(crate) fn report(&mut self, delivery: &Delivery, at: Timestamp) {
        for ((id, outcome), (app, devices)) in std::mem::take(&mut self.single) {
            self.many((app, id), outcome, devices, 0, at);
        }
        for (app, count) in self.written.drain(..) {
            delivery.quotas.delivered(app, count);
        }
        if !self.parts.is_empty() {
            delivery.context.outcomes.record(std::mem::take(&mut self.parts));
        }
    }
}
