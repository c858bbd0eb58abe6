//! Limits on failed log-ins, per client and per app.
//!
//! A client is a network, as [`crate::client`] counts them. Each client and each app has an allowance of failures: a
//! token bucket. Over the allowance, only expensive work is limited. Device tokens, HS256 tokens and tokens that a key
//! set has verified before cost microseconds and are always checked, so a valid one is accepted regardless of other
//! clients behind the same NAT. A token that needs a public-key verification then takes from a second, slower bucket
//! ([`CLIENT_TRIES`], [`APP_TRIES`]); if that is empty, the token is rejected unverified with the time to wait. A new
//! valid token from an abused client thus succeeds after some retries, and one client costs at most 20 verifications
//! per second (2 ms of CPU with RSA-2048, 6 ms with RSA-4096).
//!
//! A failure counts for the app only while its client is within the client's own allowance. One client thus charges an
//! app with at most 60 failures per minute by default, of the app's 6,000, and cannot push the app over its limit.
//! Clients without a known address (behind a trusted proxy that names none) share one allowance per app, half of the
//! app's. A token that is rejected unverified counts for neither.
//!
//! The tables are bounded. An evicted client starts again with a full allowance; an attacker with tens of thousands of
//! addresses is limited by the app's bucket and the verification queue.

use noroshi_types::{AppId, Recent, Timestamp, limits};
use parking_lot::Mutex;

use crate::client::ClientNetwork;

/// Some 6 MiB when full.
const CLIENTS_MAX: usize = 65_536;
const APPS_MAX: usize = 16_384;

/// Verifications of unknown tokens from a client that is over its allowance.
const CLIENT_TRIES: Rate = Rate { per_minute: 20 * 60, burst: 20 };
/// The same for an app.
const APP_TRIES: Rate = Rate { per_minute: 100 * 60, burst: 100 };

const MICRO: u64 = 1_000_000;

/// How many log-ins may fail before a client or an app is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureLimits {
    /// Per IPv4 address or IPv6 /64.
    pub per_client_per_minute: u32,
    pub per_app_per_minute: u32,
}

impl Default for FailureLimits {
    fn default() -> Self {
        Self {
            per_client_per_minute: limits::FAILED_LOG_INS_PER_CLIENT,
            per_app_per_minute: limits::FAILED_LOG_INS_PER_APP,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    per_minute: u32,
    burst: u32,
}

impl Rate {
    /// The burst: one minute's worth.
    fn of_minute(per_minute: u32) -> Self {
        Self { per_minute, burst: per_minute }
    }

    fn full(self) -> u64 {
        u64::from(self.burst) * MICRO
    }

    /// Millionths of a token: `per_minute` tokens in 60,000 ms.
    fn refill(self, elapsed_ms: u64) -> u64 {
        elapsed_ms.saturating_mul(u64::from(self.per_minute)).saturating_mul(MICRO / 1_000) / 60
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    microtokens: u64,
    refilled_ms: u64,
}

impl Bucket {
    fn full(rate: Rate, now: Timestamp) -> Self {
        Self { microtokens: rate.full(), refilled_ms: now.0 }
    }

    fn refill(&mut self, rate: Rate, now: Timestamp) {
        // A clock that was set back refills nothing, and does not block later refills.
        let elapsed_ms = now.0.saturating_sub(self.refilled_ms);
        self.microtokens = self.microtokens.saturating_add(rate.refill(elapsed_ms)).min(rate.full());
        self.refilled_ms = now.0;
    }

    fn has_one(&mut self, rate: Rate, now: Timestamp) -> bool {
        self.refill(rate, now);
        self.microtokens >= MICRO
    }

    fn take(&mut self, rate: Rate, now: Timestamp) -> bool {
        let has_one = self.has_one(rate, now);
        if has_one {
            self.microtokens -= MICRO;
        }
        has_one
    }

    /// The time until a token is available, at least a second.
    fn wait_s(&self, rate: Rate) -> u32 {
        let missing = MICRO.saturating_sub(self.microtokens);
        let per_second = (u64::from(rate.per_minute) * MICRO / 60).max(1);
        u32::try_from(missing.div_ceil(per_second)).unwrap_or(u32::MAX).max(1)
    }
}

#[derive(Debug, Clone, Copy)]
struct Allowance {
    failures: Bucket,
    tries: Bucket,
}

/// Why a token is not verified now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limited {
    Client { retry_after_s: u32 },
    App { retry_after_s: u32 },
}

/// The priority of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Good,
    /// Over an allowance: verified only if there is room.
    Suspect,
}

/// Each lock guards its own table; no other lock is taken under it.
pub(crate) struct Failures {
    limits: FailureLimits,
    clients: Mutex<Recent<ClientNetwork, Allowance>>,
    /// By app: shared by its clients without a known address.
    unknown_clients: Mutex<Recent<AppId, Allowance>>,
    apps: Mutex<Recent<AppId, Allowance>>,
}

impl Failures {
    pub(crate) fn new(limits: FailureLimits) -> Self {
        Self {
            limits,
            clients: Mutex::new(Recent::new(CLIENTS_MAX)),
            unknown_clients: Mutex::new(Recent::new(APPS_MAX)),
            apps: Mutex::new(Recent::new(APPS_MAX)),
        }
    }

