//! Limits and timeouts of the pools. They are the same for all services and not configurable by operators.

use std::time::Duration;

use crate::backoff::Backoff;

/// Bounds of the pools. All durations are positive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Connections of a pool. Few are enough: one carries a thousand requests at a time, and push services
    /// refuse those who open many.
    pub connections_max: usize,
    /// Requests open on a connection, as far as the peer allows.
    pub streams_max: usize,
    /// Pushes that wait in one lane of a pool: as much as a fast pool sends in a fraction of a second.
    pub queue_max: usize,
    /// Pools of one credential: more than one only for Web Push, whose origins come from clients.
    pub pools_max: usize,
    /// From sending a push to giving its answer up. Push services do answer after 10 s and more.
    pub request_timeout: Duration,
    /// From resolving the name to the peer's first word.
    pub connect_timeout: Duration,
    /// A peer that said nothing for so long is pinged.
    pub ping_after: Duration,
    /// A ping is answered within this; and a peer that owes answers is pinged after such a silence.
    pub ping_timeout: Duration,
    /// A connection to a Web Push origin closes when it was not used for so long; those to APNs and FCM stay.
    pub idle_close: Duration,
    /// Pushes wait here for a pause (`Retry-After`) of at most so long; before a longer one they are
    /// answered `Later`.
    pub hold_max: Duration,
    /// Between probes of a credential that is not taken: a bad key is not mended in seconds, and nobody wants
    /// to wait an hour after it was.
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
    /// How often a connection looks for what is late.
    pub(crate) fn tick(&self) -> Duration {
        let shortest = self.request_timeout.min(self.ping_after).min(self.ping_timeout).min(self.idle_close);
        (shortest / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    /// How long a push waits for a stream of connections that are there: as long as those before it may take
    /// twice. It has more time where it waits for a quota or a pause.
    pub(crate) fn queue_wait_max(&self) -> Duration {
        self.request_timeout * 2
    }
}
