//! The rate that a push service allows one credential, and one device. Obeying it here means that the service never has
//! to reject a push.
//!
//! [`Rate`] is a token bucket whose rate and size grow from zero during the ramp-up, and fall back after a pause or an
//! overload. [`Devices`] remembers a bounded number of devices that received something recently.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use crate::exchange::{DeviceLimit, Quota};

/// The share of the full rate at the start of a ramp-up: 1/60, so that a ramp of 60 s starts with the allowance of its
/// first second.
const LEVEL_MIN: f64 = 1.0 / 60.0;

/// After this many ramp-ups without use, the next one starts from the beginning.
const PAUSE_RAMPS: u32 = 5;

/// The level grows only with use: between two calls at most this much time counts.
const RAMP_STEP_MAX: Duration = Duration::from_secs(1);

/// A longer wait is cut to this and the caller asks again; with a tiny rate the exact time would overflow.
const WAIT_SECONDS_MAX: f64 = 60.0;

/// An overload halves the rate.
const OVERLOAD_FACTOR: f64 = 0.5;

/// The rate of one credential.
#[derive(Debug)]
pub struct Rate {
    per_second: f64,
    burst: f64,
    ramp_up: Duration,
    /// LEVEL_MIN..=1: the share of `per_second` and `burst` that is allowed now.
    level: f64,
    /// 0..=burst × level.
    tokens: f64,
    at: Instant,
}

impl Rate {
    /// None: there is no limit.
    pub fn new(quota: &Quota, now: Instant) -> Option<Self> {
        let per_second = quota.per_second.filter(|rate| *rate > 0.0)?;
        let level = if quota.ramp_up.is_zero() { 1.0 } else { LEVEL_MIN };
        let burst = quota.burst.max(1.0);
        Some(Self {
            per_second,
            burst,
            ramp_up: quota.ramp_up,
            level,
            tokens: (burst * level).max(1.0),
            at: now,
        })
    }

    /// How many of `wanted` may be sent now, and when to ask again if not all.
    pub fn take(&mut self, wanted: usize, now: Instant) -> (usize, Option<Instant>) {
        self.advance(now);
        let allowed = (self.tokens as usize).min(wanted);
        self.tokens -= allowed as f64;
        if allowed == wanted {
            return (allowed, None);
        }
        // At least a hundredth of a second's worth at once, rather than one timer per push.
        let missing =
            (self.rate() / 100.0).clamp(1.0, self.size()).min((wanted - allowed) as f64) - self.tokens;
        let seconds = (missing / self.rate()).clamp(0.001, WAIT_SECONDS_MAX);
        (allowed, Some(now + Duration::from_secs_f64(seconds)))
    }

    /// Returns what was taken and not sent.
    pub fn give_back(&mut self, count: usize) {
        self.tokens = (self.tokens + count as f64).min(self.size());
    }

    /// The service requests a slower rate.
    pub fn overloaded(&mut self, now: Instant) {
        self.advance(now);
        self.level = (self.level * OVERLOAD_FACTOR).max(LEVEL_MIN);
        self.tokens = self.tokens.min(self.size());
    }

    /// The pushes per second that are allowed now.
    pub fn rate(&self) -> f64 {
        self.per_second * self.level
    }

    fn size(&self) -> f64 {
        (self.burst * self.level).max(1.0)
    }

    fn advance(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        self.at = self.at.max(now);
        if !self.ramp_up.is_zero() && passed > self.ramp_up * PAUSE_RAMPS {
            self.level = LEVEL_MIN;
            self.tokens = self.size();
            return;
        }
        let before = self.level;
        let grown = match self.ramp_up.is_zero() {
            // The effect of an overload fades within a minute in any case.
            true => passed.as_secs_f64() / 60.0,
            false => passed.min(RAMP_STEP_MAX).as_secs_f64() / self.ramp_up.as_secs_f64(),
        };
        self.level = (before + grown).min(1.0);
        let mean = self.per_second * f64::midpoint(before, self.level);
        self.tokens = mean.mul_add(passed.as_secs_f64(), self.tokens).min(self.size());
    }
}

