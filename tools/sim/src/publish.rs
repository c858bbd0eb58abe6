//! The way of requests to devices: API node, the round of its dispatcher (one look-up for all waiting
//! requests, one message to each gateway), gateway, device. Delivery latency and the number of Redis commands
//! per delivery follow from the queueing of rounds and at gateways.

use std::collections::VecDeque;

use serde::Serialize;

use crate::layout::{Layout, Role};
use crate::parameter::Parameters;
use crate::queue::{Events, Seconds};
use crate::random::Random;
use crate::sample::Weighted;

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Arrivals {
    /// Independently, at this rate per second.
    Open(f64),
    /// This many in flight, each until all its deliveries have arrived.
    Closed(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Plan {
    pub(crate) arrivals: Arrivals,
    /// Measured requests; a tenth as many precede them as warm-up.
    pub(crate) requests: usize,
    /// Share of requests that wait for their commit.
    pub(crate) stored_share: f64,
    /// Other Redis commands per second: leases, and reconciliation of the directory.
    pub(crate) idle_commands: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    pub deliveries_per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub redis_commands_per_delivery: f64,
    pub requests_per_round: f64,
    /// Busy cores of the gateways, or of the shared machine.
    pub cores: f64,
}

enum Event {
    Arrive,
    /// The API node has parsed it.
    Ready(usize, Request),
    /// A group commit has finished.
    Committed,
    /// The look-up of a round reaches Redis.
    LookUp(Round),
    /// The messages of a round reach Redis.
    Send(Round),
    /// Redis has processed the messages.
    RoundOver(usize),
    /// A message reaches a gateway.
    Message(usize, Parts),
    /// A gateway has written to the devices of a request.
    Written(Request, u32),
    /// Deliveries have arrived.
    Received(Request, u32),
}

#[derive(Debug, Clone, Copy)]
struct Request {
    number: usize,
    due: Seconds,
    api: usize,
}

/// The requests in a message, with the number of devices at the gateway for each.
type Parts = Vec<(Request, u32)>;

/// The requests that waited at an API node's dispatcher before they went to the gateways.
struct Round {
    api: usize,
    requests: usize,
    messages: Vec<(usize, Parts)>,
}

/// Requests waiting for a round of their API node's dispatcher.
#[derive(Default, Clone)]
struct Dispatcher {
    waiting: VecDeque<Request>,
    is_busy: bool,
}

/// The cell's order lock: one group commits at a time.
#[derive(Default)]
struct Commits {
    waiting: VecDeque<Request>,
    /// Empty if no commit is in progress.
    group: Vec<Request>,
}

struct Simulation<'a> {
    parameters: &'a Parameters,
    layout: Layout,
    plan: Plan,
    random: Random,
    events: Events<Event>,
    begun: usize,
    /// By request number: devices that have not received it.
    missing: Vec<u32>,
    /// One per API node.
    dispatchers: Vec<Dispatcher>,
    commits: Commits,
    /// Measurements.
    latency: Weighted,
    deliveries: u64,
    commands: u64,
    rounds: u64,
    requests_in_rounds: u64,
    window: (Seconds, Seconds),
    busy_before: Seconds,
}

pub(crate) fn simulate(parameters: &Parameters, layout: Layout, plan: Plan, seed: u64) -> Published {
    let apis = layout.apis();
    let mut simulation = Simulation {
        parameters,
        plan,
        random: Random::new(seed, "publish"),
        events: Events::new(),
        begun: 0,
        missing: Vec::new(),
        dispatchers: vec![Dispatcher::default(); apis],
        commits: Commits::default(),
        latency: Weighted::new(),
        deliveries: 0,
        commands: 0,
        rounds: 0,
        requests_in_rounds: 0,
        window: (0.0, 0.0),
        busy_before: 0.0,
        layout,
    };
    simulation.run();
    simulation.result()
}

impl Simulation<'_> {
    fn warm_up(&self) -> usize {
        self.plan.requests / 10
    }

    fn run(&mut self) {
        let first = match self.plan.arrivals {
            Arrivals::Open(_) => 1,
            Arrivals::Closed(count) => count,
        };
        (0..first).for_each(|_| self.events.put(0.0, Event::Arrive));
        while let Some((now, event)) = self.events.take() {
            match event {
                Event::Arrive => self.arrive(now),
                Event::Ready(api, request) => self.ready(now, api, request),
                Event::Committed => self.committed(now),
                Event::LookUp(round) => self.look_up(now, round),
                Event::Send(round) => self.send(now, round),
                Event::RoundOver(api) => {
                    self.dispatchers[api].is_busy = false;
                    self.begin_round(now, api);
                }
                Event::Message(gateway, parts) => self.message(now, gateway, parts),
                Event::Written(request, devices) => self.written(now, request, devices),
                Event::Received(request, devices) => self.received(now, request, devices),
            }
        }
    }

    fn arrive(&mut self, now: Seconds) {
        let all = self.plan.requests + self.warm_up();
        if self.begun >= all {
            return;
        }
        let number = self.begun;
        self.begun += 1;
        if number == self.warm_up() {
            self.window.0 = now;
            self.busy_before = self.layout.busy();
            (self.commands, self.rounds, self.requests_in_rounds) = (0, 0, 0);
        }
        let devices = self.parameters.load.connected_per_request.round() as u32;
        self.missing.push(devices);
        if let Arrivals::Open(per_second) = self.plan.arrivals {
            let next = self.random.exponential(1.0 / per_second);
            self.events.put(now + next, Event::Arrive);
        }
        let api = self.random.below(self.layout.apis());
        let request = Request { number, due: now, api };
        let work = self.parameters.api.cpu_per_request_us / 1e6;
        let read = self.layout.serve(Role::Api(api), now, work);
        self.events.put(read.end, Event::Ready(api, request));
        // The trace is written asynchronously: no request waits for it, but it consumes CPU.
        let trace = self.parameters.postgres.cpu_per_request_us / 1e6;
        self.layout.serve(Role::Postgres, now, trace);
    }

    fn ready(&mut self, now: Seconds, api: usize, request: Request) {
        if self.plan.stored_share > 0.0 && self.random.unit() < self.plan.stored_share {
            self.commits.waiting.push_back(request);
            self.begin_commit(now);
        } else {
            self.dispatchers[api].waiting.push_back(request);
            self.begin_round(now, api);
        }
    }

    fn begin_commit(&mut self, now: Seconds) {
        let Commits { waiting, group } = &mut self.commits;
        if !group.is_empty() || waiting.is_empty() {
            return;
        }
        let rows_each = self.parameters.load.users_per_request;
        let most = (self.parameters.postgres.rows_per_group_max / rows_each).floor().max(1.0) as usize;
        group.extend(waiting.drain(..waiting.len().min(most)));
        let rows = group.len() as f64 * rows_each * crate::sizing::row_under_lock_s(self.parameters);
        let written = self.layout.serve(Role::Postgres, now, rows);
        self.events.put(written.end + crate::sizing::fixed_of_group_s(self.parameters), Event::Committed);
    }

    fn committed(&mut self, now: Seconds) {
        for request in std::mem::take(&mut self.commits.group) {
            self.dispatchers[request.api].waiting.push_back(request);
            self.begin_round(now, request.api);
        }
        self.begin_commit(now);
    }

    /// Takes all waiting requests: one look-up, then one message to each gateway with at least one of the
    /// devices.
    fn begin_round(&mut self, now: Seconds, api: usize) {
        let Dispatcher { waiting, is_busy } = &mut self.dispatchers[api];
        if *is_busy || waiting.is_empty() {
            return;
        }
        *is_busy = true;
        let requests: Vec<Request> = waiting.drain(..).collect();
        let round = Round { api, requests: requests.len(), messages: self.spread(&requests) };
        self.rounds += 1;
        self.requests_in_rounds += requests.len() as u64;
        self.commands += 1 + round.messages.len() as u64;
        self.events.put(now + self.layout.one_way(), Event::LookUp(round));
    }

    fn look_up(&mut self, now: Seconds, round: Round) {
        let figures = &self.parameters.redis;
        let keys = round.requests as f64 * self.parameters.load.users_per_request;
        let work = (figures.cpu_per_command_us + keys * figures.cpu_per_key_us) / 1e6;
        let located = self.layout.serve(Role::Redis, now, work).end + self.layout.one_way();
        // On a shared machine the dispatcher's own work is part of the request's CPU; elsewhere it has enough
        // cores.
        let encoded =
            if self.layout.is_shared() { located } else { located + self.parameters.api.round_ms / 1e3 };
        self.events.put(encoded + self.layout.one_way(), Event::Send(round));
    }

    fn send(&mut self, now: Seconds, round: Round) {
        let work = round.messages.len() as f64 * self.parameters.redis.cpu_per_command_us / 1e6;
        let arrives = self.layout.serve(Role::Redis, now, work).end + self.layout.one_way();
        for (gateway, parts) in round.messages {
            self.events.put(arrives, Event::Message(gateway, parts));
        }
        self.events.put(arrives, Event::RoundOver(round.api));
    }

    /// Assigns the devices of each request to gateways.
    fn spread(&mut self, requests: &[Request]) -> Vec<(usize, Parts)> {
        let gateways = self.layout.gateways();
        let mut counts = vec![0u32; gateways];
        let mut messages = vec![Parts::new(); gateways];
        let devices = self.parameters.load.connected_per_request.round() as u32;
        for request in requests {
            counts.fill(0);
            (0..devices).for_each(|_| counts[self.random.below(gateways)] += 1);
            for (gateway, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                messages[gateway].push((*request, *count));
            }
        }
        messages.into_iter().enumerate().filter(|(_, parts)| !parts.is_empty()).collect()
    }

    fn message(&mut self, now: Seconds, gateway: usize, parts: Parts) {
        for (request, devices) in parts {
            let work = f64::from(devices) * self.parameters.gateway.cpu_per_delivery_us / 1e6;
            let written = self.layout.serve(Role::Gateway(gateway), now, work);
            let arrives = written.end + self.layout.one_way();
            let event = match self.layout.is_shared() {
                true => Event::Written(request, devices),
                false => Event::Received(request, devices),
            };
            self.events.put(arrives, event);
        }
    }

    /// The load generator reads them, on a shared machine.
    fn written(&mut self, now: Seconds, request: Request, devices: u32) {
        let work = f64::from(devices) * self.parameters.device.cpu_per_delivery_us / 1e6;
        let read = self.layout.serve(Role::Client, now, work);
        self.events.put(read.end, Event::Received(request, devices));
    }

    fn received(&mut self, now: Seconds, request: Request, devices: u32) {
        if request.number >= self.warm_up() {
            self.latency.add((now - request.due) * 1e3, u64::from(devices));
            self.deliveries += u64::from(devices);
            self.window.1 = now;
        }
        self.missing[request.number] -= devices;
        if self.missing[request.number] == 0 && matches!(self.plan.arrivals, Arrivals::Closed(_)) {
            self.events.put(now, Event::Arrive);
        }
    }

    fn result(mut self) -> Published {
        let seconds = (self.window.1 - self.window.0).max(1e-9);
        let deliveries = self.deliveries.max(1) as f64;
        let commands = self.commands as f64 + self.plan.idle_commands * seconds;
        Published {
            deliveries_per_second: deliveries / seconds,
            p50_ms: self.latency.percentile(50.0),
            p99_ms: self.latency.percentile(99.0),
            max_ms: self.latency.percentile(100.0),
            redis_commands_per_delivery: commands / deliveries,
            requests_per_round: self.requests_in_rounds as f64 / self.rounds.max(1) as f64,
            cores: (self.layout.busy() - self.busy_before) / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(per_second: f64) -> Plan {
        Plan { arrivals: Arrivals::Open(per_second), requests: 2_000, stored_share: 0.0, idle_commands: 0.0 }
    }

    fn machines(parameters: &Parameters) -> Layout {
        Layout::machines(parameters, 10, 2, 1)
    }

    #[test]
    fn all_deliveries_arrive_and_results_depend_only_on_the_seed() {
        let parameters = Parameters::default();
        let once = simulate(&parameters, machines(&parameters), open(100.0), 5);
        assert_eq!(once, simulate(&parameters, machines(&parameters), open(100.0), 5));
        assert_ne!(once, simulate(&parameters, machines(&parameters), open(100.0), 6));
        assert!((once.deliveries_per_second / 15_000.0 - 1.0).abs() < 0.1, "{once:?}");
        assert!(once.p50_ms > 1.0 && once.p50_ms <= once.p99_ms && once.p99_ms <= once.max_ms);
    }

    #[test]
    fn higher_load_waits_longer_and_shares_rounds() {
        let parameters = Parameters::default();
        let (low, high) = (
            simulate(&parameters, machines(&parameters), open(100.0), 5),
            simulate(&parameters, machines(&parameters), open(10_000.0), 5),
        );
        assert!(high.p99_ms > low.p99_ms);
        assert!(high.requests_per_round > low.requests_per_round);
        assert!(high.redis_commands_per_delivery < low.redis_commands_per_delivery);
        assert!(low.redis_commands_per_delivery <= 11.0 / 150.0 + 1e-9, "{low:?}");
    }

    #[test]
    fn a_saturated_machine_is_limited_by_its_cores() {
        let parameters = Parameters::default();
        let plan =
            Plan { arrivals: Arrivals::Closed(64), requests: 2_000, stored_share: 0.0, idle_commands: 0.0 };
        let found = simulate(&parameters, Layout::one_machine(2, 10, 1), plan, 5);
        let each_us = parameters.gateway.cpu_per_delivery_us
            + parameters.device.cpu_per_delivery_us
            + (parameters.api.cpu_per_request_us + parameters.postgres.cpu_per_request_us) / 150.0;
        let bound = 2.0 * 1e6 / each_us;
        assert!(found.deliveries_per_second < bound * 1.02, "{found:?} {bound}");
        assert!(found.deliveries_per_second > bound * 0.85, "{found:?} {bound}");
    }

    #[test]
    fn stored_requests_wait_for_their_commit() {
        let parameters = Parameters::default();
        let plan = Plan { stored_share: 1.0, ..open(100.0) };
        let stored = simulate(&parameters, machines(&parameters), plan, 5);
        let live = simulate(&parameters, machines(&parameters), open(100.0), 5);
        assert!(stored.p50_ms > live.p50_ms + parameters.postgres.commit_ms);
    }
}
