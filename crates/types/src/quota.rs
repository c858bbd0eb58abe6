//! Quotas of an app: names, limits, and token-bucket arithmetic.
//!
//! A limit is a number or "unlimited". An app may override the node's default of each quota and inherits the
//! others. [`Quotas`] contains overrides, [`Limits`] the effective limits.
//!
//! [`Bucket`] is a generic cell rate algorithm (GCRA, ATM Forum TM 4.1 §4.4.4.2): a single number, the time
//! at which the bucket is full. Time is an argument. `delivery` owns counters and enforcement.

use std::time::Duration;

use crate::Invalid;

crate::names! {
    /// A resource that an app consumes. The order is that of the documentation and of every list. The
    /// names are those in JSON, metrics, the configuration (`quotas.<name>`) and on the command line.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Quota {
        /// Open device connections.
        Connections => "connections",
        ConnectsPerSecond => "connects_per_second",
        Devices => "devices",
        /// Topics that one device subscribes to, durably and per connection together.
        SubscriptionsPerDevice => "subscriptions_per_device",
        /// Topics in the store.
        Topics => "topics",
        PublishesPerSecond => "publishes_per_second",
        /// Messages written to connections.
        DeliveriesPerSecond => "deliveries_per_second",
        /// Messages in inboxes, counted per device.
        InboxRows => "inbox_rows",
        /// Content of these messages, counted per device.
        InboxBytes => "inbox_bytes",
        RetainedBytes => "retained_bytes",
        /// Scheduled, running or paused campaigns.
        Campaigns => "campaigns",
        /// Messages passed to push services.
        PushesPerSecond => "pushes_per_second",
        /// Web Push endpoints of devices.
        Endpoints => "endpoints",
        /// Experiments that are not archived.
        Experiments => "experiments",
        /// API keys.
        Keys => "keys",
    }
}

/// The largest limit that JSON numbers represent exactly (RFC 8259 §6).
pub const LIMIT_MAX: u64 = (1 << 53) - 1;
/// The largest rate: one token per nanosecond.
pub const RATE_MAX: u64 = 1_000_000_000;

impl Quota {
    pub const COUNT: usize = Self::ALL.len();

    /// The quotas whose usage the store counts.
    pub const STORED: [Quota; 8] = [
        Quota::Devices,
        Quota::Topics,
        Quota::InboxRows,
        Quota::InboxBytes,
        Quota::RetainedBytes,
        Quota::Campaigns,
        Quota::Endpoints,
        Quota::Experiments,
    ];

    /// Whether it is a token bucket instead of a count.
    pub fn is_rate(self) -> bool {
        matches!(
            self,
            Quota::ConnectsPerSecond
                | Quota::PublishesPerSecond
                | Quota::DeliveriesPerSecond
                | Quota::PushesPerSecond
        )
    }

    /// Whether each node enforces it separately; the others are counted across all nodes that share a store.
    pub fn is_per_node(self) -> bool {
        self.is_rate() || self == Quota::Connections
    }

    pub fn limit_max(self) -> u64 {
        if self.is_rate() { RATE_MAX } else { LIMIT_MAX }
    }

    /// Validates a limit set by an operator.
    pub fn check(self, limit: u64) -> Result<u64, Invalid> {
        match limit <= self.limit_max() {
            true => Ok(limit),
            false => Err(Invalid::new(format!(
                "the limit of {} must be at most {}",
                self.as_str(),
                self.limit_max()
            ))),
        }
    }
}

/// A limit of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Unlimited,
    /// At most this much; 0 rejects everything.
    Most(u64),
}

/// The overrides of an app; `None` where it inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quotas([Option<Limit>; Quota::COUNT]);

impl Quotas {
    pub fn get(&self, quota: Quota) -> Option<Limit> {
        self.0[quota as usize]
    }

