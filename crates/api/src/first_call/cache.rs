//! What was read for first calls, and the answers made of it, within a number of bytes.
//!
//! Two generations: what is used goes into the younger one, and when that is half of what there may be, the older one is
//! dropped whole. What is used stays, and nothing has to be ordered. Whether an entry still holds is its user's to ask.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use noroshi_delivery::first_call::{Mark, Tags};
use noroshi_store::FirstCall;
use noroshi_types::{AppId, DeviceId, Presence, Timestamp, limits};
use parking_lot::Mutex;
use ring::digest;

/// Parts with a lock each: requests of different devices seldom meet.
const PARTS: usize = 16;
/// A device, its places in maps, counters and pointers.
const ENTRY_BYTES: usize = 1_024;

pub struct FirstCalls {
    parts: Vec<Mutex<Part>>,
    part_bytes_max: usize,
}

#[derive(Default)]
struct Part {
    young: HashMap<(AppId, DeviceId), Kept>,
    old: HashMap<(AppId, DeviceId), Kept>,
    /// Of the young ones.
    bytes: usize,
}

/// An entry, and its bytes when it was put.
struct Kept {
    entry: Arc<Entry>,
    bytes: usize,
}

/// What was read of a device.
pub(super) struct Entry {
    pub(super) call: FirstCall,
    pub(super) tags: Tags,
    /// From before it was read.
    pub(super) mark: Mark,
    /// At other nodes.
    pub(super) presence: Presence,
    holds: Range<Timestamp>,
    /// Guards the pointer only.
    prepared: Mutex<Option<Arc<Prepared>>>,
}

/// What an answer shows besides what was read of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    /// Of experiments and notices.
    pub(super) version: u64,
    pub(super) presence: Presence,
    pub(super) base: String,
}

/// An answer that is ready.
pub(super) struct Prepared {
    pub(super) shown: Shown,
    pub(super) bytes: Bytes,
    pub(super) tag: HeaderValue,
}

impl Default for FirstCalls {
    fn default() -> Self {
        Self::within(limits::FIRST_CALL_BYTES)
    }
}

impl FirstCalls {
    fn within(bytes_max: usize) -> Self {
        let parts = std::iter::repeat_with(Mutex::default).take(PARTS).collect();
        Self { parts, part_bytes_max: bytes_max / PARTS }
    }

    pub(super) fn find(&self, app: AppId, device: &DeviceId) -> Option<Arc<Entry>> {
        let key = (app, device.clone());
        let mut part = self.part(&key).lock();
        if let Some(known) = part.young.get(&key) {
            return Some(known.entry.clone());
        }
        let known = part.old.remove(&key)?;
        let entry = known.entry.clone();
        part.add(key, known, self.part_bytes_max);
        Some(entry)
    }

    /// Again where its answer became another.
    pub(super) fn put(&self, entry: Arc<Entry>) {
        let bytes = entry.bytes();
        let device = &entry.call.device;
        let key = (device.app, device.id.clone());
        let mut part = self.part(&key).lock();
        part.old.remove(&key);
        part.add(key, Kept { entry, bytes }, self.part_bytes_max);
    }

    fn part(&self, key: &(AppId, DeviceId)) -> &Mutex<Part> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.parts[hasher.finish() as usize % PARTS]
    }
}

impl Part {
    fn add(&mut self, key: (AppId, DeviceId), one: Kept, bytes_max: usize) {
        self.bytes += one.bytes;
        if let Some(before) = self.young.insert(key, one) {
            self.bytes -= before.bytes;
        }
        if self.bytes > bytes_max / 2 {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
    }
}

impl Entry {
    pub(super) fn new(
        tags: Tags,
        call: FirstCall,
        mark: Mark,
        presence: Presence,
        holds: Range<Timestamp>,
    ) -> Self {
        Self { call, tags, mark, presence, holds, prepared: Mutex::default() }
    }

