//! Limits and timeouts of the pools. They are the same for all services and not configurable by operators.

use std::time::Duration;

use crate::backoff::Backoff;

/// Bounds of the pools. All durations are positive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Connections per pool. A few suffice: one carries a thousand requests at a time, and push services reject clients
    /// that open many.
    pub connections_max: usize,
    /// Concurrent requests per connection, if the peer allows them.
    pub streams_max: usize,
    /// Pushes in one lane of a pool: what a fast pool sends in a fraction of a second.
    pub queue_max: usize,
    /// Pools per credential. Only Web Push, whose origins come from clients, needs more than one.
    pub pools_max: usize,
    /// From sending a push until its answer is given up. Push services sometimes answer after 10 s and more.
    pub request_timeout: Duration,
    /// From resolving the name to the peer's first bytes.
    pub connect_timeout: Duration,
    /// A peer that was silent for this long gets a ping.
    pub ping_after: Duration,
    /// The deadline of a ping. A peer that owes answers gets a ping after this much silence.
    pub ping_timeout: Duration,
    /// A connection to a Web Push origin closes when it was unused for this long; those to APNs and FCM stay open.
    pub idle_close: Duration,
    /// Pushes wait in the pool for a pause (`Retry-After`) of at most this length; before a longer one they are
    /// answered `Later`.
    pub hold_max: Duration,
    /// Between probes of a rejected credential: operators do not fix a key within seconds, and do not want
    /// to wait an hour after the fix.
    pub probes: Backoff,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_max: 4,
            streams_max: 1_500,
            queue_max: 8_192,
            pools_max: 64,
            request_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            ping_after: Duration::from_secs(60),
            ping_timeout: Duration::from_secs(15),
            idle_close: Duration::from_secs(5 * 60),
            hold_max: Duration::from_secs(30),
            probes: Backoff { first: Duration::from_secs(30), max: Duration::from_secs(15 * 60) },
        }
    }
}

impl Config {
    /// How often a connection checks its timeouts.
    pub(crate) fn tick(&self) -> Duration {
        let shortest = self.request_timeout.min(self.ping_after).min(self.ping_timeout).min(self.idle_close);
        (shortest / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    /// How long a push waits for a stream while connections exist: twice the timeout of the pushes before it. Waits for
    /// a quota or a pause may take longer.
    pub(crate) fn queue_wait_max(&self) -> Duration {
        self.request_timeout * 2
    }
}
