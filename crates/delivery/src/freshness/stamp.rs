//! Which devices changed since a moment, without a list of who read what.
//!
//! A fixed table of places. A writer stamps the places of the device's names with the next number; what was read before
//! that number is stale. Two names that share a place cost an unnecessary read, nothing else. Marks are taken before
//! the read and stamps are set after the commit, so a stamp follows every change that a read may have missed.

use std::sync::atomic::{AtomicU64, Ordering};

use noroshi_types::hash::{BEGIN, fnv, mix};
use noroshi_types::{AppId, DeviceId, DeviceNum, UserId};

/// 2 MiB. With 10,000 recipients a second, another device stamps a given place every 26 seconds.
const PLACES: usize = 1 << 18;

/// A moment in the order of changes at this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(u64);

/// The names under which a device's data may be changed: app, device id, device number, user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags([u64; 4]);

impl Tags {
    pub fn new(app_id: AppId, device_id: &DeviceId, number: DeviceNum, of_user: Option<&str>) -> Self {
        let of_app = app(app_id);
        // A device without a user repeats the app.
        let of_user = of_user.map_or(of_app, |user| tag(b'u', app_id, user.as_bytes()));
        Self([of_app, device(app_id, device_id), num(number), of_user])
    }
}

pub(super) struct Stamps {
    places: Box<[AtomicU64]>,
    last: AtomicU64,
    /// The number of the last stamp of everything.
    all: AtomicU64,
}

impl Stamps {
    pub(super) fn new() -> Self {
        let places = std::iter::repeat_with(AtomicU64::default).take(PLACES).collect();
        Self { places, last: AtomicU64::new(0), all: AtomicU64::new(0) }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.last.load(Ordering::SeqCst))
    }

    pub(super) fn stamp(&self, tag: u64) {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.place(tag).fetch_max(number, Ordering::SeqCst);
    }

    /// Changes may have been missed: everything read so far is stale.
    pub(super) fn stamp_all(&self) {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.all.fetch_max(number, Ordering::SeqCst);
    }

    pub(super) fn is_fresh(&self, tags: &Tags, mark: Mark) -> bool {
        let unchanged = |place: &AtomicU64| place.load(Ordering::SeqCst) <= mark.0;
        unchanged(&self.all) && tags.0.iter().all(|tag| unchanged(self.place(*tag)))
    }

    fn place(&self, tag: u64) -> &AtomicU64 {
        &self.places[tag as usize % PLACES]
    }
}

pub(super) fn app(app: AppId) -> u64 {
    tag(b'a', app, b"")
}

pub(super) fn device(app: AppId, device: &DeviceId) -> u64 {
    tag(b'd', app, device.as_str().as_bytes())
}

/// Unique over all apps.
pub(super) fn num(num: DeviceNum) -> u64 {
    tag(b'n', AppId(0), &num.0.to_le_bytes())
}

pub(super) fn user(app: AppId, user: &UserId) -> u64 {
    tag(b'u', app, user.as_str().as_bytes())
}

/// The same on every node, since nodes exchange tags.
fn tag(kind: u8, app: AppId, name: &[u8]) -> u64 {
    mix(fnv(fnv(fnv(BEGIN, &[kind]), &app.0.to_le_bytes()), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> DeviceId {
        DeviceId::parse(name).expect(name)
    }

    #[test]
    fn a_change_under_any_name_makes_earlier_reads_stale() {
        let (mine, user_1) = (AppId(1), UserId::parse("u1").expect("a user"));
        let tags = Tags::new(mine, &id("d1"), DeviceNum(7), Some("u1"));
        for name in [app(mine), device(mine, &id("d1")), num(DeviceNum(7)), user(mine, &user_1)] {
            let stamps = Stamps::new();
            let before = stamps.mark();
            stamps.stamp(device(mine, &id("another")));
            stamps.stamp(user(AppId(2), &user_1));
            assert!(stamps.is_fresh(&tags, before));
            stamps.stamp(name);
            assert!(!stamps.is_fresh(&tags, before));
            assert!(stamps.is_fresh(&tags, stamps.mark()), "a later read has seen the change");
        }
        let stamps = Stamps::new();
        let before = stamps.mark();
        stamps.stamp_all();
        assert!(!stamps.is_fresh(&tags, before) && stamps.is_fresh(&tags, stamps.mark()));
    }
}
