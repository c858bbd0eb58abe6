//! How often others may post to Web Push endpoints: so many messages a minute to each, so many a second to all of an
//! app, and so many requests of an app in work. One app's flood costs the others nothing.
//!
//! A pace is kept as the moment at which all that was taken is earned back (GCRA, ATM Forum TM 4.1 §4.4.4.2): one
//! number each, and one that lies in the past says the same as none. Of one node: behind a load balancer each node
//! allows as much.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use noroshi_types::{AppId, EndpointId, Timestamp};

/// At 24 bytes each 3 MiB. Of more endpoints at once only the pace of their app counts.
const ENDPOINTS_MAX: usize = 1 << 17;
/// Each reads a row or waits for 4 KiB: the node serves 4,096 requests at once.
const IN_WORK_PER_APP_MAX: u32 = 256;
/// Receipts that are waited for, of one app: each is a request in work.
const WAITING_PER_APP_MAX: u32 = 64;
/// Tokens of an app that may be taken at once, in seconds of its rate.
const APP_BURST_SECONDS: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paces {
    /// Also how many may come at once.
    pub endpoint_per_minute: u32,
    pub app_per_second: u32,
}

/// When every token is back, in microseconds of Unix time.
type FullAt = u64;

#[derive(Default)]
struct OfApp {
    full_at: FullAt,
    in_work: u32,
    waiting: u32,
}

/// Each lock is held for a look-up and never across an await; nothing else is locked under it.
#[derive(Default)]
pub(crate) struct Pace {
    endpoints: Mutex<Endpoints>,
    apps: Mutex<HashMap<AppId, OfApp>>,
}

#[derive(Default)]
struct Endpoints {
    full_at: HashMap<EndpointId, FullAt>,
    /// Full when it was last looked through: not looked through again before.
    look_again_at: FullAt,
}

/// A request of an app that is in work, or waits.
pub(crate) struct Work {
    pace: Arc<Pace>,
    app: AppId,
    counter: fn(&mut OfApp) -> &mut u32,
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut apps = lock(&self.pace.apps);
        if let Some(of_app) = apps.get_mut(&self.app) {
            *(self.counter)(of_app) -= 1;
        }
    }
}

impl Pace {
    /// Counts a request in; none if the app has too many.
    pub(crate) fn begin(self: &Arc<Self>, app: AppId) -> Option<Work> {
        self.count(app, |of_app| &mut of_app.in_work, IN_WORK_PER_APP_MAX)
    }

    /// Counts somebody in who waits for a receipt.
    pub(crate) fn wait(self: &Arc<Self>, app: AppId) -> Option<Work> {
        self.count(app, |of_app| &mut of_app.waiting, WAITING_PER_APP_MAX)
    }

    fn count(self: &Arc<Self>, app: AppId, counter: fn(&mut OfApp) -> &mut u32, max: u32) -> Option<Work> {
        let mut apps = lock(&self.apps);
        let count = counter(apps.entry(app).or_default());
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Work { pace: self.clone(), app, counter })
    }

    /// Takes a message off both allowances, or says when to come back.
    pub(crate) fn take(
        &self,
        endpoint: EndpointId,
        app: AppId,
        paces: Paces,
        now: Timestamp,
    ) -> Result<(), Duration> {
        let now = now.0.saturating_mul(1_000);
        let of_endpoint = Rate::new(60_000_000, paces.endpoint_per_minute, paces.endpoint_per_minute);
        let burst = paces.app_per_second.saturating_mul(APP_BURST_SECONDS);
        let of_app = Rate::new(1_000_000, paces.app_per_second, burst);
        lock(&self.endpoints).take(endpoint, of_endpoint, now)?;
        let mut apps = lock(&self.apps);
        let found = apps.entry(app).or_default();
        found.full_at = of_app.take(found.full_at, now)?;
        Ok(())
    }
}

impl Endpoints {
    fn take(&mut self, endpoint: EndpointId, rate: Rate, now: u64) -> Result<(), Duration> {
        if let Some(full_at) = self.full_at.get_mut(&endpoint) {
            *full_at = rate.take(*full_at, now)?;
            return Ok(());
        }
        if self.full_at.len() >= ENDPOINTS_MAX && now >= self.look_again_at {
            self.full_at.retain(|_, full_at| *full_at > now);
            // A look through all of them takes about a millisecond.
            self.look_again_at = now + 1_000_000;
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

    const PACES: Paces = Paces { endpoint_per_minute: 3, app_per_second: 1 };

    #[test]
    fn an_endpoint_has_a_burst_and_then_its_pace() {
        let pace = Pace::default();
        let take = |ms| pace.take(EndpointId(1), AppId(1), PACES, Timestamp(ms));
        for _ in 0..3 {
            assert_eq!(take(0), Ok(()));
        }
        assert_eq!(take(0), Err(Duration::from_secs(20)));
        assert_eq!(take(15_000), Err(Duration::from_secs(5)));
        assert_eq!(take(20_000), Ok(()));
        assert!(take(20_000).is_err());
        assert_eq!((take(120_000), take(120_000), take(120_000)), (Ok(()), Ok(()), Ok(())));
        assert!(take(120_000).is_err(), "no more than the burst was earned");
        assert_eq!(pace.take(EndpointId(2), AppId(2), PACES, Timestamp(20_000)), Ok(()));
    }

    #[test]
    fn a_flooded_app_refuses_and_others_do_not() {
        let pace = Pace::default();
        let take = |endpoint, app| pace.take(EndpointId(endpoint), AppId(app), PACES, Timestamp(0));
        for endpoint in 0..10 {
            assert_eq!(take(endpoint, 1), Ok(()));
        }
        assert_eq!(take(10, 1), Err(Duration::from_secs(1)));
        assert_eq!(take(11, 2), Ok(()));
    }

    #[test]
    fn requests_in_work_are_counted_for_each_app() {
        let pace = Arc::new(Pace::default());
        let mut work: Vec<_> = (0..IN_WORK_PER_APP_MAX).map(|_| pace.begin(AppId(1))).collect();
        assert!(work.iter().all(Option::is_some));
        assert!(pace.begin(AppId(1)).is_none());
        assert!(pace.begin(AppId(2)).is_some() && pace.wait(AppId(1)).is_some());
        work.pop();
        assert!(pace.begin(AppId(1)).is_some());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut endpoints = Endpoints::default();
        let rate = Rate::new(60_000_000, 3, 3);
        for id in 0..=ENDPOINTS_MAX as u64 {
            assert_eq!(endpoints.take(EndpointId(id), rate, 0), Ok(()));
        }
        assert_eq!(endpoints.full_at.len(), ENDPOINTS_MAX);
        // All have earned back what they took.
        assert_eq!(endpoints.take(EndpointId(u64::MAX), rate, 60_000_000), Ok(()));
        assert_eq!(endpoints.full_at.len(), 1);
    }
}