/// The limits of each device of one credential.
///
/// A limit of `pushes` in `window` holds in every window, wherever it starts: half of it may be sent at once, the other
/// half evenly. For each limit the state is the time at which it is fully available again (GCRA's theoretical arrival
/// time minus the tolerance); a device whose limits all are is forgotten.
#[derive(Debug)]
pub struct Devices {
    limits: &'static [DeviceLimit],
    start: Instant,
    hasher: RandomState,
    /// By the hash of a device's token: for each limit the time in ms from `start` until which it is in use.
    used_until_ms: HashMap<u64, [u64; Devices::LIMITS_MAX]>,
    /// The number of devices at which to look for forgettable ones.
    clean_at: usize,
    /// In ms from `start`: not before this time.
    clean_from_ms: u64,
}

impl Devices {
    pub const LIMITS_MAX: usize = 2;
    /// 65,536 × 24 B = at most 1.5 MiB per credential.
    pub const DEVICES_MAX: usize = 65_536;

    /// None: there is no limit.
    pub fn new(quota: &Quota, now: Instant) -> Option<Self> {
        let limits = &quota.per_device[..quota.per_device.len().min(Self::LIMITS_MAX)];
        (!limits.is_empty()).then(|| Self {
            limits,
            start: now,
            hasher: RandomState::new(),
            used_until_ms: HashMap::new(),
            clean_at: 1_024,
            clean_from_ms: 0,
        })
    }

    /// Counts one push to the device. The error is how long the device has to wait; then nothing is counted.
    pub fn take(&mut self, token: &str, now: Instant) -> Result<(), Duration> {
        let now_ms = u64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX);
        if self.used_until_ms.len() >= self.clean_at && now_ms >= self.clean_from_ms {
            self.clean(now_ms);
        }
        let key = self.hasher.hash_one(token);
        let known = self.used_until_ms.get(&key).copied();
        let mut until_ms = known.unwrap_or_default();
        let mut wait_ms = 0;
        for (limit, until) in self.limits.iter().zip(&mut until_ms) {
            let half = u64::from(limit.pushes / 2).max(1);
            let window_ms = u64::try_from(limit.window.as_millis()).unwrap_or(u64::MAX);
            let interval_ms = (window_ms / half).max(1);
            *until = (*until).max(now_ms) + interval_ms;
            wait_ms = wait_ms.max(until.saturating_sub(now_ms + interval_ms * half));
        }
        if wait_ms > 0 {
            return Err(Duration::from_millis(wait_ms));
        }
        // The table is full of active devices: a new one is not counted, and the service's own answer has to limit it.
        if known.is_some() || self.used_until_ms.len() < Self::DEVICES_MAX {
            self.used_until_ms.insert(key, until_ms);
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.used_until_ms.len()
    }

    pub fn is_empty(&self) -> bool {
        self.used_until_ms.is_empty()
    }

