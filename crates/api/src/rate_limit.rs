//! Rate limits of Web Push endpoints: messages a minute to each endpoint, messages a second to all endpoints of an app, and
//! concurrent requests of an app. A flood to one app does not affect the others.
//!
//! A token bucket is stored as the time at which it is full again (GCRA, ATM Forum TM 4.1 §4.4.4.2): one number, and a time
//! in the past equals no entry. Limits apply per node: behind a load balancer, each node allows the full rate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use noroshi_types::{AppId, EndpointId, Timestamp};

/// 131,072 × 24 bytes = 3 MiB. Beyond it, only the limit of the app applies to further endpoints.
const ENDPOINTS_MAX: usize = 1 << 17;
/// Each reads a row or waits for 4 KiB: the node serves 4,096 concurrent requests.
const REQUESTS_PER_APP_MAX: u32 = 256;
/// Requests of one app that wait for a receipt.
const RECEIPTS_PER_APP_MAX: u32 = 64;
/// Burst of an app, in seconds of its rate.
const APP_BURST_SECONDS: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// Also the burst.
    pub endpoint_per_minute: u32,
    pub app_per_second: u32,
}

/// When the bucket is full again, in microseconds of Unix time.
type FullAt = u64;

#[derive(Default)]
struct AppState {
    full_at: FullAt,
    requests: u32,
    receipts: u32,
}

/// Each lock is held for a look-up, never across an `.await`; no other lock is taken under it.
#[derive(Default)]
pub(crate) struct RateLimiter {
    endpoints: Mutex<Endpoints>,
    apps: Mutex<HashMap<AppId, AppState>>,
}

#[derive(Default)]
struct Endpoints {
    full_at: HashMap<EndpointId, FullAt>,
    /// The map was full at the last cleanup: no cleanup before this time.
    cleanup_at: FullAt,
}

/// Counts a request of an app until dropped.
pub(crate) struct RequestGuard {
    limiter: Arc<RateLimiter>,
    app: AppId,
    counter: fn(&mut AppState) -> &mut u32,
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut apps = lock(&self.limiter.apps);
        if let Some(app_state) = apps.get_mut(&self.app) {
            *(self.counter)(app_state) -= 1;
        }
    }
}

impl RateLimiter {
    /// Counts a request. None if the app has too many.
    pub(crate) fn begin_request(self: &Arc<Self>, app: AppId) -> Option<RequestGuard> {
        self.count(app, |app_state| &mut app_state.requests, REQUESTS_PER_APP_MAX)
    }

    /// Counts a request that waits for a receipt. None if the app has too many.
    pub(crate) fn begin_receipt(self: &Arc<Self>, app: AppId) -> Option<RequestGuard> {
        self.count(app, |app_state| &mut app_state.receipts, RECEIPTS_PER_APP_MAX)
    }

    fn count(
        self: &Arc<Self>,
        app: AppId,
        counter: fn(&mut AppState) -> &mut u32,
        max: u32,
    ) -> Option<RequestGuard> {
        let mut apps = lock(&self.apps);
        let count = counter(apps.entry(app).or_default());
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(RequestGuard { limiter: self.clone(), app, counter })
    }

    /// Takes a token for one message from both buckets. Err: when to retry.
    pub(crate) fn take(
        &self,
        endpoint: EndpointId,
        app: AppId,
        limits: RateLimits,
        now: Timestamp,
    ) -> Result<(), Duration> {
        let now = now.0.saturating_mul(1_000);
        let endpoint_rate = Rate::new(60_000_000, limits.endpoint_per_minute, limits.endpoint_per_minute);
        let burst = limits.app_per_second.saturating_mul(APP_BURST_SECONDS);
        let app_rate = Rate::new(1_000_000, limits.app_per_second, burst);
        lock(&self.endpoints).take(endpoint, endpoint_rate, now)?;
        let mut apps = lock(&self.apps);
        let found = apps.entry(app).or_default();
        found.full_at = app_rate.take(found.full_at, now)?;
        Ok(())
    }
}

