//! A capacity model: the nodes, cells, Redis and PostgreSQL that a number of devices needs, and the resulting
//! latencies. Sizes are calculated from measured costs; latencies, the recovery of a lost cell and the
//! progress of a broadcast are simulated as discrete events from a seed. The same input gives exactly the
//! same output.
//! ```text
//!   TOML, report of bench homing ─► Parameters ─► sizing ─┬─► publish   ┐
//!                                                         ├─► recovery  ├─► Outcome ─► page (HTML, SVG)
//!                                                         └─► broadcast ┘
//!                  another report ─► measured::compare (prediction and measurement)
//! ```
//!
//! No IO, clock or threads: text in, text out. Reading order: [`parameter`], `queue`, [`sizing`], `layout`,
//! [`publish`], [`recovery`], [`broadcast`], [`measured`], [`page`].

#![allow(clippy::suboptimal_flops)] // formulas are written as in the literature

pub mod broadcast;
mod layout;
pub mod measured;
pub mod page;
pub mod parameter;
pub mod publish;
mod queue;
mod random;
pub mod recovery;
mod sample;
pub mod sizing;

use serde::Serialize;

pub use measured::{Compared, Measured};
pub use parameter::{Parameter, Parameters};

use broadcast::Broadcast;
use layout::Layout;
use publish::{Arrivals, Published};
use recovery::Recovery;
use sizing::Sizing;

/// Requests per simulation: more of them change only the third significant digit.
const REQUESTS: usize = 4_000;
/// Simulated loads, relative to that of the busiest minute.
const LOADS: [f64; 8] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
pub const DEVICES_MAX: u64 = 10_000_000_000;

/// Unusable input, by its origin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid parameters:\n  {}", .0.join("\n  "))]
    Parameters(Vec<String>),
    #[error("unusable report: {0}")]
    Report(String),
}

/// Results for one number of devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub sizing: Sizing,
    /// One cell in the busiest minute.
    pub published: Published,
    /// Recovery of all devices of a cell after an outage.
    pub cell_lost: Recovery,
    /// Recovery of one gateway's devices, at the other gateways.
    pub gateway_lost: Recovery,
    pub broadcast: Broadcast,
    /// Of one cell: load relative to the busiest minute, p50 and p99 in ms.
    pub latency: Vec<(f64, f64, f64)>,
}

/// All results and the parameters behind them.
#[derive(Debug, Clone, Serialize)]
pub struct Model {
    pub seed: u64,
    pub outcomes: Vec<Outcome>,
    pub compared: Vec<Compared>,
    /// The report used for the comparison.
    pub compared_with: Option<String>,
    /// Whether the costs were taken from that same report, so that the comparison is no prediction.
    pub is_compared_with_own: bool,
    pub parameters: Vec<Parameter>,
}

/// Each number of connected devices is modelled separately.
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
    let parameters = &parameters.with_devices_per_machine(of_one_machine);
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
    let lost = recovery::Plan {
        devices: cell.devices.round() as u64,
        outage_s: parameters.cell.outage_s,
        at_once: false,
        concurrent_max: None,
    };
    let of_one =
        recovery::Plan { devices: cell.gateways.connections_each.round() as u64, outage_s: 0.0, ..lost };
    let (utilization, in_cell) = (cell.gateways.utilization.min(0.95), cell.devices.round() as u64);
    Outcome {
        published: at_load(1.0),
        latency: latency.to_vec(),
        cell_lost: recovery::simulate(parameters, machines(gateways), lost, seed),
        gateway_lost: recovery::simulate(
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
    /// Compares the model with a measurement. `learned` are the reports that costs in `parameters` were taken
    /// from.
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
    fn the_page_depends_only_on_the_input() {
        let page = |seed| page::html(&model(&Parameters::default(), &[20_000], seed));
        assert_eq!(page(1), page(1));
        assert_ne!(page(1), page(2));
    }

    #[test]
    fn more_devices_never_need_fewer_resources() {
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
    fn a_single_device_can_be_modelled() {
        let model = model(&Parameters::default(), &[1], 1);
        assert_eq!((model.outcomes[0].sizing.cells, model.outcomes[0].sizing.cell.gateways.nodes), (1, 2));
    }
}
