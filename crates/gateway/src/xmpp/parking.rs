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

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use noroshi_protocol::xmpp::{Config, Context, Conversation, Framing, Input, Output, Security};
    use noroshi_types::DeviceId;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A session of a device, broken right after it began to count.
    fn parked(number: u8) -> Parked {
        let config = Config::new("localhost");
        let random = |bytes: &mut [u8]| bytes.fill(number);
        let cx = Context { config: &config, random: &random };
        let mut conversation = Conversation::new(Framing::Stream, Security::Encrypted);
        let mut out = Output::default();
        let header = "<stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
                      xmlns:stream='http://etherx.jabber.org/streams'>";
        conversation.receive(&cx, Input::Header(header), &mut out);
        let log_in = format!(
            "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'><initial-response>{}</initial-response>\
             <bind xmlns='urn:xmpp:bind:0'><enable xmlns='urn:xmpp:sm:3' resume='true'/></bind></authenticate>",
            STANDARD.encode("\0d\0t")
        );
        conversation.receive(&cx, Input::Element(&log_in), &mut out);
        conversation.authenticated(&cx, DeviceId::parse("d").expect("an id"), &mut out);
        conversation.logged_in(&cx, &mut out);
        let suspended = conversation.suspend().expect("it can be resumed");
        Parked { suspended, topics: Vec::new() }
    }

    #[test]
    fn a_session_is_kept_for_its_time_and_given_to_its_device_once() {
        let parking = Parking::default();
        let id = parked(1).suspended.id().to_owned();
        parking.park(7, parked(1), Timestamp(0), MINUTE);
        assert!(parking.take(8, &id, Timestamp(1)).is_none(), "another device's");
        assert!(parking.take(7, "another", Timestamp(1)).is_none());
        assert!(parking.take(7, &id, Timestamp(59_999)).is_some());
        assert!(parking.take(7, &id, Timestamp(59_999)).is_none(), "once");
        parking.park(7, parked(1), Timestamp(0), MINUTE);
        assert_eq!((parking.expire(Timestamp(59_999)), parking.expire(Timestamp(60_000))), (1, 0));
        assert_eq!(parking.0.lock().bytes, 0);
    }

    #[test]
    fn a_device_has_one_and_leaves_nothing_behind() {
        let parking = Parking::default();
        parking.park(1, parked(1), Timestamp(0), MINUTE);
        for _ in 0..3 * STALE_MAX {
            parking.park(7, parked(2), Timestamp(0), MINUTE);
        }
        assert_eq!(parking.expire(Timestamp(0)), 2);
        assert!(parking.0.lock().order.len() <= STALE_MAX + 5);
        parking.forget(7);
        parking.forget(1);
        let held = parked(1).bytes();
        parking.park(1, parked(1), Timestamp(0), MINUTE);
        assert_eq!((parking.expire(Timestamp(0)), parking.0.lock().bytes), (1, held));
    }

    #[test]
    fn the_oldest_make_room() {
        let parking = Parking::default();
        parking.park(1, parked(1), Timestamp(0), MINUTE);
        parking.park(2, parked(2), Timestamp(0), MINUTE);
        parking.0.lock().bytes += SUSPENDED_BYTES_MAX;
        parking.park(3, parked(3), Timestamp(0), MINUTE);
        assert_eq!(parking.expire(Timestamp(0)), 0, "as if each of them were too large");
    }
}
