//! Which devices were changed since something was read of them, without a list of who read what.
//!
//! A fixed table of places; whoever changes a device stamps the places of its names with the next number, and what was
//! read before that number is not used any more. Two names that share a place cost the other one a read, nothing else.
//! Numbers are taken before the read and stamps set after the commit, so what a read may have missed is stamped later.

use std::sync::atomic::{AtomicU64, Ordering};

use noroshi_types::hash::{BEGIN, fnv, mix};
use noroshi_types::{AppId, DeviceId, DeviceNum, UserId};

/// 2 MiB. With 10,000 recipients a second, a place is stamped for somebody else's sake every 26 seconds.
const PLACES: usize = 1 << 18;

/// A moment in the order of changes at this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(u64);

/// The names by which a device's data may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags([u64; 4]);

impl Tags {
    pub fn new(app_id: AppId, device_id: &DeviceId, number: DeviceNum, of_user: Option<&str>) -> Self {
        let of_app = app(app_id);
        // A device of nobody has one name less.
        let of_user = of_user.map_or(of_app, |user| tag(b'u', app_id, user.as_bytes()));
        Self([of_app, device(app_id, device_id), num(number), of_user])
    }
}

pub(crate) struct Stamps {
    places: Box<[AtomicU64]>,
    last: AtomicU64,
    /// Of everything at once.
    all: AtomicU64,
}

impl Stamps {
    pub(crate) fn new() -> Self {
        let places = std::iter::repeat_with(AtomicU64::default).take(PLACES).collect();
        Self { places, last: AtomicU64::new(0), all: AtomicU64::new(0) }
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(self.last.load(Ordering::SeqCst))
    }

    pub(crate) fn stamp(&self, tag: u64) {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.place(tag).fetch_max(number, Ordering::SeqCst);
    }

    /// Changes may have been missed.
    pub(crate) fn stamp_all(&self) {
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.all.fetch_max(number, Ordering::SeqCst);
    }

    pub(crate) fn is_fresh(&self, tags: &Tags, mark: Mark) -> bool {
        let unchanged = |place: &AtomicU64| place.load(Ordering::SeqCst) <= mark.0;
        unchanged(&self.all) && tags.0.iter().all(|tag| unchanged(self.place(*tag)))
    }

    fn place(&self, tag: u64) -> &AtomicU64 {
        &self.places[tag as usize % PLACES]
    }
}

pub(crate) fn app(app: AppId) -> u64 {
    tag(b'a', app, b"")
}

pub(crate) fn device(app: AppId, device: &DeviceId) -> u64 {
    tag(b'd', app, device.as_str().as_bytes())
}

/// Unique over all apps.
pub(crate) fn num(num: DeviceNum) -> u64 {
    tag(b'n', AppId(0), &num.0.to_le_bytes())
}

pub(crate) fn user(app: AppId, user: &UserId) -> u64 {
    tag(b'u', app, user.as_str().as_bytes())
}

/// The same at every node: they tell each other.
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
    fn a_change_under_any_name_ends_what_was_read_before_it() {
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
            assert!(stamps.is_fresh(&tags, stamps.mark()), "what is read now has seen it");
        }
        let stamps = Stamps::new();
        let before = stamps.mark();
        stamps.stamp_all();
        assert!(!stamps.is_fresh(&tags, before) && stamps.is_fresh(&tags, stamps.mark()));
    }
}
