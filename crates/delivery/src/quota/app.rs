//! The limits of one app, and what this node counts for it.
//!
//! Limits and buckets are atomic. Counts and known topics have locks that are never held across an await; the lock of
//! counts is the only one taken under another, that of known topics. `Counts::counting` is held while the store counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use noroshi_types::quota::{Bucket, Limits, Quota, Quotas as Overrides};
use noroshi_types::{AppId, AppName};

use super::counts::Counts;
use super::figures::{AppFigures, Counted};
use super::known_topics::KnownTopics;
use super::metrics::Metrics;
use crate::error::OverQuota;

const UNLIMITED: u64 = u64::MAX;
/// When a refused connection should retry: others may have left by then.
const CONNECTION_RETRY: Duration = Duration::from_secs(5);

/// The bucket from which a publish takes a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rate {
    Publishes,
    /// Messages that a front forwards, which took a token of its own when it accepted them. They have a bucket apart,
    /// so that forwarded and direct messages do not compete.
    Relayed,
}

/// A front that could not reach the cell has a backlog. At twice the rate the backlog shrinks even while new messages
/// arrive at the full rate.
const RELAYED_FACTOR: u64 = 2;

pub struct AppQuotas {
    app: AppId,
    name: AppName,
    /// [`UNLIMITED`] for none, by quota.
    limits: [AtomicU64; Quota::COUNT],
    /// Which limits are the app's own: a bit for each quota.
    own: AtomicU64,
    is_limited: AtomicBool,
    connections: AtomicU64,
    /// Zero of the buckets' clock.
    origin: Instant,
    /// [`Bucket`]s of rates, by quota; the others stay empty.
    buckets: [AtomicU64; Quota::COUNT],
    /// The bucket of [`Rate::Relayed`].
    relayed: AtomicU64,
    refused: [AtomicU64; Quota::COUNT],
    /// By [`Counted`].
    counted: [AtomicU64; Counted::COUNT],
    pub(super) counts: Counts,
    pub(super) topics: KnownTopics,
    metrics: Metrics,
}

/// One quota of an app, for display.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    pub quota: Quota,
    pub limit: Option<u64>,
    /// The app's own limit rather than the node's default.
    pub is_own: bool,
    /// `None`: not counted.
    pub used: Option<u64>,
    /// On this node since it started.
    pub refused: u64,
}