    fn clean(&mut self, now_ms: u64) {
        self.used_until_ms.retain(|_, until_ms| until_ms.iter().any(|until| *until > now_ms));
        // Looks again after as many new devices, so that the cost per push is constant; with a full table at most once
        // a second.
        let twice = self.used_until_ms.len() * 2;
        self.clean_at = twice.clamp(1_024, Self::DEVICES_MAX);
        self.clean_from_ms = if twice > Self::DEVICES_MAX { now_ms + 1_000 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FCM: &[DeviceLimit] = &[
        DeviceLimit { pushes: 240, window: Duration::from_secs(60) },
        DeviceLimit { pushes: 5_000, window: Duration::from_secs(3_600) },
    ];

    fn quota(per_second: f64, burst: f64, ramp_up_s: u64) -> Quota {
        Quota {
            per_second: Some(per_second),
            burst,
            ramp_up: Duration::from_secs(ramp_up_s),
            per_device: FCM,
        }
    }

    /// Takes all it can get every 10 ms. Returns the sum.
    fn take_all(rate: &mut Rate, from: Instant, seconds: u64) -> usize {
        let ticks = (0..seconds * 100).map(|tick| from + Duration::from_millis(tick * 10));
        ticks.map(|now| rate.take(1_000_000, now).0).sum()
    }

    #[test]
    fn the_rate_never_exceeds_its_limit() {
        let start = Instant::now();
        let mut rate = Rate::new(&quota(10_000.0, 10_000.0, 0), start).expect("a limit");
        let taken = take_all(&mut rate, start, 60);
        assert!((590_000..=610_000).contains(&taken), "{taken}");
    }

    #[test]
    fn it_ramps_up_and_restarts_after_a_pause() {
        let start = Instant::now();
        let mut rate = Rate::new(&quota(10_000.0, 10_000.0, 60), start).expect("a limit");
        let first = take_all(&mut rate, start, 1);
        assert!((100..2_000).contains(&first), "{first} in the first second");
        let minute = take_all(&mut rate, start + Duration::from_secs(1), 59);
        assert!((250_000..350_000).contains(&minute), "{minute} in the first minute");
        assert!((9_900.0..=10_000.0).contains(&rate.rate()), "{}", rate.rate());
        let later = start + Duration::from_secs(600);
        assert!(take_all(&mut rate, later, 1) < 2_000);
    }

    #[test]
    fn it_ramps_up_with_use_and_not_with_time() {
        let start = Instant::now();
        let mut rate = Rate::new(&quota(10_000.0, 10_000.0, 60), start).expect("a limit");
        let first = take_all(&mut rate, start + Duration::from_secs(200), 1);
        assert!(first < 2_000, "{first} in the first second of use");
    }

    #[test]
    fn a_tiny_rate_has_a_finite_wait() {
        let start = Instant::now();
        let mut rate = Rate::new(&quota(f64::MIN_POSITIVE, 1.0, 0), start).expect("a limit");
        assert_eq!(rate.take(2, start), (1, Some(start + Duration::from_secs(60))));
    }

    #[test]
    fn an_overload_halves_the_rate_for_a_while() {
        let start = Instant::now();
        let mut rate = Rate::new(&quota(1_000.0, 10.0, 0), start).expect("a limit");
        rate.overloaded(start);
        assert!((rate.rate() - 500.0).abs() < 1.0, "{}", rate.rate());
        rate.take(1, start + Duration::from_secs(60));
        assert!((rate.rate() - 1_000.0).abs() < 1.0, "{}", rate.rate());
    }

    #[test]
    fn a_rejected_caller_gets_the_time_to_retry() {
        let start = Instant::now();
        let mut rate = Rate::new(&quota(10.0, 1.0, 0), start).expect("a limit");
        assert_eq!(rate.take(1, start), (1, None));
        let (none, again) = rate.take(5, start);
        assert_eq!(none, 0);
        let again = again.expect("a time");
        assert_eq!(rate.take(1, again + Duration::from_millis(1)).0, 1);
        assert_eq!(rate.take(1, again + Duration::from_millis(1)).0, 0);
        rate.give_back(1);
        assert_eq!(rate.take(1, again + Duration::from_millis(1)).0, 1);
    }

    #[test]
    fn a_device_never_exceeds_its_limit_in_any_window() {
        let start = Instant::now();
        let mut devices = Devices::new(&quota(1.0, 1.0, 0), start).expect("limits");
        let taken: Vec<u64> = (0..36_000_u64)
            .filter(|tick| devices.take("a", start + Duration::from_millis(tick * 100)).is_ok())
            .collect();
        for (window_ticks, most) in [(600, 240), (36_000, 5_000)] {
            let worst = taken.iter().map(|from| {
                taken.iter().skip_while(|t| *t < from).take_while(|t| **t < from + window_ticks).count()
            });
            let worst = worst.step_by(50).max().unwrap_or_default();
            assert!((most / 2..=most).contains(&worst), "{worst} in {window_ticks} ticks");
        }
        let last = start + Duration::from_secs(3_600);
        assert!(devices.take("b", last).is_ok(), "another device is not held back");
    }

    #[test]
    fn inactive_devices_are_forgotten() {
        let start = Instant::now();
        let mut devices = Devices::new(&quota(1.0, 1.0, 0), start).expect("limits");
        for i in 0..200_000_u64 {
            let now = start + Duration::from_millis(i);
            devices.take(&format!("token {i}"), now).expect("its first push");
        }
        assert!(devices.len() < 10_000, "{}", devices.len());
    }

    #[test]
    fn the_number_of_devices_is_bounded() {
        let start = Instant::now();
        let mut devices = Devices::new(&quota(1.0, 1.0, 0), start).expect("limits");
        for i in 0..Devices::DEVICES_MAX + 2_000 {
            devices.take(&i.to_string(), start).expect("its first push");
        }
        assert_eq!(devices.len(), Devices::DEVICES_MAX);
        // Once the devices are inactive there is room again.
        let later = start + Duration::from_secs(3_600);
        devices.take("a", later).expect("its first push");
        assert_eq!(devices.len(), 1);
    }
}
