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
}

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
        }
    }
}

impl Config {
    /// What ordinary campaigns may have of a bound.
    pub(crate) fn without_reserve(&self, max: usize) -> usize {
        max - max / 100 * self.reserved_percent.min(90)
    }
}