    /// Whether it is not too old, and nothing of it expired.
    pub(super) fn holds(&self, now: Timestamp) -> bool {
        self.holds.contains(&now)
    }

    pub(super) fn prepared(&self) -> Option<Arc<Prepared>> {
        self.prepared.lock().clone()
    }

    pub(super) fn prepare(&self, prepared: Arc<Prepared>) {
        *self.prepared.lock() = Some(prepared);
    }

    /// The answer, and what it was made of: messages and names, about as much again.
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.prepared().map_or(0, |prepared| prepared.bytes.len() * 2)
    }
}

impl Prepared {
    pub(super) fn new(body: Vec<u8>, shown: Shown) -> Self {
        // 128 bits: two answers of a device have the same once in a lifetime of the universe.
        let hash = digest::digest(&digest::SHA256, &body);
        let hex: String = hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let tag = HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        Self { shown, bytes: body.into(), tag }
    }
}

#[cfg(test)]
mod tests {
    use noroshi_store::{Attributes, Device};
    use noroshi_types::DeviceNum;

    use super::*;

    fn entry(id: &str, body_bytes: usize) -> Arc<Entry> {
        let device = Device {
            num: DeviceNum(1),
            app: AppId(1),
            id: DeviceId::parse(id).expect(id),
            user: None,
            attributes: Attributes::default(),
            topics: Vec::new(),
            push_token: None,
            push_suspect: None,
            token_version: 1,
            revoked: noroshi_store::Revocation::default(),
            created_at: Timestamp(0),
        };
        let tags = noroshi_delivery::first_call::tags_of(&device);
        let call = FirstCall { device, unread: 0, newest: Vec::new(), expires_at: None };
        let holds = Timestamp(5)..Timestamp(10);
        let entry = Entry::new(tags, call, Mark::default(), Presence::Offline, holds);
        let shown = Shown { version: 0, presence: Presence::Offline, base: String::new() };
        entry.prepare(Arc::new(Prepared::new(vec![b'x'; body_bytes], shown)));
        Arc::new(entry)
    }

    fn device(number: usize) -> String {
        format!("device-{number}")
    }

    #[test]
    fn what_is_used_stays_and_the_whole_is_bounded() {
        let bytes_max = 1 << 20;
        let cache = FirstCalls::within(bytes_max);
        let find = |id: &str| cache.find(AppId(1), &DeviceId::parse(id).expect(id)).is_some();
        cache.put(entry("used", 1_000));
        for number in 0..5_000 {
            cache.put(entry(&device(number), 1_000));
            assert!(find("used"), "after {number}");
        }
        assert!(find(&device(4_999)) && !find(&device(0)));
        let sum = |map: &HashMap<_, Kept>| map.values().map(|kept| kept.bytes).sum::<usize>();
        let of_part = |part: &Mutex<Part>| {
            let part = part.lock();
            sum(&part.young) + sum(&part.old)
        };
        let kept: usize = cache.parts.iter().map(of_part).sum();
        assert!((bytes_max / 4..=bytes_max + PARTS * 4_000).contains(&kept), "{kept}");
    }

    #[test]
    fn an_entry_that_grew_is_counted_as_it_is() {
        let cache = FirstCalls::within(1 << 20);
        let one = entry("a", 10);
        cache.put(one.clone());
        let shown = Shown { version: 1, presence: Presence::Offline, base: String::new() };
        one.prepare(Arc::new(Prepared::new(vec![b'x'; 5_000], shown)));
        cache.put(one.clone());
        let part = cache.part(&(AppId(1), DeviceId::parse("a").expect("a"))).lock();
        assert_eq!(part.bytes, ENTRY_BYTES + 10_000);
    }

    #[test]
    fn it_holds_for_its_time() {
        let one = entry("a", 1);
        assert!(one.holds(Timestamp(5)) && one.holds(Timestamp(9)));
        // Also not before it was read: the clock was set back.
        assert!(!one.holds(Timestamp(10)) && !one.holds(Timestamp(4)));
    }
}