    fn client_rate(&self) -> Rate {
        Rate::of_minute(self.limits.per_client_per_minute)
    }

    fn unknown_clients_rate(&self) -> Rate {
        Rate::of_minute(self.limits.per_app_per_minute.div_ceil(2))
    }

    fn app_rate(&self) -> Rate {
        Rate::of_minute(self.limits.per_app_per_minute)
    }

    /// Counts a failure. If the client is over its allowance, returns how many seconds it has to wait.
    pub(crate) fn count(
        &self,
        client: Option<ClientNetwork>,
        app: Option<AppId>,
        now: Timestamp,
    ) -> Option<u32> {
        let wait_s = match (client, app) {
            (Some(client), _) => take(&self.clients, client, self.client_rate(), CLIENT_TRIES, now),
            (None, Some(app)) => {
                take(&self.unknown_clients, app, self.unknown_clients_rate(), APP_TRIES, now)
            }
            (None, None) => None,
        };
        if let (None, Some(app)) = (wait_s, app) {
            take(&self.apps, app, self.app_rate(), APP_TRIES, now);
        }
        // Unknown clients share an allowance: none has to wait for the failures of others.
        client.and(wait_s)
    }

    /// Whether an unknown token may be verified with a public key.
    pub(crate) fn admit(
        &self,
        client: Option<ClientNetwork>,
        app: AppId,
        now: Timestamp,
    ) -> Result<Standing, Limited> {
        let client = match client {
            Some(client) => admit(&self.clients, &client, self.client_rate(), CLIENT_TRIES, now),
            None => admit(&self.unknown_clients, &app, self.unknown_clients_rate(), APP_TRIES, now),
        };
        let client = client.map_err(|retry_after_s| Limited::Client { retry_after_s })?;
        let app = admit(&self.apps, &app, self.app_rate(), APP_TRIES, now)
            .map_err(|retry_after_s| Limited::App { retry_after_s })?;
        Ok(if (client, app) == (Standing::Good, Standing::Good) { Standing::Good } else { Standing::Suspect })
    }
}

fn take<K: Eq + std::hash::Hash>(
    table: &Mutex<Recent<K, Allowance>>,
    key: K,
    rate: Rate,
    tries: Rate,
    now: Timestamp,
) -> Option<u32> {
    let mut table = table.lock();
    if let Some(allowance) = table.get_mut(&key) {
        return (!allowance.failures.take(rate, now)).then(|| allowance.failures.wait_s(rate));
    }
    let mut failures = Bucket::full(rate, now);
    failures.take(rate, now);
    table.insert(key, Allowance { failures, tries: Bucket::full(tries, now) });
    None
}

fn admit<K: Eq + std::hash::Hash>(
    table: &Mutex<Recent<K, Allowance>>,
    key: &K,
    rate: Rate,
    tries: Rate,
    now: Timestamp,
) -> Result<Standing, u32> {
    let mut table = table.lock();
    let Some(allowance) = table.get_mut(key) else { return Ok(Standing::Good) };
    if allowance.failures.has_one(rate, now) {
        Ok(Standing::Good)
    } else if allowance.tries.take(tries, now) {
        Ok(Standing::Suspect)
    } else {
        Err(allowance.tries.wait_s(tries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: AppId = AppId(1);
    const NOW: Timestamp = Timestamp(1_000_000);

    fn client(address: &str) -> Option<ClientNetwork> {
        Some(ClientNetwork::of(address.parse().expect("an address")))
    }

    fn failures(per_client_per_minute: u32, per_app_per_minute: u32) -> Failures {
        Failures::new(FailureLimits { per_client_per_minute, per_app_per_minute })
    }

    #[test]
    fn a_client_over_its_allowance_gets_few_verifications() {
        let failures = failures(3, 1_000);
        let (bad, other) = (client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!([(); 3].map(|()| failures.count(bad, Some(APP), NOW)), [None; 3]);
        assert_eq!(failures.count(bad, Some(APP), NOW), Some(20), "three a minute is one in twenty seconds");
        for _ in 0..CLIENT_TRIES.burst {
            assert_eq!(failures.admit(bad, APP, NOW), Ok(Standing::Suspect));
        }
        assert_eq!(failures.admit(bad, APP, NOW), Err(Limited::Client { retry_after_s: 1 }));
        assert_eq!(failures.admit(other, APP, NOW), Ok(Standing::Good), "a neighbour is not limited");
        assert_eq!(failures.admit(bad, APP, Timestamp(NOW.0 + 50)), Ok(Standing::Suspect), "20 a second");
        assert_eq!(failures.admit(bad, APP, Timestamp(NOW.0 + 20_000)), Ok(Standing::Good));
        assert_eq!(failures.admit(None, APP, NOW), Ok(Standing::Good));
    }

    #[test]
    fn an_app_under_attack_by_many_clients_is_limited_alone() {
        let failures = failures(10, 20);
        for number in 0..20 {
            failures.count(client(&format!("192.0.2.{number}")), Some(APP), NOW);
        }
        for _ in 0..APP_TRIES.burst {
            assert_eq!(failures.admit(client("198.51.100.1"), APP, NOW), Ok(Standing::Suspect));
        }
        let limited = failures.admit(client("198.51.100.1"), APP, NOW);
        assert_eq!(limited, Err(Limited::App { retry_after_s: 1 }));
        assert_eq!(failures.admit(client("198.51.100.1"), AppId(2), NOW), Ok(Standing::Good));
    }

    #[test]
    fn one_client_cannot_use_up_an_apps_allowance() {
        let failures = failures(10, 20);
        for _ in 0..1_000 {
            failures.count(client("192.0.2.1"), Some(APP), NOW);
        }
        assert_eq!(failures.admit(client("198.51.100.1"), APP, NOW), Ok(Standing::Good));
    }

    #[test]
    fn unknown_clients_use_at_most_half_of_an_apps_allowance() {
        let failures = failures(10, 20);
        for _ in 0..1_000 {
            assert_eq!(failures.count(None, Some(APP), NOW), None);
        }
        for _ in 0..9 {
            assert_eq!(failures.count(client("192.0.2.1"), Some(APP), NOW), None);
        }
        assert_eq!(failures.admit(client("198.51.100.1"), APP, NOW), Ok(Standing::Good));
        assert_eq!(failures.admit(None, AppId(2), NOW), Ok(Standing::Good), "another app's are not limited");
        for _ in 0..APP_TRIES.burst {
            assert_eq!(failures.admit(None, APP, NOW), Ok(Standing::Suspect));
        }
        assert_eq!(failures.admit(None, APP, NOW), Err(Limited::Client { retry_after_s: 1 }));
    }

    #[test]
    fn the_table_of_clients_is_bounded() {
        let failures = failures(1, 1);
        for number in 0..(2 * CLIENTS_MAX) as u32 {
            failures.count(Some(ClientNetwork::of(std::net::IpAddr::V4(number.into()))), None, NOW);
        }
        assert!(failures.clients.lock().len() <= CLIENTS_MAX);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_block_refills() {
        let failures = failures(60, 60);
        let bad = client("192.0.2.1");
        for _ in 0..61 {
            failures.count(bad, None, NOW);
        }
        let earlier = Timestamp(NOW.0 - 500_000);
        assert!(failures.count(bad, None, earlier).is_some());
        assert_eq!(failures.count(bad, None, Timestamp(earlier.0 + 1_000)), None);
    }
}