/// A connection, counted until this is dropped.
pub struct Permit(Arc<AppQuotas>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

impl AppQuotas {
    pub(super) fn new(app: AppId, name: AppName, metrics: Metrics) -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            app,
            name,
            limits: std::array::from_fn(|_| AtomicU64::new(UNLIMITED)),
            own: AtomicU64::new(0),
            is_limited: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            origin: Instant::now(),
            buckets: zeros(),
            relayed: AtomicU64::new(0),
            refused: zeros(),
            counted: std::array::from_fn(|_| AtomicU64::new(0)),
            counts: Counts::default(),
            topics: KnownTopics::default(),
            metrics,
        }
    }

    pub fn app(&self) -> AppId {
        self.app
    }

    pub fn name(&self) -> &AppName {
        &self.name
    }

    /// Applies new limits. A quota that was not counted before is counted before it refuses anything.
    pub(super) fn limit(&self, defaults: Limits, overrides: Overrides) {
        let limits = defaults.below(&overrides);
        let mut own = 0;
        for quota in Quota::ALL {
            own |= u64::from(overrides.get(quota).is_some()) << (quota as u64);
            self.limits[quota as usize].store(limits.get(quota).unwrap_or(UNLIMITED), Relaxed);
        }
        self.own.store(own, Relaxed);
        self.counts.want(|quota| limits.get(quota).is_some());
        self.is_limited.store(!limits.is_unlimited(), Relaxed);
    }

    pub(super) fn is_limited(&self) -> bool {
        self.is_limited.load(Relaxed)
    }

    pub fn limit_of(&self, quota: Quota) -> Option<u64> {
        Some(self.limits[quota as usize].load(Relaxed)).filter(|limit| *limit != UNLIMITED)
    }

    /// Counts a refusal.
    pub(super) fn refuse(&self, quota: Quota, limit: u64, after: Duration) -> OverQuota {
        self.refused[quota as usize].fetch_add(1, Relaxed);
        self.metrics.count(&self.name, quota);
        OverQuota { quota, limit, after }
    }

    fn bucket(&self, quota: Quota) -> &AtomicU64 {
        &self.buckets[quota as usize]
    }

    /// The clock of the buckets.
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(super) fn take(&self, quota: Quota, count: u64) -> Result<(), OverQuota> {
        let Some(limit) = self.limit_of(quota) else { return Ok(()) };
        self.take_from(self.bucket(quota), (quota, limit, limit), count)
    }

    /// Tokens for publishing.
    pub(super) fn take_of(&self, rate: Rate, count: u64) -> Result<(), OverQuota> {
        let Some(limit) = self.limit_of(Quota::PublishesPerSecond) else { return Ok(()) };
        let (bucket, per_second) = self.rate(rate, limit);
        self.take_from(bucket, (Quota::PublishesPerSecond, limit, per_second), count)
    }

    fn take_from(
        &self,
        bucket: &AtomicU64,
        (quota, limit, per_second): (Quota, u64, u64),
        count: u64,
    ) -> Result<(), OverQuota> {
        let (now, mut after) = (self.now(), Duration::ZERO);
        let taken = bucket.fetch_update(Relaxed, Relaxed, |bits| {
            let taken = Bucket::from_bits(bits).take(per_second, count, now);
            taken.map(Bucket::to_bits).map_err(|wait| after = wait).ok()
        });
        taken.map(drop).map_err(|_| self.refuse(quota, limit, after))
    }

    /// Returns one token that was not used.
    pub(super) fn give_back(&self, rate: Rate) {
        let Some(limit) = self.limit_of(Quota::PublishesPerSecond) else { return };
        let (bucket, per_second) = self.rate(rate, limit);
        let give = |bits| Some(Bucket::from_bits(bits).give_back(per_second, 1).to_bits());
        // The closure always answers.
        let _ = bucket.fetch_update(Relaxed, Relaxed, give);
    }

    fn rate(&self, rate: Rate, limit: u64) -> (&AtomicU64, u64) {
        match rate {
            Rate::Publishes => (self.bucket(Quota::PublishesPerSecond), limit),
            Rate::Relayed => (&self.relayed, limit.saturating_mul(RELAYED_FACTOR)),
        }
    }

    /// Refuses if [`AppQuotas::take`] would refuse now. Takes no token.
    pub(super) fn check_rate(&self, quota: Quota) -> Result<(), OverQuota> {
        let Some(limit) = self.limit_of(quota) else { return Ok(()) };
        let taken = Bucket::from_bits(self.bucket(quota).load(Relaxed)).take(limit, 1, self.now());
        taken.map(drop).map_err(|after| self.refuse(quota, limit, after))
    }

    pub(crate) fn charge(&self, quota: Quota, count: u64) {
        let Some(limit) = self.limit_of(quota) else { return };
        let now = self.now();
        let charge = |bits| Some(Bucket::from_bits(bits).charge(limit, count, now).to_bits());
        // The closure always answers.
        let _ = self.bucket(quota).fetch_update(Relaxed, Relaxed, charge);
    }

    pub(super) fn debt(&self, quota: Quota) -> Option<Duration> {
        let limit = self.limit_of(quota)?;
        Some(Bucket::from_bits(self.bucket(quota).load(Relaxed)).debt(limit, self.now()))
    }

    /// Refuses while charges after the fact are not repaid.
    pub(super) fn check_debt(&self, quota: Quota) -> Result<(), OverQuota> {
        match (self.limit_of(quota), self.debt(quota)) {
            (Some(limit), Some(debt)) if !debt.is_zero() => Err(self.refuse(quota, limit, debt)),
            _ => Ok(()),
        }
    }

    pub(super) fn enter(self: Arc<Self>, replaces: impl FnOnce() -> bool) -> Result<Permit, OverQuota> {
        let limit = self.limit_of(Quota::Connections);
        let room = |present: u64| limit.is_none_or(|limit| present < limit).then_some(present + 1);
        if self.connections.fetch_update(Relaxed, Relaxed, room).is_err() {
            if !replaces() {
                return Err(self.refuse(Quota::Connections, limit.unwrap_or(UNLIMITED), CONNECTION_RETRY));
            }
            self.connections.fetch_add(1, Relaxed);
        }
        // Dropped, it releases the connection if the rate refuses it.
        let permit = Permit(self);
        permit.0.take(Quota::ConnectsPerSecond, 1)?;
        permit.0.count(Counted::LogIns, 1);
        Ok(permit)
    }

    pub(super) fn count(&self, what: Counted, count: u64) {
        self.counted[what as usize].fetch_add(count, Relaxed);
    }

    pub(super) fn figures(&self) -> AppFigures {
        AppFigures {
            app: self.app,
            connections: self.connections.load(Relaxed),
            counted: std::array::from_fn(|index| self.counted[index].load(Relaxed)),
            refused: self.refused.iter().map(|count| count.load(Relaxed)).sum(),
        }
    }

    /// All quotas. `stored` returns the store's count of quotas that this node does not count.
    pub(crate) fn shown(&self, stored: impl Fn(Quota) -> Option<u64>) -> Vec<Shown> {
        let (own, now) = (self.own.load(Relaxed), self.now());
        let show = |quota: Quota| {
            let limit = self.limit_of(quota);
            let used = match quota {
                Quota::Connections => Some(self.connections.load(Relaxed)),
                Quota::SubscriptionsPerDevice => None,
                quota if quota.is_rate() => {
                    limit.map(|limit| Bucket::from_bits(self.bucket(quota).load(Relaxed)).used(limit, now))
                }
                quota => limit.and_then(|_| self.counts.total(quota)).or_else(|| stored(quota)),
            };
            let refused = self.refused[quota as usize].load(Relaxed);
            Shown { quota, limit, is_own: own & (1 << (quota as u64)) != 0, used, refused }
        };
        Quota::ALL.into_iter().map(show).collect()
    }
}
