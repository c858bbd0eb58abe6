//! All devices of a cell, or of a gateway, lost their connection and come back: attempts while nobody answers, pauses that
//! grow, admission at each gateway, log-ins that share a read of PostgreSQL, and the directory's script in Redis.
//!
//! Above `PARTIES_MAX` devices several act as one, so that a simulation of a hundred million takes seconds; what is
//! queued is as much, only in larger pieces.

use std::collections::VecDeque;

use serde::Serialize;

use crate::layout::{Layout, Role};
use crate::parameter::Parameters;
use crate::queue::{Events, Seconds};
use crate::random::Random;
use crate::sample::Weighted;

const PARTIES_MAX: usize = 20_000;
/// What the bucket of admission holds (gateway::listener).
const BURST_S: Seconds = 0.1;
/// A gateway tells who is over its rate to come back after a moment like this.
const TOLD_S: f64 = 1.0;
const CURVE_POINTS: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) devices: u64,
    /// Nobody answers before.
    pub(crate) outage_s: Seconds,
    /// All try at the same moment at first, or within their first pause.
    pub(crate) at_once: bool,
    /// Devices that are on their way in at a time; others of those that came wait for one to be in.
    pub(crate) under_way_max: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comeback {
    pub devices: u64,
    /// From the moment somebody answers again.
    pub half_s: f64,
    pub most_s: f64,
    pub all_s: f64,
    pub log_ins_per_second: f64,
    /// Attempts a device needed, on average, those during the outage too.
    pub attempts: f64,
    /// Attempts that a gateway told to come back.
    pub told: f64,
    /// Seconds since the loss, and the share of devices that is back.
    pub curve: Vec<(f64, f64)>,
}

enum Event {
    Attempt(u32),
    /// The gateway has verified the token.
    Verified(usize, u32),
    /// A read of PostgreSQL was answered.
    Read(usize, Vec<u32>),
    /// They are in.
    In(Vec<u32>),
}

struct Gateway {
    /// When the bucket of admission will be full again.
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
    /// Devices that one party stands for.
    weight: f64,
    failures: Vec<u32>,
    under_way: usize,
    held: VecDeque<u32>,
    attempts: u64,
    told: u64,
    back: Weighted,
}

