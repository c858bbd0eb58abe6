//! How many devices of an app's activities are in flight, so that none of them waits long with a state that gets old. Pure.
//!
//! A state is read when its slice is taken. If more slices are taken than the push service and this machine send at
//! once, they queue, and their states age. So the window follows the time from take to last answer, as TCP Vegas does
//! (Brakmo, Peterson, 1995): the shortest time of late is that without a queue, and any longer one shows how many
//! devices queue. The window grows while few do and shrinks while many do. A full window never shows the time without a
//! queue, so it is halved now and then, as BBR does (Cardwell et al., 2016). What is due and not taken costs nothing: it
//! gets the newest state later.

use std::time::{Duration, Instant};

/// A slice for each connection that a pool opens first.
const START: f64 = 2_000.0;
const MIN: f64 = 1_000.0;
/// Devices that queue: enough to keep the pool busy while the next slices are taken, about 20 ms at 50,000 a second.
const QUEUED_MIN: f64 = 1_000.0;
const QUEUED_MAX: f64 = 2_000.0;
/// The window changes by this part of the slice that was answered: by a fifth in one round.
const STEP: f64 = 0.2;
/// How often the window is halved. The shortest time of this span and of the one before counts.
const MEMORY: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Window {
    limit: f64,
    /// The shortest time since `since`, and in the span before.
    shortest: Duration,
    before: Duration,
    since: Option<Instant>,
}

impl Default for Window {
    fn default() -> Self {
        Self { limit: START, shortest: Duration::MAX, before: Duration::MAX, since: None }
    }
}

impl Window {
    pub(super) fn limit(&self) -> usize {
        // Between two small constants.
        self.limit as usize
    }

    /// A slice of this many devices was answered, after this time since its take. `in_flight`: devices including it.
    pub(super) fn answered(
        &mut self,
        devices: usize,
        took: Duration,
        in_flight: usize,
        now: Instant,
        max: usize,
    ) {
        let took = took.max(Duration::from_millis(1));
        match self.since {
            Some(since) if now.saturating_duration_since(since) < MEMORY => {
                self.shortest = self.shortest.min(took);
            }
            _ => {
                self.before = self.shortest;
                self.shortest = took;
                if self.since.replace(now).is_some() {
                    self.limit /= 2.0;
                }
            }
        }
        let without_queue = self.shortest.min(self.before).as_secs_f64();
        let queued = in_flight as f64 * (1.0 - without_queue / took.as_secs_f64());
        let step = devices as f64 * STEP;
        if queued > QUEUED_MAX {
            self.limit -= step;
        } else if queued < QUEUED_MIN && in_flight as f64 * 2.0 > self.limit {
            // A window that is not used must not grow.
            self.limit += step;
        }
        self.limit = self.limit.clamp(MIN, max as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 24_576;

    /// Slices of 500 to a push service that answers after `latency_ms` and takes `per_second`.
    fn settled(latency_ms: f64, per_second: f64) -> usize {
        let (mut window, start) = (Window::default(), Instant::now());
        let mut at_ms = 0.0;
        let mut limits = Vec::new();
        for _ in 0..20_000 {
            let in_flight = window.limit();
            // Without a queue a slice takes its latency and its own time; a full window takes what it holds.
            let took_ms =
                (500.0 / per_second).mul_add(1e3, latency_ms).max(in_flight as f64 / per_second * 1e3);
            at_ms += 500.0 / per_second * 1e3;
            let now = start + Duration::from_secs_f64(at_ms / 1e3);
            window.answered(500, Duration::from_secs_f64(took_ms / 1e3), in_flight, now, MAX);
            limits.push(window.limit());
        }
        // Most of the time, after a while.
        let mut limits = limits.split_off(10_000);
        limits.sort_unstable();
        limits[limits.len() / 2]
    }

    #[test]
    fn a_slow_machine_has_few_devices_in_flight_and_a_distant_service_many() {
        let slow = settled(50.0, 7_000.0);
        assert!((1_000..5_000).contains(&slow), "{slow}: a state waits for less than a second");
        let fast = settled(50.0, 50_000.0);
        assert!((2_500..8_000).contains(&fast), "{fast}");
        let distant = settled(300.0, 50_000.0);
        assert!((14_000..=MAX).contains(&distant), "{distant}");
        assert_eq!(settled(2_000.0, 50_000.0), MAX);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut window = Window::default();
        for _ in 0..1_000 {
            window.answered(10, Duration::from_millis(50), 10, Instant::now(), MAX);
        }
        assert_eq!(window.limit(), 2_000);
    }
}
