//! All devices of a cell or a gateway lose their connections and reconnect: attempts during the outage,
//! growing pauses, admission at each gateway, log-ins that share a read of PostgreSQL, and the directory's
//! script in Redis.
//!
//! Above `PARTIES_MAX` devices, several are simulated as one party, so that a hundred million devices take
//! seconds; the amount of queued work is the same, only in larger pieces.

use std::collections::VecDeque;

use serde::Serialize;

use crate::layout::{Layout, Role};
use crate::parameter::Parameters;
use crate::queue::{Events, Seconds};
use crate::random::Random;
use crate::sample::Weighted;

const PARTIES_MAX: usize = 20_000;
/// Capacity of the admission token bucket (gateway::listener).
const BURST_S: Seconds = 0.1;
/// Retry delay that a gateway sends to connections above its rate.
const RETRY_DELAY_S: f64 = 1.0;
const CURVE_POINTS: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) devices: u64,
    /// All attempts fail before this time.
    pub(crate) outage_s: Seconds,
    /// Whether the first attempts are simultaneous; otherwise they are spread over the first pause.
    pub(crate) at_once: bool,
    /// Maximum number of devices that connect at a time; others wait until one has finished.
    pub(crate) concurrent_max: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recovery {
    pub devices: u64,
    /// Seconds since connections are accepted again.
    pub half_s: f64,
    pub most_s: f64,
    pub all_s: f64,
    pub log_ins_per_second: f64,
    /// Mean number of attempts per device, including those during the outage.
    pub attempts: f64,
    /// Attempts that a gateway rejected with a retry delay.
    #[serde(rename = "told")]
    pub rejected: f64,
    /// Seconds since the loss, and the share of devices that have reconnected.
    pub curve: Vec<(f64, f64)>,
}

enum Event {
    Attempt(u32),
    /// The gateway has verified the token.
    Verified(usize, u32),
    /// A read of PostgreSQL has been answered.
    Read(usize, Vec<u32>),
    /// These parties have reconnected.
    In(Vec<u32>),
}

struct Gateway {
    /// When the admission bucket will be full again.
    full_at: Seconds,
    waiting: VecDeque<u32>,
    reads: usize,
}

struct Simulation<'a> {
    parameters: &'a Parameters,
    layout: Layout,
    plan: Plan,
    random: Random,
    events: Events<Event>,
    gateways: Vec<Gateway>,
    /// Devices per party.
    weight: f64,
    failures: Vec<u32>,
    in_progress: usize,
    held: VecDeque<u32>,
    attempts: u64,
    rejected: u64,
    back: Weighted,
}

pub(crate) fn simulate(parameters: &Parameters, layout: Layout, plan: Plan, seed: u64) -> Recovery {
    let parties = (plan.devices.max(1) as usize).min(PARTIES_MAX);
    let gateways = (0..layout.gateways())
        .map(|_| Gateway { full_at: 0.0, waiting: VecDeque::new(), reads: 0 })
        .collect();
    let mut simulation = Simulation {
        parameters,
        // The name is part of the seed: with another one a seed would give other figures.
        random: Random::new(seed, "comeback"),
        events: Events::new(),
        gateways,
        weight: plan.devices.max(1) as f64 / parties as f64,
        failures: vec![0; parties],
        in_progress: 0,
        held: VecDeque::new(),
        attempts: 0,
        rejected: 0,
        back: Weighted::new(),
        layout,
        plan,
    };
    simulation.run();
    simulation.result()
}

