//! The two building blocks of all simulations: events ordered by time, and stations that serve jobs first
//! come, first served, with one or several servers.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

/// Seconds since the start of a simulation.
pub(crate) type Seconds = f64;

/// Seconds as a key.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ordered(Seconds);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Future events; those at the same time keep their insertion order.
#[derive(Debug)]
pub(crate) struct Events<E> {
    future: BTreeMap<(Ordered, u64), E>,
    order: u64,
}

impl<E> Events<E> {
    pub(crate) fn new() -> Self {
        Self { future: BTreeMap::new(), order: 0 }
    }

    pub(crate) fn put(&mut self, at: Seconds, event: E) {
        self.order += 1;
        self.future.insert((Ordered(at), self.order), event);
    }

    pub(crate) fn take(&mut self) -> Option<(Seconds, E)> {
        self.future.pop_first().map(|((Ordered(at), _), event)| (at, event))
    }
}

/// Servers with a common queue. Because jobs are served in order of arrival, the end of a job is known when
/// it arrives: it gets the server that becomes free first.
#[derive(Debug, Clone)]
pub(crate) struct Station {
    /// When each server is free.
    free: BinaryHeap<Reverse<Ordered>>,
    busy: Seconds,
    /// When the last job arrived.
    last: Seconds,
}

/// When a job is served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Served {
    pub(crate) start: Seconds,
    pub(crate) end: Seconds,
}

impl Station {
    /// With at least one server.
    pub(crate) fn new(servers: usize) -> Self {
        Self { free: (0..servers.max(1)).map(|_| Reverse(Ordered(0.0))).collect(), busy: 0.0, last: 0.0 }
    }

    pub(crate) fn servers(&self) -> usize {
        self.free.len()
    }

    /// Adds a job that takes `service`; jobs must arrive in chronological order.
    pub(crate) fn serve(&mut self, now: Seconds, service: Seconds) -> Served {
        debug_assert!(now >= self.last, "a job of {now} s arrives after one of {} s", self.last);
        self.last = now;
        let free = self.free.pop().map_or(0.0, |Reverse(Ordered(at))| at);
        let start = free.max(now);
        let end = start + service;
        self.free.push(Reverse(Ordered(end)));
        self.busy += service;
        Served { start, end }
    }

    /// Total busy time of its servers.
    pub(crate) fn busy(&self) -> Seconds {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Mean waiting time with Poisson arrivals.
    fn mean_wait(servers: usize, per_second: f64, mut service: impl FnMut(&mut Random) -> f64) -> f64 {
        let mut random = Random::new(11, "queueing");
        let mut station = Station::new(servers);
        let (mut now, mut wait, count) = (0.0, 0.0, 400_000);
        for _ in 0..count {
            now += random.exponential(1.0 / per_second);
            let job = service(&mut random);
            wait += station.serve(now, job).start - now;
        }
        wait / f64::from(count)
    }

    fn check(what: &str, found: f64, expected: f64) {
        assert!((found - expected).abs() / expected < 0.05, "{what}: {found}, {expected} by theory");
    }

    #[test]
    fn random_service_waits_match_mm1() {
        // M/M/1: W_q = ρ / (μ − λ).
        for utilization in [0.3, 0.5, 0.8] {
            let (arrivals, rate) = (utilization * 10.0, 10.0);
            let found = mean_wait(1, arrivals, |random| random.exponential(1.0 / rate));
            check(&format!("M/M/1 at {utilization}"), found, utilization / (rate - arrivals));
        }
    }

    #[test]
    fn fixed_service_waits_match_md1() {
        // M/D/1: W_q = ρ / (2 μ (1 − ρ)), half of M/M/1.
        for utilization in [0.3, 0.5, 0.8] {
            let rate = 10.0;
            let found = mean_wait(1, utilization * rate, |_| 1.0 / rate);
            check(
                &format!("M/D/1 at {utilization}"),
                found,
                utilization / (2.0 * rate * (1.0 - utilization)),
            );
        }
    }

    #[test]
    fn several_servers_match_erlang_c() {
        let (servers, rate, arrivals) = (4, 10.0, 30.0);
        let load: f64 = arrivals / rate;
        let term = |n: i32| load.powi(n) / (1..=n).map(f64::from).product::<f64>();
        let last = term(servers) * f64::from(servers) / (f64::from(servers) - load);
        let waits = last / ((0..servers).map(term).sum::<f64>() + last);
        let expected = waits / (f64::from(servers) * rate - arrivals);
        let found = mean_wait(servers as usize, arrivals, |random| random.exponential(1.0 / rate));
        check("M/M/4", found, expected);
    }

    #[test]
    fn events_are_ordered_by_time_then_insertion() {
        let mut events = Events::new();
        for (at, event) in [(2.0, 'c'), (1.0, 'a'), (1.0, 'b'), (0.5, '0')] {
            events.put(at, event);
        }
        let all: String = std::iter::from_fn(|| events.take()).map(|(_, event)| event).collect();
        assert_eq!(all, "0abc");
    }
}
