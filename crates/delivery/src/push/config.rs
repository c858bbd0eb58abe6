//! Bounds of push work in flight, with the arithmetic of their defaults.
//!
//! `node` builds a [`Config`] from the configuration file. Everything that push keeps in memory is bounded by it.

use std::time::Duration;

use super::record::Recording;
use super::retry::Backoff;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Recipients in flight. 32,768 at about 300 B each take 10 MB, and with answers after 300 ms allow 100,000 pushes
    /// a second.
    pub recipients_max: usize,
    /// Recipients in flight to one push service of one app: a service that does not answer leaves a quarter to the
    /// others.
    pub recipients_per_service_max: usize,
    /// The part of both that ordinary campaigns may not use, so that an urgent message starts at once.
    pub reserved_percent: usize,
    /// Unfinished batches, however few of their recipients are still in flight: a slow recipient keeps its batch of
    /// 500 × 64 B in memory.
    pub batches_max: usize,
    /// How long a taken batch belongs to this process. The start after a crash does not wait for it.
    pub lease: Duration,
    pub backoff: Backoff,
    /// How long batches in flight may take when the node stops. Unfinished ones are sent again after the next start.
    pub drain: Duration,
    /// Whether this node walks audiences and sends. It accepts push work in any case.
    pub sends: bool,
    /// Other nodes take batches from the same store: a batch is sent only during its lease, and the leader does what
    /// only one node may do.
    pub shared: bool,
    /// How long a batch may be on the queue between dispatcher and senders before the store hands it out again. Far
    /// above the time that `PARCELS_MAX` parcels take; otherwise batches would circulate without being sent.
    pub queue_lease: Duration,
    /// Whether pushes carry the trace context to push services.
    pub traceparent: bool,
    /// Which requests to push services are recorded, and for how long. A recipient in flight whose push is recorded takes about 1 KiB more.
    pub recording: Recording,
}

/// Waiting parcels of one lane on the queue between the dispatcher and the senders. 256 × 500 recipients keep a node
/// busy for more than a second. A campaign with variants retries smaller batches, one for each variant.
pub(crate) const PARCELS_MAX: u64 = 256;

/// Waiting batches of one walk or campaign. Batches that are due later do not count.
const AHEAD_MAX: usize = 64;

/// The same if several nodes take batches: they do not wake the collector, which polls.
const AHEAD_SHARED_MAX: usize = 512;

impl Default for Config {
    fn default() -> Self {
        Self {
            recipients_max: 32_768,
            recipients_per_service_max: 24_576,
            reserved_percent: 12,
            batches_max: 4_096,
            lease: Duration::from_secs(60),
            backoff: Backoff::default(),
            drain: Duration::from_secs(10),
            sends: true,
            shared: false,
            queue_lease: Duration::from_secs(300),
            traceparent: false,
            recording: Recording::default(),
        }
    }
}

impl Config {
    /// How far the collector stays ahead of the senders.
    pub(crate) fn ahead_max(&self) -> usize {
        if self.shared { AHEAD_SHARED_MAX } else { AHEAD_MAX }
    }

    /// The longest sleep, since the system clock may be set, and a wake-up of another node may be lost.
    pub(crate) fn sleep_max(&self) -> Duration {
        if self.shared { Duration::from_secs(1) } else { Duration::from_secs(10) }
    }

    /// The part of a bound that ordinary campaigns may use.
    pub(crate) fn without_reserve(&self, max: usize) -> usize {
        max - max / 100 * self.reserved_percent.min(90)
    }
}
