//! The open tails, and the way of a record from the collector into their queues. Pure: no clock, no IO.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use noroshi_events::{Event, Kind, Record, Subject};
use noroshi_store::{Device, Found, LookupKeys};
use noroshi_types::{AppId, DeviceId, DeviceNum, NotificationId, Outcome, UserId};

use crate::entry::Entry;
use crate::filter::{DEVICES_MAX, LISTED_MAX, Selected, Selector, kinds_of};
use crate::kinds::Kinds;
use crate::known::{Known, Name};
use crate::queue::{Counts, EVENTS_MAX, Gaps, Queue};

/// Events that wait for a read of the store, and their bytes in lists of devices.
const PENDING_MAX: usize = 512;
const PENDING_BYTES_MAX: usize = 4 << 20;
/// A notification may be written in the background after its events: they are looked up at so many flushes.
const TRIES: u8 = 8;
/// Devices in one read of the store. It has at most [`PENDING_MAX`] notifications.
const DEVICES_ASKED_MAX: usize = 512;

/// An open tail and its events since the last flush.
pub(crate) struct Tail {
    pub(crate) selector: Selector,
    /// Devices that appeared since the selector's were read from the store: that read may be older.
    recent: HashSet<DeviceNum>,
    pub(crate) queue: Queue<Entry>,
}

impl Tail {
    fn new(selector: Selector) -> Self {
        Self { selector, recent: HashSet::new(), queue: Queue::default() }
    }

    fn learn(&mut self, device: DeviceNum, id: &DeviceId, user: Option<&UserId>) {
        match self.selector.wants(id, user) {
            Some(true) if self.selector.devices.len() < DEVICES_MAX => {
                self.selector.devices.insert(device);
                self.recent.insert(device);
            }
            Some(true) => self.queue.gaps.add(Gaps::DEVICES),
            Some(false) => {
                self.selector.devices.remove(&device);
                self.recent.remove(&device);
            }
            None => {}
        }
    }

    /// The devices that the store has for the filter.
    pub(crate) fn set_devices(&mut self, devices: HashSet<DeviceNum>) {
        let room = DEVICES_MAX.saturating_sub(devices.len());
        self.selector.devices = devices;
        self.selector.devices.extend(self.recent.drain().take(room));
    }
}

/// An event that some tails may show, once the topic or campaign of its notification is known.
struct Pending {
    app: AppId,
    id: NotificationId,
    record: Record,
    /// These tails, by number.
    tails: Vec<u64>,
    tries: u8,
    /// How many others wait for the same answer. They are only counted.
    more: u64,
}

/// Events that wait for the same answer, for the same tails.
#[derive(PartialEq, Eq, Hash)]
struct Awaited {
    id: NotificationId,
    kinds: Kinds,
    tails: Vec<u64>,
}

/// Events of a tail, and the names of their devices.
pub(crate) struct Batch {
    pub(crate) events: Vec<(Kind, Entry, Vec<Arc<Name>>)>,
    pub(crate) omitted: Counts,
    pub(crate) gaps: Gaps,
    pub(crate) shows_networks: bool,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) tails: HashMap<u64, Tail>,
    known: Known,
    pending: Vec<Pending>,
    pending_bytes: usize,
    /// How many events wait for an answer, and the place of the last one.
    awaited: HashMap<Awaited, (usize, usize)>,
}

impl State {
    pub(crate) fn open(&mut self, number: u64, selector: Selector) {
        self.tails.insert(number, Tail::new(selector));
    }

    /// Forgets everything when the last tail closes.
    pub(crate) fn close(&mut self, number: u64) {
        self.tails.remove(&number);
        if self.tails.is_empty() {
            *self = Self::default();
        }
    }

