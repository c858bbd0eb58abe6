//! Counts HTTP/2 streams whose requests the gateway serves. The API passes each one to a shard as an HTTP/1.1
//! connection over a socket pair (`Gateway::bridge`). The shard serves it like any other connection, but keeps the
//! address of its peer separately ([`crate::io::Io::peers`]).
//!
//! A bridged stream counts as one of its client's connections and takes three descriptors of the devices' share: both
//! ends of the pair, and the HTTP/2 connection, which the API does not count meanwhile. It takes from the rate of
//! connects if it opens a session.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::rate::{Bucket, Rate};

/// Descriptors of an open stream in addition to the shard's own.
const DESCRIPTORS: usize = 2;

/// How many streams are open, and at which rate they open.
pub(crate) struct Bridges {
    pub(crate) open: AtomicUsize,
    openings: Mutex<Option<Bucket>>,
    started: Instant,
}

impl Bridges {
    pub(crate) fn new() -> Self {
        Self { open: AtomicUsize::new(0), openings: Mutex::default(), started: Instant::now() }
    }

    pub(crate) fn descriptors(&self) -> usize {
        self.open.load(Ordering::Relaxed) * DESCRIPTORS
    }

    pub(crate) fn is_within_rate(&self, per_second: u32) -> bool {
        let rate = Rate::of_connects(per_second);
        // Wrapped on purpose: only differences are used.
        let now_ms = (self.started.elapsed().as_millis() & u128::from(u32::MAX)) as u32;
        self.openings.lock().get_or_insert_with(|| Bucket::full(rate, now_ms)).take(rate, now_ms)
    }
}