impl Endpoints {
    fn take(&mut self, endpoint: EndpointId, rate: Rate, now: u64) -> Result<(), Duration> {
        if let Some(full_at) = self.full_at.get_mut(&endpoint) {
            *full_at = rate.take(*full_at, now)?;
            return Ok(());
        }
        if self.full_at.len() >= ENDPOINTS_MAX && now >= self.cleanup_at {
            self.full_at.retain(|_, full_at| *full_at > now);
            // A pass over all entries takes about a millisecond.
            self.cleanup_at = now + 1_000_000;
        }
        if self.full_at.len() < ENDPOINTS_MAX {
            self.full_at.insert(endpoint, rate.take(0, now)?);
        }
        Ok(())
    }
}

/// In microseconds.
#[derive(Clone, Copy)]
struct Rate {
    interval: u64,
    burst: u64,
}

impl Rate {
    fn new(period: u64, count: u32, burst: u32) -> Self {
        let interval = period.div_ceil(u64::from(count.max(1)));
        Self { interval, burst: interval * u64::from(burst.max(1)) }
    }

    fn take(self, full_at: FullAt, now: u64) -> Result<FullAt, Duration> {
        let full_at = full_at.max(now) + self.interval;
        match (full_at - now).checked_sub(self.burst) {
            None | Some(0) => Ok(full_at),
            Some(over) => Err(Duration::from_micros(over)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RateLimits = RateLimits { endpoint_per_minute: 3, app_per_second: 1 };

    #[test]
    fn an_endpoint_has_a_burst_and_then_its_rate() {
        let limiter = RateLimiter::default();
        let take = |ms| limiter.take(EndpointId(1), AppId(1), LIMITS, Timestamp(ms));
        for _ in 0..3 {
            assert_eq!(take(0), Ok(()));
        }
        assert_eq!(take(0), Err(Duration::from_secs(20)));
        assert_eq!(take(15_000), Err(Duration::from_secs(5)));
        assert_eq!(take(20_000), Ok(()));
        assert!(take(20_000).is_err());
        assert_eq!((take(120_000), take(120_000), take(120_000)), (Ok(()), Ok(()), Ok(())));
        assert!(take(120_000).is_err(), "at most the burst accumulates");
        assert_eq!(limiter.take(EndpointId(2), AppId(2), LIMITS, Timestamp(20_000)), Ok(()));
    }

    #[test]
    fn a_flooded_app_is_limited_and_others_are_not() {
        let limiter = RateLimiter::default();
        let take = |endpoint, app| limiter.take(EndpointId(endpoint), AppId(app), LIMITS, Timestamp(0));
        for endpoint in 0..10 {
            assert_eq!(take(endpoint, 1), Ok(()));
        }
        assert_eq!(take(10, 1), Err(Duration::from_secs(1)));
        assert_eq!(take(11, 2), Ok(()));
    }

    #[test]
    fn concurrent_requests_are_counted_per_app() {
        let limiter = Arc::new(RateLimiter::default());
        let mut requests: Vec<_> =
            (0..REQUESTS_PER_APP_MAX).map(|_| limiter.begin_request(AppId(1))).collect();
        assert!(requests.iter().all(Option::is_some));
        assert!(limiter.begin_request(AppId(1)).is_none());
        assert!(limiter.begin_request(AppId(2)).is_some() && limiter.begin_receipt(AppId(1)).is_some());
        requests.pop();
        assert!(limiter.begin_request(AppId(1)).is_some());
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let mut endpoints = Endpoints::default();
        let rate = Rate::new(60_000_000, 3, 3);
        for id in 0..=ENDPOINTS_MAX as u64 {
            assert_eq!(endpoints.take(EndpointId(id), rate, 0), Ok(()));
        }
        assert_eq!(endpoints.full_at.len(), ENDPOINTS_MAX);
        // All buckets are full again.
        assert_eq!(endpoints.take(EndpointId(u64::MAX), rate, 60_000_000), Ok(()));
        assert_eq!(endpoints.full_at.len(), 1);
    }
}
