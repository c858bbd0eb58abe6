//! A cache of devices read for first calls, with their prepared responses, limited in bytes.
//!
//! Two generations: a used entry moves to the young generation; when that reaches half the limit, the old generation is
//! dropped. Used entries stay, without a recency list. The caller checks whether an entry is still valid.

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

/// Partitions with a lock each, so that requests of different devices rarely contend.
const PARTS: usize = 16;
/// A device, its map entries, counters and pointers.
const ENTRY_BYTES: usize = 1_024;

/// Cheap to clone; clones share the entries.
#[derive(Clone)]
pub struct FirstCalls(Arc<Cache>);

struct Cache {
    parts: Vec<Mutex<Part>>,
    part_bytes_max: usize,
}

#[derive(Default)]
struct Part {
    young: HashMap<(AppId, DeviceId), Kept>,
    old: HashMap<(AppId, DeviceId), Kept>,
    /// Bytes of the young generation.
    bytes: usize,
}

/// An entry, and its size when it was added.
struct Kept {
    entry: Arc<Entry>,
    bytes: usize,
}

/// A device as read from the store.
pub(super) struct Entry {
    pub(super) call: FirstCall,
    pub(super) tags: Tags,
    /// Taken before the read.
    pub(super) mark: Mark,
    /// On other nodes.
    pub(super) presence: Presence,
    valid: Range<Timestamp>,
    /// Guards the pointer only.
    prepared: Mutex<Option<Arc<Prepared>>>,
}

/// The inputs of a response, except the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inputs {
    /// Version of experiments and notices.
    pub(super) version: u64,
    pub(super) presence: Presence,
    pub(super) base: String,
}

/// An encoded response.
pub(super) struct Prepared {
    pub(super) inputs: Inputs,
    pub(super) bytes: Bytes,
    pub(super) tag: HeaderValue,
}

impl Default for FirstCalls {
    fn default() -> Self {
        Self::with_limit(limits::FIRST_CALL_BYTES)
    }
}

impl FirstCalls {
    fn with_limit(bytes_max: usize) -> Self {
        let parts = std::iter::repeat_with(Mutex::default).take(PARTS).collect();
        Self(Arc::new(Cache { parts, part_bytes_max: bytes_max / PARTS }))
    }

    pub(super) fn find(&self, app: AppId, device: &DeviceId) -> Option<Arc<Entry>> {
        let key = (app, device.clone());
        let mut part = self.0.part(&key).lock();
        if let Some(known) = part.young.get(&key) {
            return Some(known.entry.clone());
        }
        let known = part.old.remove(&key)?;
        let entry = known.entry.clone();
        part.add(key, known, self.0.part_bytes_max);
        Some(entry)
    }

    /// Adds an entry, or counts it again after its response changed.
    pub(super) fn put(&self, entry: Arc<Entry>) {
        let bytes = entry.bytes();
        let device = &entry.call.device;
        let key = (device.app, device.id.clone());
        let mut part = self.0.part(&key).lock();
        part.old.remove(&key);
        part.add(key, Kept { entry, bytes }, self.0.part_bytes_max);
    }
}

impl Cache {
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
        valid: Range<Timestamp>,
    ) -> Self {
        Self { call, tags, mark, presence, valid, prepared: Mutex::default() }
    }

    /// Whether the entry is recent enough and nothing in it has expired.
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        self.valid.contains(&now)
    }

    pub(super) fn prepared(&self) -> Option<Arc<Prepared>> {
        self.prepared.lock().clone()
    }

    pub(super) fn prepare(&self, prepared: Arc<Prepared>) {
        *self.prepared.lock() = Some(prepared);
    }

    /// The response, and its inputs: messages and names of about the same size.
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.prepared().map_or(0, |prepared| prepared.bytes.len() * 2)
    }
}

impl Prepared {
    pub(super) fn new(body: Vec<u8>, inputs: Inputs) -> Self {
        // 128 bits: two responses of a device practically never have the same tag.
        let hash = digest::digest(&digest::SHA256, &body);
        let hex: String = hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let tag = HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        Self { inputs, bytes: body.into(), tag }
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
            push_token_at: None,
            last_seen: None,
            push_tokens: Vec::new(),
            push_suspect: None,
            token_version: 1,
            revoked: noroshi_store::Revocation::default(),
            created_at: Timestamp(0),
        };
        let tags = noroshi_delivery::first_call::tags_of(&device);
        let call = FirstCall {
            device,
            unread: 0,
            newest: Vec::new(),
            unread_items: 0,
            preferences: Default::default(),
            expires_at: None,
        };
        let valid = Timestamp(5)..Timestamp(10);
        let entry = Entry::new(tags, call, Mark::default(), Presence::Offline, valid);
        let inputs = Inputs { version: 0, presence: Presence::Offline, base: String::new() };
        entry.prepare(Arc::new(Prepared::new(vec![b'x'; body_bytes], inputs)));
        Arc::new(entry)
    }

    fn device(number: usize) -> String {
        format!("device-{number}")
    }

    #[test]
    fn used_entries_stay_and_the_size_is_bounded() {
        let bytes_max = 1 << 20;
        let cache = FirstCalls::with_limit(bytes_max);
        let find = |id: &str| cache.find(AppId(1), &DeviceId::parse(id).expect(id)).is_some();
        cache.put(entry("used", 1_000));
        for number in 0..5_000 {
            cache.put(entry(&device(number), 1_000));
            assert!(find("used"), "after {number}");
        }
        assert!(find(&device(4_999)) && !find(&device(0)));
        let sum = |map: &HashMap<_, Kept>| map.values().map(|kept| kept.bytes).sum::<usize>();
        let part_bytes = |part: &Mutex<Part>| {
            let part = part.lock();
            sum(&part.young) + sum(&part.old)
        };
        let kept: usize = cache.0.parts.iter().map(part_bytes).sum();
        assert!((bytes_max / 4..=bytes_max + PARTS * 4_000).contains(&kept), "{kept}");
    }

    #[test]
    fn an_entry_that_grew_is_counted_with_its_new_size() {
        let cache = FirstCalls::with_limit(1 << 20);
        let one = entry("a", 10);
        cache.put(one.clone());
        let inputs = Inputs { version: 1, presence: Presence::Offline, base: String::new() };
        one.prepare(Arc::new(Prepared::new(vec![b'x'; 5_000], inputs)));
        cache.put(one.clone());
        let part = cache.0.part(&(AppId(1), DeviceId::parse("a").expect("a"))).lock();
        assert_eq!(part.bytes, ENTRY_BYTES + 10_000);
    }

    #[test]
    fn an_entry_is_valid_for_its_time() {
        let one = entry("a", 1);
        assert!(one.is_valid(Timestamp(5)) && one.is_valid(Timestamp(9)));
        // Nor before it was read, if the clock was set back.
        assert!(!one.is_valid(Timestamp(10)) && !one.is_valid(Timestamp(4)));
    }
}