    pub fn set(&mut self, quota: Quota, limit: Option<Limit>) {
        self.0[quota as usize] = limit;
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The overridden quotas.
    pub fn iter(&self) -> impl Iterator<Item = (Quota, Limit)> {
        Quota::ALL.into_iter().filter_map(|quota| Some((quota, self.get(quota)?)))
    }
}

/// The effective limits of an app; `None`: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits([Option<u64>; Quota::COUNT]);

impl Limits {
    pub fn get(&self, quota: Quota) -> Option<u64> {
        self.0[quota as usize]
    }

    pub fn set(&mut self, quota: Quota, limit: Option<u64>) {
        self.0[quota as usize] = limit;
    }

    /// Applies an app's overrides on top of these defaults.
    #[must_use]
    pub fn below(mut self, overrides: &Quotas) -> Self {
        for (quota, limit) in overrides.iter() {
            self.set(
                quota,
                match limit {
                    Limit::Unlimited => None,
                    Limit::Most(most) => Some(most),
                },
            );
        }
        self
    }

    pub fn is_unlimited(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// A bucket of one second's tokens that refills at `per_second`. `0` rejects everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bucket {
    /// When the bucket is full, in nanoseconds of the caller's monotonic clock.
    full_at_ns: u64,
}

const SECOND_NS: u64 = 1_000_000_000;
/// A debt is repaid within this time, whatever its size: one message to very many devices must not block an
/// app for hours.
const DEBT_MAX_NS: u64 = 900 * SECOND_NS;
/// The retry delay for an app with a limit of 0.
const NEVER: Duration = Duration::from_secs(60);

impl Bucket {
    pub fn from_bits(bits: u64) -> Self {
        Self { full_at_ns: bits }
    }

    pub fn to_bits(self) -> u64 {
        self.full_at_ns
    }

    /// Takes `count` tokens and returns the new bucket, or the time until they are available, taking nothing.
    pub fn take(self, per_second: u64, count: u64, now: Duration) -> Result<Self, Duration> {
        if per_second == 0 {
            return Err(NEVER);
        }
        let taken = self.charge(per_second, count, now);
        // Up to a full bucket at once; a request that is larger than the bucket needs a full one and leaves a
        // debt.
        let span_ns = cost_ns(per_second, per_second.max(count)).max(SECOND_NS);
        match taken.missing_ns(now).saturating_sub(span_ns) {
            0 => Ok(taken),
            early_ns => Err(Duration::from_nanos(early_ns)),
        }
    }

    /// Takes `count` tokens even if that leaves a debt.
    #[must_use]
    pub fn charge(self, per_second: u64, count: u64, now: Duration) -> Self {
        let missing_ns = self.missing_ns(now).saturating_add(cost_ns(per_second, count)).min(DEBT_MAX_NS);
        Self { full_at_ns: ns(now).saturating_add(missing_ns) }
    }

    /// Returns `count` unused tokens, up to a full bucket.
    #[must_use]
    pub fn give_back(self, per_second: u64, count: u64) -> Self {
        Self { full_at_ns: self.full_at_ns.saturating_sub(cost_ns(per_second, count)) }
    }

    /// How long until the debt is repaid; zero without debt.
    pub fn debt(self, per_second: u64, now: Duration) -> Duration {
        if per_second == 0 {
            return NEVER;
        }
        Duration::from_nanos(self.missing_ns(now).saturating_sub(SECOND_NS))
    }

    /// Tokens that were taken and have not been refilled.
    pub fn used(self, per_second: u64, now: Duration) -> u64 {
        let used = u128::from(self.missing_ns(now)) * u128::from(per_second) / u128::from(SECOND_NS);
        u64::try_from(used).unwrap_or(u64::MAX)
    }