impl Simulation<'_> {
    fn run(&mut self) {
        for party in 0..self.failures.len() as u32 {
            let spread = if self.plan.at_once { 0.0 } else { self.parameters.device.first_pause_s };
            let at = self.random.unit() * spread;
            self.events.put(at, Event::Attempt(party));
        }
        while let Some((now, event)) = self.events.take() {
            match event {
                Event::Attempt(party) => self.attempt(now, party),
                Event::Verified(gateway, party) => {
                    self.gateways[gateway].waiting.push_back(party);
                    self.read(now, gateway);
                }
                Event::Read(gateway, parties) => {
                    self.gateways[gateway].reads -= 1;
                    self.take(now, parties);
                    self.read(now, gateway);
                }
                Event::In(parties) => self.enter(now, &parties),
            }
        }
    }

    fn attempt(&mut self, now: Seconds, party: u32) {
        if now < self.plan.outage_s {
            self.attempts += 1;
            let pause = self.pause(party);
            return self.events.put(now + pause, Event::Attempt(party));
        }
        let room =
            self.plan.concurrent_max.is_none_or(|most| (self.in_progress as f64 * self.weight) < most as f64);
        if !room {
            return self.held.push_back(party);
        }
        self.attempts += 1;
        let number = self.random.below(self.gateways.len());
        // A token bucket, represented by the time at which it would be full.
        let cost = self.weight / self.parameters.gateway.connects_per_second;
        let gateway = &mut self.gateways[number];
        if gateway.full_at - now + cost > BURST_S.max(cost) {
            self.rejected += 1;
            let delay = RETRY_DELAY_S * (1.0 + self.random.unit() * 0.5);
            return self.events.put(now + delay, Event::Attempt(party));
        }
        gateway.full_at = gateway.full_at.max(now) + cost;
        self.in_progress += 1;
        let work = self.weight * self.parameters.gateway.cpu_per_log_in_us / 1e6;
        let verified = self.layout.serve(Role::Gateway(number), now + self.layout.one_way(), work);
        self.layout.serve(Role::Client, now, self.weight * self.parameters.device.cpu_per_log_in_us / 1e6);
        self.events.put(verified.end, Event::Verified(number, party));
    }

    /// A doubling pause, of which the upper part is random.
    fn pause(&mut self, party: u32) -> Seconds {
        let figures = &self.parameters.device;
        let failures = &mut self.failures[party as usize];
        let whole =
            (figures.first_pause_s * 2.0_f64.powi((*failures).min(30) as i32)).min(figures.pause_max_s);
        *failures += 1;
        whole * (1.0 - figures.jitter * self.random.unit())
    }

    /// Log-ins waiting at a gateway share a read of PostgreSQL.
    fn read(&mut self, now: Seconds, number: usize) {
        let figures = &self.parameters.postgres;
        let most = (figures.log_in_batch_max / self.weight).floor().max(1.0) as usize;
        let gateway = &mut self.gateways[number];
        if gateway.waiting.is_empty() || gateway.reads >= figures.log_in_batches_at_once.round() as usize {
            return;
        }
        gateway.reads += 1;
        let parties: Vec<u32> = gateway.waiting.drain(..gateway.waiting.len().min(most)).collect();
        let devices = parties.len() as f64 * self.weight;
        let one_way = self.layout.one_way();
        let read =
            self.layout.serve(Role::Postgres, now + one_way, devices * figures.cpu_per_log_in_us / 1e6);
        // A party with more devices than a read can hold needs several reads.
        let reads = (devices / figures.log_in_batch_max).max(1.0);
        let waits = figures.log_in_batch_ms / 1e3 * reads;
        self.events.put(read.end + waits + one_way, Event::Read(number, parties));
    }

    /// One script adds them to the directory.
    fn take(&mut self, now: Seconds, parties: Vec<u32>) {
        let devices = parties.len() as f64 * self.weight;
        let work = devices * self.parameters.redis.cpu_per_log_in_us / 1e6;
        let one_way = self.layout.one_way();
        let taken = self.layout.serve(Role::Redis, now + one_way, work);
        self.events.put(taken.end + 2.0 * one_way, Event::In(parties));
    }

    fn enter(&mut self, now: Seconds, parties: &[u32]) {
        for _ in parties {
            self.back.add(now, 1);
            self.in_progress -= 1;
            if let Some(party) = self.held.pop_front() {
                self.events.put(now, Event::Attempt(party));
            }
        }
    }

    fn result(mut self) -> Recovery {
        let parties = self.failures.len() as f64;
        let outage = self.plan.outage_s;
        let mut at = |percent| (self.back.percentile(percent) - outage).max(0.0);
        let (half_s, most_s, all_s) = (at(50.0), at(99.0), at(100.0));
        let mut curve = vec![(0.0, 0.0)];
        if outage > 0.0 {
            curve.push((outage, 0.0));
        }
        curve.extend(self.back.curve(CURVE_POINTS));
        Recovery {
            devices: self.plan.devices,
            half_s,
            most_s,
            all_s,
            log_ins_per_second: self.plan.devices as f64 / all_s.max(1e-9),
            attempts: self.attempts as f64 / parties,
            rejected: self.rejected as f64 * self.weight,
            curve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(devices: u64) -> Plan {
        Plan { devices, outage_s: 10.0, at_once: false, concurrent_max: None }
    }

    fn run(parameters: &Parameters, plan: Plan, gateways: usize) -> Recovery {
        simulate(parameters, Layout::machines(parameters, gateways, 1, 1), plan, 3)
    }

    #[test]
    fn all_devices_reconnect_and_results_depend_only_on_the_seed() {
        let parameters = Parameters::default();
        let once = run(&parameters, plan(20_000), 3);
        assert_eq!(once, run(&parameters, plan(20_000), 3));
        assert_eq!(once.curve.last().unwrap().1, 1.0);
        assert!(once.half_s <= once.most_s && once.most_s <= once.all_s);
        assert!(once.attempts > 2.0, "they tried during the outage: {once:?}");
    }

    #[test]
    fn slow_admission_limits_the_recovery_time() {
        let mut parameters = Parameters::default();
        parameters.set("gateway.connects_per_second", 100.0, "test").unwrap();
        let slow = run(&parameters, plan(6_000), 2);
        // Two gateways accept 200 per second in total, after the initial burst.
        assert!(slow.all_s > 5_900.0 / 200.0 * 0.95, "{} s", slow.all_s);
        assert!(slow.all_s < 6_000.0 / 200.0 * 1.5, "{} s", slow.all_s);
        assert!(slow.rejected > 0.0);
        let fast = run(&Parameters::default(), plan(6_000), 2);
        assert!(fast.all_s < slow.all_s);
    }

    #[test]
    fn recovery_time_grows_with_devices_and_shrinks_with_gateways() {
        let mut parameters = Parameters::default();
        parameters.set("device.pause_max_s", 2.0, "test").unwrap();
        parameters.set("gateway.connects_per_second", 1_000.0, "test").unwrap();
        let times: Vec<f64> =
            [5_000, 10_000, 20_000].map(|devices| run(&parameters, plan(devices), 3).all_s).to_vec();
        assert!(times.is_sorted(), "{times:?}");
        let times: Vec<f64> =
            [8, 4, 2, 1].map(|gateways| run(&parameters, plan(20_000), gateways).all_s).to_vec();
        assert!(times.is_sorted(), "{times:?}");
    }

    #[test]
    fn parties_take_as_long_as_single_devices() {
        let mut parameters = Parameters::default();
        parameters.set("gateway.connects_per_second", 5_000.0, "test").unwrap();
        // At 10,000 per second, with and without parties.
        let at_once = |devices| Plan { outage_s: 0.0, ..plan(devices) };
        let single = run(&parameters, at_once(20_000), 2).all_s / 20_000.0;
        let parties = run(&parameters, at_once(200_000), 2).all_s / 200_000.0;
        assert!((parties / single - 1.0).abs() < 0.25, "{single} {parties}");
    }

    #[test]
    fn the_limit_of_concurrent_log_ins_is_kept() {
        let parameters = Parameters::default();
        let plan = Plan { devices: 5_000, outage_s: 0.0, at_once: true, concurrent_max: Some(10) };
        let bounded = simulate(&parameters, Layout::one_machine(2, 3, 1), plan, 3);
        // Ten at a time share reads of a few milliseconds each: Little's law.
        let least_s = 5_000.0 / 10.0 * parameters.postgres.log_in_batch_ms / 1e3;
        assert!(bounded.all_s > least_s, "{} s", bounded.all_s);
    }
}
