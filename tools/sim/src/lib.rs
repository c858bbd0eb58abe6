//! A capacity model: what a number of devices needs in nodes, cells, Redis and PostgreSQL, and how long things take
//! there. Sizes are arithmetic on measured costs; latencies, the return of a lost cell's devices and the spread of a
//! broadcast are simulated, event by event, from a seed: equal input gives equal output, down to the byte.
//!
//! ```text
//!   TOML, report of bench homing ─► Parameters ─► sizing ─┬─► publish   ┐
//!                                                         ├─► comeback  ├─► Outcome ─► page (HTML, SVG)
//!                                                         └─► broadcast ┘
//!                  another report ─► measured::compare (prediction beside measurement)
//! ```
//!
//! No IO, clock or thread: text in, text out. Reading order: [`parameter`], `queue`, [`sizing`], `layout`, [`publish`],
//! [`comeback`], [`broadcast`], [`measured`], [`page`].

#![allow(clippy::suboptimal_flops)] // formulas are written as theory writes them

pub mod broadcast;
pub mod comeback;
mod layout;
pub mod measured;
pub mod page;
pub mod parameter;
pub mod publish;
mod queue;
mod random;
mod sample;
pub mod sizing;

use serde::Serialize;

pub use measured::{Compared, Measured};
pub use parameter::{Parameter, Parameters};

use broadcast::Broadcast;
use comeback::Comeback;
use layout::Layout;
use publish::{Arrivals, Published};
use sizing::Sizing;

/// Requests that a simulation makes: more change the third digit.
const REQUESTS: usize = 4_000;
/// Parts of the busiest minute's load, and more than it, at which latency is looked at.
const LOADS: [f64; 8] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
pub const DEVICES_MAX: u64 = 10_000_000_000;

/// Input that cannot be used, by where it came from.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("figures that cannot be used:\n  {}", .0.join("\n  "))]
    Parameters(Vec<String>),
    #[error("the report cannot be used: {0}")]
    Report(String),
}

/// What is said of one number of devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub sizing: Sizing,
    /// One cell in the busiest minute.
    pub published: Published,
    /// All devices of a cell, after it was gone.
    pub cell_lost: Comeback,
    /// Those of one gateway, which come back at the others.
    pub gateway_lost: Comeback,
    pub broadcast: Broadcast,
    /// Of one cell: load to that of the busiest minute, p50 and p99 in ms.
    pub latency: Vec<(f64, f64, f64)>,
}

/// Everything, with the figures that it was made from.
#[derive(Debug, Clone, Serialize)]
pub struct Model {
    pub seed: u64,
    pub outcomes: Vec<Outcome>,
    pub compared: Vec<Compared>,
    /// The report that it was compared with.
    pub compared_with: Option<String>,
    /// The model learned from that very report: it predicts nothing of it.
    pub is_compared_with_own: bool,
    pub parameters: Vec<Parameter>,
}

/// `devices` are connected ones, each number by itself.
pub fn model(parameters: &Parameters, devices: &[u64], seed: u64) -> Model {
    Model {
        seed,
        outcomes: devices.iter().map(|devices| outcome(parameters, *devices, seed)).collect(),
        compared: Vec::new(),
        compared_with: None,
        is_compared_with_own: false,
        parameters: parameters.all(),
    }
}

fn outcome(parameters: &Parameters, devices: u64, seed: u64) -> Outcome {
    let of_one_machine = (devices as f64).min(parameters.gateway.connections_max);
    let parameters = &parameters.on_a_machine_of(of_one_machine);
    let sizing = sizing::size(parameters, devices.clamp(1, DEVICES_MAX));
    let cell = &sizing.cell;
    let (gateways, apis) = (cell.gateways.nodes as usize, cell.apis as usize);
    let machines = |gateways| Layout::machines(parameters, gateways, apis, cell.redis.shards as usize);
    let at_load = |load: f64| {
        let arrivals = Arrivals::Open((cell.demand.requests * load).max(1e-6));
        let idle_commands = sizing::idle_commands(parameters, (gateways + apis) as f64, cell.devices);
        let stored_share = parameters.load.stored_share;
        let plan = publish::Plan { arrivals, requests: REQUESTS, stored_share, idle_commands };
        publish::simulate(parameters, machines(gateways), plan, seed)
    };
    let latency = LOADS.map(|load| {
        let found = at_load(load);
        (load, found.p50_ms, found.p99_ms)
    });
    let lost = comeback::Plan {
        devices: cell.devices.round() as u64,
        outage_s: parameters.cell.outage_s,
        at_once: false,
        under_way_max: None,
    };
    let of_one =
        comeback::Plan { devices: cell.gateways.connections_each.round() as u64, outage_s: 0.0, ..lost };
    let (utilization, in_cell) = (cell.gateways.utilization.min(0.95), cell.devices.round() as u64);
    Outcome {
        published: at_load(1.0),
        latency: latency.to_vec(),
        cell_lost: comeback::simulate(parameters, machines(gateways), lost, seed),
        gateway_lost: comeback::simulate(
            parameters,
            machines(gateways.saturating_sub(1).max(1)),
            of_one,
            seed,
        ),
        broadcast: broadcast::simulate(parameters, machines(gateways), in_cell, utilization, seed),
        sizing,
    }
}

impl Model {
    /// Puts what was measured beside what the model says of it. `learned` are the reports that `parameters` come from.
    pub fn validate(
        &mut self,
        parameters: &Parameters,
        learned: &[Measured],
        measured: &Measured,
    ) -> Result<(), Error> {
        self.compared = measured.compare(parameters, self.seed)?;
        self.compared_with = Some(measured.command.clone());
        self.is_compared_with_own = learned.contains(measured);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_whole_page() {
        let page = |seed| page::html(&model(&Parameters::default(), &[20_000], seed));
        assert_eq!(page(1), page(1));
        assert_ne!(page(1), page(2));
    }

    #[test]
    fn more_devices_take_no_less_of_anything() {
        let model = model(&Parameters::default(), &[5_000, 500_000, 1_500_000], 1);
        let ordered = |of: fn(&Outcome) -> f64| {
            let values: Vec<f64> = model.outcomes.iter().map(of).collect();
            assert!(values.is_sorted(), "{values:?}");
        };
        ordered(|one| one.sizing.nodes as f64);
        ordered(|one| one.sizing.cell.postgres.cores);
        ordered(|one| one.sizing.cell.redis.memory_gib);
        ordered(|one| one.broadcast.bus_messages as f64);
    }

    #[test]
    fn one_device_is_modelled_too() {
        let model = model(&Parameters::default(), &[1], 1);
        assert_eq!((model.outcomes[0].sizing.cells, model.outcomes[0].sizing.cell.gateways.nodes), (1, 2));
    }
}