    /// Records of the collector, and how many it lost.
    pub(crate) fn read(&mut self, records: impl Iterator<Item = Record>, lost: u64) {
        // The collector may pass a last batch after the last tail has closed.
        if self.tails.is_empty() {
            return;
        }
        if lost > 0 {
            self.tails.values_mut().for_each(|tail| tail.queue.gaps.add(Gaps::LOST));
        }
        for record in records {
            let Some(app) = record.event.app().filter(|app| self.of_app(*app).next().is_some()) else {
                continue;
            };
            match record.event {
                // A batch of acknowledgements is of any number of notifications.
                Event::Acked { acked, .. } => {
                    for acked in acked.chunk_by(|a, b| a.0 == b.0) {
                        let event = acknowledged(app, acked);
                        self.show(app, Record { at: record.at, event }, None, (0, 0));
                    }
                }
                _ => {
                    self.learn(app, &record.event);
                    self.show(app, record, None, (0, 0));
                }
            }
        }
    }

    fn of_app(&self, app: AppId) -> impl Iterator<Item = &Tail> {
        self.tails.values().filter(move |tail| tail.selector.filter.app == app)
    }

    fn learn(&mut self, app: AppId, event: &Event) {
        let (device, id, user) = match event {
            Event::Accepted(it) => {
                if self.of_app(app).any(|tail| tail.selector.filter.needs_details()) {
                    self.known.accept(it);
                }
                return;
            }
            Event::Registered(it) => (it.device, &it.device_id, it.user.as_ref()),
            Event::Connected(it) => (it.device, &it.device_id, it.user.as_ref()),
            _ => return,
        };
        self.known.name(device, app, id, user);
        let of_app = self.tails.values_mut().filter(|tail| tail.selector.filter.app == app);
        of_app.for_each(|tail| tail.learn(device, id, user));
    }

    /// Puts the event of an app into the queues of the tails that show it. `only`: the tails that wait for it. `more`: how
    /// many others have the same answer.
    fn show(&mut self, app: AppId, record: Record, only: Option<Vec<u64>>, (tries, more): (u8, u64)) {
        let kinds: Kinds = kinds_of(&record).into_iter().flatten().collect();
        let is_wanted = |(number, tail): &(&u64, &mut Tail)| {
            let filter = &tail.selector.filter;
            filter.app == app
                && filter.kinds.intersects(kinds)
                && only.as_ref().is_none_or(|only| only.contains(number))
        };
        let detail = self.known.detail(app, &record.event);
        let mut waiting = Vec::new();
        for (number, tail) in self.tails.iter_mut().filter(is_wanted) {
            let Tail { selector, queue, .. } = tail;
            match selector.select(&record, detail) {
                Selected::No => {}
                Selected::Unknown(id) => waiting.push((*number, id)),
                Selected::Yes(devices, count) => {
                    let shown = selector.filter.kinds;
                    for kind in kinds.iter().filter(|kind| shown.contains(*kind)) {
                        queue.push(kind, || Entry::new(&record, devices.clone(), count));
                        queue.omit(kind, more);
                    }
                }
            }
        }
        if let Some((_, id)) = waiting.first().copied() {
            let mut tails: Vec<u64> = waiting.into_iter().map(|(number, _)| number).collect();
            tails.sort_unstable();
            self.wait(Pending { app, id, record, tails, tries, more }, kinds);
        }
    }

    fn wait(&mut self, event: Pending, kinds: Kinds) {
        let bytes = size_of_val(devices_of(&event.record));
        let awaited = Awaited { id: event.id, kinds, tails: event.tails.clone() };
        let waiting = self.awaited.get(&awaited).copied();
        if let Some((EVENTS_MAX.., last)) = waiting {
            // No flush shows more.
            self.pending[last].more += event.more + 1;
            return;
        }
        let has_room = self.pending.len() < PENDING_MAX && self.pending_bytes + bytes <= PENDING_BYTES_MAX;
        if has_room && event.tries < TRIES {
            let count = waiting.map_or(0, |(count, _)| count);
            self.awaited.insert(awaited, (count + 1, self.pending.len()));
            self.pending_bytes += bytes;
            self.pending.push(Pending { tries: event.tries + 1, ..event });
            return;
        }
        for number in event.tails {
            if let Some(tail) = self.tails.get_mut(&number) {
                tail.queue.gaps.add(Gaps::UNRESOLVED);
            }
        }
    }

