//! One topic message to all devices: API node, one bus message to each gateway, and there a slice of connections at a
//! time, between the slices of other work.

use serde::Serialize;

use crate::layout::{Layout, Role};
use crate::parameter::Parameters;
use crate::queue::Seconds;
use crate::random::Random;
use crate::sample::Weighted;

/// Gateways are alike: of more than these it is enough to look at some.
const GATEWAYS_MAX: usize = 64;
const CURVE_POINTS: usize = 300;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Broadcast {
    pub devices: u64,
    /// In each cell, as many as it has gateways.
    pub bus_messages: u64,
    /// After the request.
    pub first_ms: f64,
    pub half_ms: f64,
    pub last_ms: f64,
    /// Milliseconds since the request, and the share of devices that has it.
    pub curve: Vec<(f64, f64)>,
}

/// `utilization` is what gateways are busy with besides.
pub(crate) fn simulate(
    parameters: &Parameters,
    mut layout: Layout,
    devices: u64,
    utilization: f64,
    seed: u64,
) -> Broadcast {
    let gateways = layout.gateways();
    let mut random = Random::new(seed, "broadcast");
    let mut reached = Weighted::new();
    let read = layout.serve(Role::Api(0), 0.0, parameters.api.cpu_per_request_us / 1e6).end;
    let mut sent: Seconds = read + layout.one_way();
    let shards = if layout.is_shared() { 1 } else { parameters.gateway.cores.round().max(1.0) as usize };
    let each = devices as f64 / gateways as f64;
    for gateway in 0..gateways {
        sent = layout.serve(Role::Redis, sent, parameters.redis.cpu_per_command_us / 1e6).end;
        if gateway >= GATEWAYS_MAX {
            continue;
        }
        let arrived = sent + layout.one_way();
        for shard in 0..shards {
            let share = share_of(each, shards, shard);
            slices(
                parameters,
                &mut layout,
                &mut random,
                (gateway, arrived, share),
                utilization,
                &mut reached,
            );
        }
    }
    Broadcast {
        devices,
        bus_messages: gateways as u64,
        first_ms: reached.percentile(0.0),
        half_ms: reached.percentile(50.0),
        last_ms: reached.percentile(100.0),
        curve: reached.curve(CURVE_POINTS),
    }
}

fn share_of(devices: f64, shards: usize, shard: usize) -> usize {
    let devices = devices.round() as usize;
    devices / shards + usize::from(shard < devices % shards)
}

/// One shard, a thread, writes to its connections.
fn slices(
    parameters: &Parameters,
    layout: &mut Layout,
    random: &mut Random,
    (gateway, arrived, devices): (usize, Seconds, usize),
    utilization: f64,
    reached: &mut Weighted,
) {
    let slice = parameters.gateway.slice.round().max(1.0) as usize;
    let each_us = parameters.gateway.cpu_per_broadcast_us
        + if layout.is_shared() { parameters.device.cpu_per_delivery_us } else { 0.0 };
    let (mut now, mut left) = (arrived, devices);
    while left > 0 {
        let count = left.min(slice);
        left -= count;
        let work = count as f64 * each_us / 1e6;
        now = match layout.is_shared() {
            // All gateways take turns at the cores.
            true => layout.serve(Role::Gateway(gateway), arrived, work).end,
            false => {
                // Other work between two slices takes its part of the thread.
                let other = work * utilization / (1.0 - utilization);
                now + work + if other > 0.0 { random.exponential(other) } else { 0.0 }
            }
        };
        reached.add((now + layout.one_way()) * 1e3, count as u64);
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
    fn a_bus_message_for_each_gateway_and_time_for_each_device() {
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
