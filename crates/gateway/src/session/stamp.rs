//! When something was last sent to a user, device or topic. Stamps close the gap between the read of a log-in and its
//! attaching, at one load for each key.
//!
//! The sender of a kept message first stamps the keys it names, then looks for sessions. A log-in takes the current
//! number before its read is sent, attaches after the answer, and then looks at the stamps. A message whose sender
//! looked before the log-in attached has left a stamp that the log-in sees: if it is newer than the read, the backlog
//! is read once more; if it is older, the message was committed before the read, which contains it. A message whose
//! sender looked later finds the session.
//!
//! Stamps share 65,536 places: a collision costs a read that finds nothing. The memory does not grow.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::session::registry::Key;

/// 65,536 × 8 B = 512 KiB. At 20,000 kept messages a second and log-ins of 10 ms, one log-in in 300 reads once more
/// because of a collision.
const PLACES: usize = 1 << 16;

pub(crate) struct Stamps {
    present: AtomicU64,
    places: Box<[AtomicU64]>,
}

/// A moment in the order of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Stamps {
    pub(crate) fn new() -> Self {
        Self { present: AtomicU64::new(0), places: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn present(&self) -> Moment {
        Moment(self.present.load(Ordering::SeqCst))
    }

    /// A new moment, for the keys of one message.
    pub(crate) fn next(&self) -> Moment {
        Moment(self.present.fetch_add(1, Ordering::SeqCst) + 1)
    }

    pub(crate) fn stamp(&self, key: Key, moment: Moment) {
        self.place(key).fetch_max(moment.0, Ordering::SeqCst);
    }

    pub(crate) fn stamp_now(&self, key: Key) {
        self.stamp(key, self.next());
    }

    /// Whether the key may have been stamped after `moment`.
    pub(crate) fn is_newer(&self, key: Key, moment: Moment) -> bool {
        self.place(key).load(Ordering::SeqCst) > moment.0
    }

    fn place(&self, key: Key) -> &AtomicU64 {
        &self.places[(key >> 32) as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_newer_than_an_earlier_read() {
        let stamps = Stamps::new();
        let key: Key = 0xABCD << 32;
        stamps.stamp_now(key);
        let read = stamps.present();
        assert!(!stamps.is_newer(key, read));
        stamps.stamp_now(key);
        assert!(stamps.is_newer(key, read));
        assert!(!stamps.is_newer(0, read));
    }
}
