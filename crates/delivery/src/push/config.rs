//! How much push work is under way at once. Defaults with their arithmetic.

use std::time::Duration;

use crate::push::retry::Backoff;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Recipients under way in all. 32,768 at about 300 B each are 10 MB; with answers after 300 ms they are
    /// 100,000 pushes a second.
    pub recipients_max: usize,
    /// Of these, under way to one push service of one app: a service that does not answer leaves a
    /// quarter to the others.
    pub recipients_per_service_max: usize,
    /// Of both, kept free of ordinary campaigns: a message that cannot wait starts at once.
    pub reserved_percent: usize,
    /// Batches that are not finished, however few of their recipients are still under way: a slow recipient
    /// keeps its batch, 500 × 64 B of it.
    pub batches_max: usize,
    /// A batch that this process forgot is taken again after so long. A crash does not wait for it.
    pub lease: Duration,
    pub backoff: Backoff,
    /// How long batches under way may take to end when the node stops; then they are sent again by the next.
    pub drain: Duration,
    /// Whether this node walks audiences and sends at all. Push work is accepted all the same.
    pub sends: bool,
    /// Other nodes take from the same store: a batch is sent only while its lease holds, and what only one may
    /// do is done by the leader.
    pub shared: bool,
    /// With a queue between the dispatcher and the senders: how long a batch may be on it before the store gives it
    /// out anew. Far above the time that `PARCELS_MAX` take, else batches go round without being sent.
    pub queue_lease: Duration,
    /// Whether push services are told of the trace of what they get.
    pub traceparent: bool,
}

/// Parcels of a lane that wait on the queue between the dispatcher and the senders. 256 × 500 recipients are more than
/// a second of what a node sends. What a campaign with variants tries again comes in smaller ones, a batch for each.
pub(crate) const PARCELS_MAX: u64 = 256;

/// Batches of one walk or campaign that wait at most; what is due later does not count.
const AHEAD_MAX: usize = 64;

/// The same where several nodes take: nobody tells the collector when they took one, so it looks.
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
        }
    }
}

impl Config {
    /// How far the collector stays ahead of the senders.
    pub(crate) fn ahead_max(&self) -> usize {
        if self.shared { AHEAD_SHARED_MAX } else { AHEAD_MAX }
    }

    /// However exact the due times are: the system's clock may be set, and another node's word be lost.
    pub(crate) fn sleep_max(&self) -> Duration {
        if self.shared { Duration::from_secs(1) } else { Duration::from_secs(10) }
    }

    /// What ordinary campaigns may have of a bound.
    pub(crate) fn without_reserve(&self, max: usize) -> usize {
        max - max / 100 * self.reserved_percent.min(90)
    }
}
