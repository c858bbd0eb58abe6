//! Sessions whose connections broke and that may be resumed (XEP-0198 §5): one for each device at most, all
//! together bounded in number and bytes, each for as long as its client was told.
//!
//! It is memory of this node: what is lost with it (a restart, another node) is a session that the client
//! begins anew, and then its inbox brings what was not confirmed.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use noroshi_protocol::xmpp::Suspended;
use noroshi_types::{Timestamp, Topic};
use parking_lot::Mutex;

use super::config::{SUSPENDED_BYTES_MAX, SUSPENDED_MAX};
use crate::registry::Key;

/// Places in the order of sessions that are not there any more, besides as many as there are.
const STALE_MAX: usize = 1_024;

/// A session that waits for its client.
pub(crate) struct Parked {
    pub(crate) suspended: Box<Suspended>,
    /// Subscriptions of the connection that broke.
    pub(crate) topics: Vec<Topic>,
}

impl Parked {
    fn bytes(&self) -> usize {
        let topics = self.topics.iter().map(|topic| size_of::<Topic>() + topic.as_str().len());
        size_of::<Entry>() + self.suspended.held_bytes() + topics.sum::<usize>()
    }
}

struct Entry {
    parked: Parked,
    /// Tells it from a later one of the same device.
    number: u64,
    expires_at: Timestamp,
}

#[derive(Default)]
struct Lot {
    entries: HashMap<Key, Entry>,
    /// Oldest first; what was taken or replaced meanwhile is not there any more.
    order: VecDeque<(Key, u64)>,
    next: u64,
    bytes: usize,
}

/// Its lock guards the table only; nothing else is locked under it.
#[derive(Default)]
pub(crate) struct Parking(Mutex<Lot>);

impl Parking {
    /// Keeps a session for `time`. The oldest make room.
    pub(crate) fn park(&self, device: Key, parked: Parked, now: Timestamp, time: Duration) {
        let mut lot = self.0.lock();
        let number = lot.next;
        lot.next += 1;
        lot.bytes += parked.bytes();
        let expires_at = now.saturating_add(time);
        if let Some(before) = lot.entries.insert(device, Entry { parked, number, expires_at }) {
            lot.bytes -= before.parked.bytes();
        }
        lot.order.push_back((device, number));
        // One that comes and goes leaves a place behind each time, until its first one would be over.
        if lot.order.len() > 2 * lot.entries.len() + STALE_MAX {
            let Lot { entries, order, .. } = &mut *lot;
            order.retain(|(device, number)| entries.get(device).is_some_and(|entry| entry.number == *number));
        }
        lot.shed(now);
    }

    /// The session kept under this id, if it is this device's.
    pub(crate) fn take(&self, device: Key, id: &str, now: Timestamp) -> Option<Parked> {
        let mut lot = self.0.lock();
        lot.shed(now);
        let found = lot.entries.get(&device).is_some_and(|entry| entry.parked.suspended.id() == id);
        if found { lot.remove(device) } else { None }
    }

    /// The device began another session.
    pub(crate) fn forget(&self, device: Key) {
        self.0.lock().remove(device);
    }

    /// Drops what is over; how many are left.
    pub(crate) fn expire(&self, now: Timestamp) -> usize {
        let mut lot = self.0.lock();
        lot.shed(now);
        if lot.entries.is_empty() {
            *lot = Lot { next: lot.next, ..Lot::default() }; // after a storm it was large
        }
        lot.entries.len()
    }
}

impl Lot {
    fn remove(&mut self, device: Key) -> Option<Parked> {
        let entry = self.entries.remove(&device)?;
        self.bytes -= entry.parked.bytes();
        Some(entry.parked)
    }

    /// All are kept equally long, so the oldest are over first.
    fn shed(&mut self, now: Timestamp) {
        while let Some((device, number)) = self.order.front().copied() {
            let entry = self.entries.get(&device).filter(|entry| entry.number == number);
            let full = self.entries.len() > SUSPENDED_MAX || self.bytes > SUSPENDED_BYTES_MAX;
            if entry.is_some_and(|entry| entry.expires_at > now && !full) {
                return;
            }
            if entry.is_some() {
                self.remove(device);
            }
            self.order.pop_front();
        }
    }
}
