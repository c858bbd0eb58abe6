//! A topic message to all devices: from the API node as one bus message to each gateway, which then writes to
//! its connections in slices, interleaved with other work.

use serde::Serialize;

use crate::layout::{Layout, Role};
use crate::parameter::Parameters;
use crate::queue::{Events, Seconds};
use crate::random::Random;
use crate::sample::Weighted;

/// Gateways are identical: beyond this number only a sample is simulated.
const GATEWAYS_MAX: usize = 64;
const CURVE_POINTS: usize = 300;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Broadcast {
    pub devices: u64,
    /// In each cell; as many as it has gateways.
    pub bus_messages: u64,
    /// Time since the request.
    pub first_ms: f64,
    pub half_ms: f64,
    pub last_ms: f64,
    /// Milliseconds since the request, and the share of devices that have received the message.
    pub curve: Vec<(f64, f64)>,
}

enum Event {
    /// The message to a gateway reaches Redis.
    Publish(usize),
    /// A shard begins a slice: its gateway, and the connections that have not received the message.
    Slice(usize, usize),
}

struct Simulation<'a> {
    parameters: &'a Parameters,
    layout: Layout,
    random: Random,
    events: Events<Event>,
    /// Connections of each shard of a gateway.
    shards: Vec<usize>,
    /// Utilization of the gateways by other work.
    utilization: f64,
    reached: Weighted,
}

/// `utilization` is that of the gateways by other work.
pub(crate) fn simulate(
    parameters: &Parameters,
    layout: Layout,
    devices: u64,
    utilization: f64,
    seed: u64,
) -> Broadcast {
    let (gateways, shards) = (layout.gateways(), layout.shards());
    let each = (devices as f64 / gateways as f64).round() as usize;
    let share = |shard| each / shards + usize::from(shard < each % shards);
    let mut simulation = Simulation {
        parameters,
        random: Random::new(seed, "broadcast"),
        events: Events::new(),
        shards: (0..shards).map(share).filter(|connections| *connections > 0).collect(),
        utilization,
        reached: Weighted::new(),
        layout,
    };
    simulation.run();
    let mut reached = simulation.reached;
    Broadcast {
        devices,
        bus_messages: gateways as u64,
        first_ms: reached.percentile(0.0),
        half_ms: reached.percentile(50.0),
        last_ms: reached.percentile(100.0),
        curve: reached.curve(CURVE_POINTS),
    }
}

impl Simulation<'_> {
    fn run(&mut self) {
        let work = self.parameters.api.cpu_per_request_us / 1e6;
        let read = self.layout.serve(Role::Api(0), 0.0, work).end;
        self.events.put(read + self.layout.one_way(), Event::Publish(0));
        while let Some((now, event)) = self.events.take() {
            match event {
                Event::Publish(gateway) => self.publish(now, gateway),
                Event::Slice(gateway, left) => self.slice(now, gateway, left),
            }
        }
    }

    fn publish(&mut self, now: Seconds, gateway: usize) {
        let work = self.parameters.redis.cpu_per_command_us / 1e6;
        let taken = self.layout.serve(Role::Redis, now, work).end;
        if gateway < GATEWAYS_MAX {
            for connections in &self.shards {
                self.events.put(taken + self.layout.one_way(), Event::Slice(gateway, *connections));
            }
        }
        if gateway + 1 < self.layout.gateways() {
            self.events.put(taken, Event::Publish(gateway + 1));
        }
    }

    /// Other work between two slices takes its share of the thread.
    fn slice(&mut self, now: Seconds, gateway: usize, left: usize) {
        let figures = &self.parameters.gateway;
        let count = left.min(figures.slice.round().max(1.0) as usize);
        let client_us =
            if self.layout.is_shared() { self.parameters.device.cpu_per_delivery_us } else { 0.0 };
        let work = count as f64 * (figures.cpu_per_broadcast_us + client_us) / 1e6;
        let other = work * self.utilization / (1.0 - self.utilization);
        let other = if other > 0.0 { self.random.exponential(other) } else { 0.0 };
        let end = self.layout.serve(Role::Gateway(gateway), now, work + other).end;
        self.reached.add((end + self.layout.one_way()) * 1e3, count as u64);
        if left > count {
            self.events.put(end, Event::Slice(gateway, left - count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(devices: u64, gateways: usize, utilization: f64) -> Broadcast {
        let parameters = Parameters::default();
        simulate(&parameters, Layout::machines(&parameters, gateways, 2, 1), devices, utilization, 1)
    }

    #[test]
    fn each_gateway_gets_a_bus_message_and_each_device_takes_time() {
        let found = run(1_000_000, 4, 0.0);
        assert_eq!(found.bus_messages, 4);
        let parameters = Parameters::default();
        let least_ms = 1e6 / 4.0 / parameters.gateway.cores * parameters.gateway.cpu_per_broadcast_us / 1e3;
        assert!((least_ms..least_ms * 1.1 + 2.0).contains(&found.last_ms), "{found:?} {least_ms}");
        assert_eq!(found.curve.last().unwrap().1, 1.0);
        assert_eq!(found, run(1_000_000, 4, 0.0));
    }

    #[test]
    fn more_devices_fewer_gateways_and_other_work_take_longer() {
        let usual = run(1_000_000, 4, 0.2).last_ms;
        assert!(run(2_000_000, 4, 0.2).last_ms > usual);
        assert!(run(1_000_000, 2, 0.2).last_ms > usual);
        assert!(run(1_000_000, 4, 0.6).last_ms > usual);
    }

    #[test]
    fn on_one_machine_all_gateways_share_its_cores() {
        let parameters = Parameters::default();
        let found = simulate(&parameters, Layout::one_machine(2, 10, 1), 180_000, 0.0, 1);
        let each_us = parameters.gateway.cpu_per_broadcast_us + parameters.device.cpu_per_delivery_us;
        let expected_ms = 180_000.0 * each_us / 2.0 / 1e3;
        assert!((found.last_ms / expected_ms - 1.0).abs() < 0.05, "{found:?} {expected_ms}");
    }
}