pub(crate) fn simulate(parameters: &Parameters, layout: Layout, plan: Plan, seed: u64) -> Comeback {
    let parties = (plan.devices.max(1) as usize).min(PARTIES_MAX);
    let gateways = (0..layout.gateways())
        .map(|_| Gateway { full_at: 0.0, waiting: VecDeque::new(), reads: 0 })
        .collect();
    let mut simulation = Simulation {
        parameters,
        random: Random::new(seed, "comeback"),
        events: Events::new(),
        gateways,
        weight: plan.devices.max(1) as f64 / parties as f64,
        failures: vec![0; parties],
        under_way: 0,
        held: VecDeque::new(),
        attempts: 0,
        told: 0,
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
            self.plan.under_way_max.is_none_or(|most| (self.under_way as f64 * self.weight) < most as f64);
        if !room {
            return self.held.push_back(party);
        }
        self.attempts += 1;
        let number = self.random.below(self.gateways.len());
        // A token bucket, by the moment at which it would be full.
        let cost = self.weight / self.parameters.gateway.connects_per_second;
        let gateway = &mut self.gateways[number];
        if gateway.full_at - now + cost > BURST_S.max(cost) {
            self.told += 1;
            let told = TOLD_S * (1.0 + self.random.unit() * 0.5);
            return self.events.put(now + told, Event::Attempt(party));
        }
        gateway.full_at = gateway.full_at.max(now) + cost;
        self.under_way += 1;
        let work = self.weight * self.parameters.gateway.cpu_per_log_in_us / 1e6;
        let verified = self.layout.serve(Role::Gateway(number), now + self.layout.one_way(), work);
        self.layout.serve(Role::Client, now, self.weight * self.parameters.device.cpu_per_log_in_us / 1e6);
        self.events.put(verified.end, Event::Verified(number, party));
    }

    /// Full jitter on the upper part of a pause that doubles.
    fn pause(&mut self, party: u32) -> Seconds {
        let figures = &self.parameters.device;
        let failures = &mut self.failures[party as usize];
        let whole =
            (figures.first_pause_s * 2.0_f64.powi((*failures).min(30) as i32)).min(figures.pause_max_s);
        *failures += 1;
        whole * (1.0 - figures.jitter * self.random.unit())
    }

    /// Log-ins that wait at a gateway share a read of PostgreSQL.
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
        // A party of more devices than fit into one read takes as many reads.
        let reads = (devices / figures.log_in_batch_max).max(1.0);
        let waits = figures.log_in_batch_ms / 1e3 * reads;
        self.events.put(read.end + waits + one_way, Event::Read(number, parties));
    }

    /// The directory takes them with one script.
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
            self.under_way -= 1;
            if let Some(party) = self.held.pop_front() {
                self.events.put(now, Event::Attempt(party));
            }
        }
    }

    fn result(mut self) -> Comeback {
        let parties = self.failures.len() as f64;
        let outage = self.plan.outage_s;
        let mut at = |percent| (self.back.percentile(percent) - outage).max(0.0);
        let (half_s, most_s, all_s) = (at(50.0), at(99.0), at(100.0));
        let mut curve = vec![(0.0, 0.0)];
        if outage > 0.0 {
            curve.push((outage, 0.0));
        }
        curve.extend(self.back.curve(CURVE_POINTS));
        Comeback {
            devices: self.plan.devices,
            half_s,
            most_s,
            all_s,
            log_ins_per_second: self.plan.devices as f64 / all_s.max(1e-9),
            attempts: self.attempts as f64 / parties,
            told: self.told as f64 * self.weight,
            curve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(devices: u64) -> Plan {
        Plan { devices, outage_s: 10.0, at_once: false, under_way_max: None }
    }

    fn run(parameters: &Parameters, plan: Plan, gateways: usize) -> Comeback {
        simulate(parameters, Layout::machines(parameters, gateways, 1, 1), plan, 3)
    }

    #[test]
    fn everybody_is_back_and_a_seed_decides_all() {
        let parameters = Parameters::default();
        let once = run(&parameters, plan(20_000), 3);
        assert_eq!(once, run(&parameters, plan(20_000), 3));
        assert_eq!(once.curve.last().unwrap().1, 1.0);
        assert!(once.half_s <= once.most_s && once.most_s <= once.all_s);
        assert!(once.attempts > 2.0, "they tried during the outage: {once:?}");
    }

    #[test]
    fn a_slower_admission_takes_as_long_as_it_has_to() {
        let mut parameters = Parameters::default();
        parameters.set("gateway.connects_per_second", 100.0, "test").unwrap();
        let slow = run(&parameters, plan(6_000), 2);
        // Two gateways let 200 in each second, after the first burst.
        assert!(slow.all_s > 5_900.0 / 200.0 * 0.95, "{} s", slow.all_s);
        assert!(slow.all_s < 6_000.0 / 200.0 * 1.5, "{} s", slow.all_s);
        assert!(slow.told > 0.0);
        let fast = run(&Parameters::default(), plan(6_000), 2);
        assert!(fast.all_s < slow.all_s);
    }

    #[test]
    fn more_devices_take_no_less_and_more_gateways_no_more() {
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
    fn parties_of_several_devices_take_as_long_as_single_ones() {
        let mut parameters = Parameters::default();
        parameters.set("gateway.connects_per_second", 5_000.0, "test").unwrap();
        // At 10,000 a second, with and without parties.
        let at_once = |devices| Plan { outage_s: 0.0, ..plan(devices) };
        let single = run(&parameters, at_once(20_000), 2).all_s / 20_000.0;
        let parties = run(&parameters, at_once(200_000), 2).all_s / 200_000.0;
        assert!((parties / single - 1.0).abs() < 0.25, "{single} {parties}");
    }

    #[test]
    fn a_bound_on_those_under_way_is_kept() {
        let parameters = Parameters::default();
        let plan = Plan { devices: 5_000, outage_s: 0.0, at_once: true, under_way_max: Some(10) };
        let bounded = simulate(&parameters, Layout::one_machine(2, 3, 1), plan, 3);
        // Ten at a time share reads of some milliseconds each: Little's law.
        let least_s = 5_000.0 / 10.0 * parameters.postgres.log_in_batch_ms / 1e3;
        assert!(bounded.all_s > least_s, "{} s", bounded.all_s);
    }
}