    /// What the store must be asked before a flush: the notifications of events that wait, and names of devices.
    pub(crate) fn wanted(&self) -> LookupKeys {
        let mut notifications: Vec<NotificationId> = self.pending.iter().map(|pending| pending.id).collect();
        limit(&mut notifications, PENDING_MAX);
        let queued = self.tails.values().flat_map(|tail| tail.queue.events());
        let queued = queued.flat_map(|(_, entry)| entry.devices.as_slice());
        let waiting =
            self.pending.iter().flat_map(|pending| devices_of(&pending.record).iter().take(LISTED_MAX));
        let unnamed = queued.chain(waiting).filter(|device| !self.known.has_looked_for(**device));
        let mut devices: Vec<DeviceNum> = unnamed.copied().collect();
        limit(&mut devices, DEVICES_ASKED_MAX);
        LookupKeys { notifications, devices }
    }

    /// What a read of the store found.
    pub(crate) fn found(&mut self, asked: &LookupKeys, found: Found) {
        self.known.found(asked, found);
    }

    /// Whether a tail selects by the recipients of notifications.
    pub(crate) fn selects_by_recipients(&self) -> bool {
        self.tails.values().any(|tail| tail.selector.filter.is_of_devices())
    }

    /// The names of these devices, as the store has them.
    pub(crate) fn name(&mut self, app: AppId, devices: &[Device]) {
        for device in devices {
            self.known.name(device.num, app, &device.id, device.user.as_ref());
        }
    }

    pub(crate) fn age(&mut self) {
        self.known.age();
    }

    /// Shows the events that waited, as far as that is possible now.
    pub(crate) fn retry(&mut self) {
        self.pending_bytes = 0;
        self.awaited.clear();
        for Pending { app, record, tails, tries, more, .. } in std::mem::take(&mut self.pending) {
            self.show(app, record, Some(tails), (tries, more));
        }
    }

    /// The events of a tail since the last flush, with the names of their devices.
    pub(crate) fn take(&mut self, number: u64) -> Option<Batch> {
        let tail = self.tails.get_mut(&number)?;
        let (app, mut queue) = (tail.selector.filter.app, tail.queue.take());
        let (omitted, gaps) = (std::mem::take(&mut queue.omitted), queue.gaps);
        let names = |devices: &[DeviceNum]| {
            let known = devices.iter().filter_map(|device| self.known.device(*device));
            known.filter(|name| name.app == app).cloned().collect()
        };
        let named = |(kind, entry): (Kind, Entry)| {
            let names = names(&entry.devices);
            (kind, entry, names)
        };
        let events = queue.into_events().into_iter().map(named).collect();
        let shows_networks = tail.selector.filter.shows_networks;
        Some(Batch { events, omitted, gaps, shows_networks })
    }
}

fn limit<T: Ord>(keys: &mut Vec<T>, max: usize) {
    keys.sort_unstable();
    keys.dedup();
    keys.truncate(max);
}

/// The acknowledgements of one notification by devices of an app.
fn acknowledged(app: AppId, acked: &[(NotificationId, DeviceNum)]) -> Event {
    let devices: Box<[DeviceNum]> = acked.iter().map(|(_, device)| *device).collect();
    let (of, count) = (Subject::Notification(acked[0].0), devices.len() as u64);
    Event::Outcome { app, of, outcome: Outcome::Acked, devices, count }
}

fn devices_of(record: &Record) -> &[DeviceNum] {
    match &record.event {
        Event::Outcome { devices, .. }
        | Event::PushSent { devices, .. }
        | Event::PushAnswered { devices, .. } => devices,
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
