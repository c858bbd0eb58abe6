//! Limits on failed log-ins: for each account, and for each network. Over its limit, a log-in is refused before the password is
//! read, so that nobody guesses many and each guess costs little.
//!
//! An account is limited together with a network, so that a stranger cannot keep a person out from elsewhere; and, at a higher
//! limit, over all networks. Codes of an authenticator app have a million values: their limit counts per account only.
//!
//! Each node counts for itself. The tables are bounded; who is evicted starts again.

use std::hash::Hash;
use std::time::Duration;

use noroshi_types::{Recent, Timestamp};
use parking_lot::Mutex;

const ENTRIES_MAX: usize = 16_384;

/// Failures that are allowed in a period, all at once or spread.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    failures: u64,
    period: Duration,
}

const fn in_minutes(failures: u64, minutes: u64) -> Allowance {
    Allowance { failures, period: Duration::from_secs(60 * minutes) }
}

const ACCOUNT_FROM_NETWORK: Allowance = in_minutes(10, 15);
const ACCOUNT: Allowance = in_minutes(100, 60);
const NETWORK: Allowance = in_minutes(60, 15);
const CODES: Allowance = in_minutes(10, 15);
/// Starts and callbacks of log-ins with a provider, which cost requests to it. Many people may share an address.
const OPENID: Allowance = in_minutes(300, 15);

/// The time at which all failures would be forgotten: a leaky bucket.
struct Table<K>(Recent<K, Timestamp>, Allowance);

impl<K: Eq + Hash> Table<K> {
    fn new(allowance: Allowance) -> Self {
        Self(Recent::new(ENTRIES_MAX), allowance)
    }

    fn of_one(&self) -> u64 {
        self.1.period.as_millis() as u64 / self.1.failures
    }

    /// How long the next attempt has to wait.
    fn wait(&mut self, key: &K, now: Timestamp) -> Duration {
        let full_ms = self.1.period.as_millis() as u64 - self.of_one();
        let forgotten = self.0.get_mut(key).copied().unwrap_or(Timestamp(0));
        Duration::from_millis(forgotten.0.saturating_sub(now.0).saturating_sub(full_ms))
    }

    fn failed(&mut self, key: K, now: Timestamp) {
        let one = self.of_one();
        let before = self.0.get_mut(&key).copied().unwrap_or(Timestamp(0));
        self.0.insert(key, Timestamp(before.0.max(now.0) + one));
    }
}

/// What a log-in is counted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    /// Hash of the e-mail address.
    pub account: [u8; 32],
    pub network: String,
}

pub(crate) struct Attempts {
    of_network: Mutex<Table<String>>,
    of_account: Mutex<Table<[u8; 32]>>,
    of_both: Mutex<Table<Attempt>>,
    codes: Mutex<Table<u64>>,
    openid: Mutex<Table<String>>,
}

impl Attempts {
    pub(crate) fn new() -> Self {
        Self {
            of_network: Mutex::new(Table::new(NETWORK)),
            of_account: Mutex::new(Table::new(ACCOUNT)),
            of_both: Mutex::new(Table::new(ACCOUNT_FROM_NETWORK)),
            codes: Mutex::new(Table::new(CODES)),
            openid: Mutex::new(Table::new(OPENID)),
        }
    }

    /// Zero: the log-in may be tried.
    pub(crate) fn wait(&self, attempt: &Attempt, now: Timestamp) -> Duration {
        let of_network = self.of_network.lock().wait(&attempt.network, now);
        let of_account = self.of_account.lock().wait(&attempt.account, now);
        let of_both = self.of_both.lock().wait(attempt, now);
        of_network.max(of_account).max(of_both)
    }

    pub(crate) fn failed(&self, attempt: Attempt, now: Timestamp) {
        self.of_network.lock().failed(attempt.network.clone(), now);
        self.of_account.lock().failed(attempt.account, now);
        self.of_both.lock().failed(attempt, now);
    }

    /// As [`Self::wait`], for a code of the person of this number.
    pub(crate) fn wait_for_code(&self, person: u64, now: Timestamp) -> Duration {
        self.codes.lock().wait(&person, now)
    }

    /// Counts a step of a log-in with a provider. False: the network has used up its allowance.
    pub(crate) fn admit_openid(&self, network: &str, now: Timestamp) -> bool {
        let mut table = self.openid.lock();
        let network = network.to_owned();
        let is_admitted = table.wait(&network, now).is_zero();
        if is_admitted {
            table.failed(network, now);
        }
        is_admitted
    }

    pub(crate) fn code_failed(&self, person: u64, now: Timestamp) {
        self.codes.lock().failed(person, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(account: u8, network: &str) -> Attempt {
        Attempt { account: [account; 32], network: network.to_owned() }
    }

    #[test]
    fn ten_failures_from_one_network_lock_the_account_there() {
        let (attempts, now) = (Attempts::new(), Timestamp(1_000_000));
        for _ in 0..10 {
            assert_eq!(attempts.wait(&attempt(1, "a"), now), Duration::ZERO);
            attempts.failed(attempt(1, "a"), now);
        }
        let wait = attempts.wait(&attempt(1, "a"), now);
        assert_eq!(wait, Duration::from_secs(90), "a tenth of 15 minutes");
        assert_eq!(attempts.wait(&attempt(1, "b"), now), Duration::ZERO);
        assert_eq!(attempts.wait(&attempt(2, "a"), now), Duration::ZERO);
        let later = Timestamp(now.0 + 90_000);
        assert_eq!(attempts.wait(&attempt(1, "a"), later), Duration::ZERO);
        attempts.failed(attempt(1, "a"), later);
        assert!(attempts.wait(&attempt(1, "a"), later) > Duration::ZERO);
    }

    #[test]
    fn a_network_that_tries_many_accounts_is_limited() {
        let (attempts, now) = (Attempts::new(), Timestamp(1_000_000));
        (0..60).for_each(|account| attempts.failed(attempt(account, "a"), now));
        assert!(attempts.wait(&attempt(99, "a"), now) > Duration::ZERO);
        assert_eq!(attempts.wait(&attempt(99, "b"), now), Duration::ZERO);
    }

    #[test]
    fn guesses_from_many_networks_are_limited_together() {
        let (attempts, now) = (Attempts::new(), Timestamp(1_000_000));
        (0..100).for_each(|network| attempts.failed(attempt(1, &network.to_string()), now));
        assert!(attempts.wait(&attempt(1, "new"), now) > Duration::ZERO);
        for _ in 0..10 {
            assert_eq!(attempts.wait_for_code(1, now), Duration::ZERO);
            attempts.code_failed(1, now);
        }
        assert!(attempts.wait_for_code(1, now) > Duration::ZERO);
        assert_eq!(attempts.wait_for_code(2, now), Duration::ZERO);
    }
}