    /// How long until the bucket is full.
    fn missing_ns(self, now: Duration) -> u64 {
        self.full_at_ns.saturating_sub(ns(now))
    }
}

fn ns(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

fn cost_ns(per_second: u64, count: u64) -> u64 {
    let cost = u128::from(count) * u128::from(SECOND_NS) / u128::from(per_second.max(1));
    u64::try_from(cost).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn later(ms: u64) -> Duration {
        NOW + Duration::from_millis(ms)
    }

    #[test]
    fn names_are_unique_and_in_order() {
        for (place, quota) in Quota::ALL.into_iter().enumerate() {
            assert_eq!(quota as usize, place);
            assert_eq!(Quota::named(quota.as_str()), Some(quota));
        }
        assert_eq!(Quota::named("unknown"), None);
    }

    #[test]
    fn override_takes_precedence_over_the_default() {
        let mut defaults = Limits::default();
        defaults.set(Quota::Devices, Some(10));
        defaults.set(Quota::Topics, Some(10));
        let mut overrides = Quotas::default();
        assert!(overrides.is_empty());
        overrides.set(Quota::Devices, Some(Limit::Unlimited));
        overrides.set(Quota::Keys, Some(Limit::Most(0)));
        let limits = defaults.below(&overrides);
        let of = |quota| limits.get(quota);
        assert_eq!((of(Quota::Devices), of(Quota::Topics), of(Quota::Keys)), (None, Some(10), Some(0)));
        assert!(!limits.is_unlimited() && Limits::default().is_unlimited());
    }

    #[test]
    fn burst_of_one_second_is_allowed_and_refills_evenly() {
        let mut bucket = Bucket::default();
        for _ in 0..10 {
            bucket = bucket.take(10, 1, NOW).expect("a full bucket");
        }
        assert_eq!(bucket.used(10, NOW), 10);
        assert_eq!(bucket.take(10, 1, NOW), Err(Duration::from_millis(100)));
        bucket = bucket.take(10, 1, later(100)).expect("one is back");
        assert_eq!(bucket.take(10, 1, later(199)), Err(Duration::from_millis(1)));
        assert_eq!(bucket.used(10, later(60_000)), 0, "nothing is saved up beyond the bucket");
    }

    #[test]
    fn request_larger_than_the_bucket_passes_a_full_bucket() {
        let bucket = Bucket::default().take(10, 50, NOW).expect("a full bucket");
        assert_eq!(bucket.take(10, 1, NOW), Err(Duration::from_millis(4_100)));
        let small = Bucket::default().take(10, 1, NOW).expect("one");
        assert!(small.take(10, 50, NOW).is_err(), "it is not full");
    }

    #[test]
    fn returned_tokens_may_be_taken_again() {
        let empty = Bucket::default().take(10, 10, NOW).expect("a full bucket");
        let one = empty.give_back(10, 1);
        assert_eq!(one.used(10, NOW), 9);
        assert_eq!(one.take(10, 1, NOW), Ok(empty));
        assert_eq!(one.give_back(10, 100).used(10, NOW), 0, "never more than all");
    }

    #[test]
    fn debt_is_repaid() {
        let bucket = Bucket::default().charge(100, 250, NOW);
        assert_eq!(bucket.debt(100, NOW), Duration::from_millis(1_500));
        assert_eq!(bucket.debt(100, later(1_500)), Duration::ZERO);
        let much = Bucket::default().charge(1, 1_000_000, NOW);
        assert_eq!(much.debt(1, NOW), Duration::from_secs(899), "at most 15 minutes");
    }

    #[test]
    fn zero_rejects_everything() {
        assert!(Bucket::default().take(0, 1, NOW).is_err());
        assert!(!Bucket::default().debt(0, NOW).is_zero());
    }

    #[test]
    fn limits_have_a_range() {
        assert!(Quota::Devices.check(LIMIT_MAX).is_ok() && Quota::Devices.check(LIMIT_MAX + 1).is_err());
        assert!(Quota::PublishesPerSecond.check(RATE_MAX).is_ok());
        assert!(Quota::PublishesPerSecond.check(RATE_MAX + 1).is_err());
    }
}
