//! The number of cells, nodes and cores for a number of devices, calculated from costs. Latencies and
//! durations are simulated instead.

use serde::Serialize;

use crate::parameter::Parameters;

/// More cells than this are outside the model.
const CELLS_MAX: u64 = 100_000;
const GIB: f64 = 1_073_741_824.0;

/// Load of all devices per second of the busiest minute.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Demand {
    pub deliveries: f64,
    pub requests: f64,
    pub stored_rows: f64,
    pub log_ins: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gateways {
    pub nodes: u64,
    /// Why not fewer: `connections`, `memory`, `CPU` or `a spare`.
    pub because: &'static str,
    pub connections_each: f64,
    pub memory_gib_each: f64,
    pub utilization: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Redis {
    pub shards: u64,
    pub cores: f64,
    pub commands: f64,
    pub commands_per_delivery: f64,
    /// Messages between nodes.
    pub bus_messages: f64,
    pub memory_gib: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Postgres {
    pub cores: f64,
    /// Group commits, one at a time.
    pub commits: f64,
    /// Share of time in which rows are written under the order lock; its limit is 1.
    pub order_lock: f64,
    /// Mean time a `stored` request waits for its commit.
    pub commit_wait_ms: f64,
    pub devices_gib: f64,
    pub rows_gib_per_day: f64,
}

/// One cell; all cells are identical.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    pub devices: f64,
    pub demand: Demand,
    pub gateways: Gateways,
    pub apis: u64,
    pub redis: Redis,
    pub postgres: Postgres,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sizing {
    pub devices: u64,
    pub cells: u64,
    /// Why not fewer: `devices`, `PostgreSQL`, `the order lock` or `Redis`.
    pub because: &'static str,
    pub nodes: u64,
    pub cell: Cell,
}

pub fn demand(parameters: &Parameters, devices: f64) -> Demand {
    let load = &parameters.load;
    let deliveries = devices * load.deliveries_per_device_hour * load.peak_to_busy_hour / 3_600.0;
    let requests = deliveries / load.connected_per_request;
    Demand {
        deliveries,
        requests,
        stored_rows: requests * load.stored_share * load.users_per_request,
        log_ins: devices * load.log_ins_per_device_day / 86_400.0,
    }
}

pub fn size(parameters: &Parameters, devices: u64) -> Sizing {
    let mut because = "devices";
    let mut cells = (devices as f64 / parameters.cell.devices_max).ceil().max(1.0) as u64;
    loop {
        let cell = cell(parameters, devices as f64 / cells as f64);
        match exceeded_limit(parameters, &cell) {
            Some(reason) if cells < CELLS_MAX => {
                because = reason;
                cells += (cells / 16).max(1);
            }
            _ => {
                let nodes = cells * (cell.gateways.nodes + cell.apis);
                return Sizing { devices, cells, because, nodes, cell };
            }
        }
    }
}

/// The first limit that a cell exceeds.
fn exceeded_limit(parameters: &Parameters, cell: &Cell) -> Option<&'static str> {
    let utilization = parameters.cell.utilization_max;
    match () {
        () if cell.postgres.cores > parameters.postgres.cores * utilization => Some("PostgreSQL"),
        () if cell.postgres.order_lock > utilization => Some("the order lock"),
        () if cell.redis.shards > SHARDS_MAX => Some("Redis"),
        () => None,
    }
}

/// The largest number of shards that is practical without a dedicated team.
const SHARDS_MAX: u64 = 16;

pub(crate) fn cell(parameters: &Parameters, devices: f64) -> Cell {
    let demand = demand(parameters, devices);
    let gateways = gateways(parameters, devices, &demand);
    let busy = demand.requests * parameters.api.cpu_per_request_us / 1e6;
    let apis = (busy / (parameters.api.cores * parameters.cell.utilization_max)).ceil() as u64 + 1;
    Cell {
        devices,
        demand,
        gateways,
        apis,
        redis: redis(parameters, devices, &demand, gateways.nodes, apis),
        postgres: postgres(parameters, devices, &demand),
    }
}

fn gateways(parameters: &Parameters, devices: f64, demand: &Demand) -> Gateways {
    let figures = &parameters.gateway;
    let busy_us = demand.deliveries * figures.cpu_per_delivery_us
        + demand.log_ins * figures.cpu_per_log_in_us
        + devices * figures.cpu_per_idle_second_us;
    let room = (figures.memory_gib * GIB - figures.bytes_base).max(figures.bytes_per_connection);
    let wanted = [
        ("connections", devices / figures.connections_max),
        ("memory", devices * figures.bytes_per_connection / room),
        ("CPU", busy_us / 1e6 / (figures.cores * parameters.cell.utilization_max)),
    ];
    let (because, most) =
        wanted.into_iter().fold(("a spare", 0.0), |most, one| if one.1 > most.1 { one } else { most });
    let needed = most.ceil().max(1.0);
    // One spare node, so that the others can take over the connections of a lost one.
    let nodes = needed + 1.0;
    Gateways {
        nodes: nodes as u64,
        because: if needed == 1.0 { "a spare" } else { because },
        connections_each: devices / nodes,
        memory_gib_each: (devices / nodes * figures.bytes_per_connection + figures.bytes_base) / GIB,
        utilization: busy_us / 1e6 / (nodes * figures.cores),
    }
}

/// Mean number of requests queued at an API node's dispatcher when it begins a round: those that arrived
/// during the previous one.
fn requests_per_round(parameters: &Parameters, requests: f64, apis: u64) -> f64 {
    let network_s = 2.0 * parameters.network.one_way_ms / 1e3;
    let round_s = network_s * 2.0 + parameters.api.round_ms / 1e3;
    (requests / apis.max(1) as f64 * round_s).max(1.0)
}

/// Expected number of `gateways` with at least one of this many devices.
pub(crate) fn gateways_hit(gateways: f64, devices: f64) -> f64 {
    gateways * (1.0 - (1.0 - 1.0 / gateways.max(1.0)).powf(devices))
}

/// Commands per second that do not depend on published messages.
pub(crate) fn idle_commands(parameters: &Parameters, nodes: f64, devices: f64) -> f64 {
    let figures = &parameters.redis;
    nodes * figures.commands_per_idle_node + devices * figures.commands_per_device_hour / 3_600.0
}

fn redis(parameters: &Parameters, devices: f64, demand: &Demand, gateways: u64, apis: u64) -> Redis {
    let figures = &parameters.redis;
    let each_round = requests_per_round(parameters, demand.requests, apis);
    let rounds = demand.requests / each_round;
    let bus_messages =
        rounds * gateways_hit(gateways as f64, parameters.load.connected_per_request * each_round);
    let upkeep = idle_commands(parameters, (gateways + apis) as f64, devices);
    let keys_us = demand.requests * parameters.load.users_per_request * figures.cpu_per_key_us;
    let log_ins_us = demand.log_ins * figures.cpu_per_log_in_us;
    let load = |shards: f64| {
        // A look-up is one command per shard.
        let commands = rounds * shards + bus_messages + upkeep;
        let cores = (commands * figures.cpu_per_command_us + keys_us + log_ins_us) / 1e6;
        (commands + demand.log_ins * figures.commands_per_log_in, cores)
    };
    let fits = |shards: &u64| load(*shards as f64).1 <= *shards as f64 * figures.utilization_max;
    let shards = (1..=SHARDS_MAX).find(fits).unwrap_or(SHARDS_MAX + 1);
    let (commands, cores) = load(shards as f64);
    Redis {
        shards,
        cores,
        commands,
        commands_per_delivery: if demand.deliveries > 0.0 { commands / demand.deliveries } else { 0.0 },
        bus_messages,
        // An entry remains after its device has disconnected.
        memory_gib: devices * (1.0 + parameters.load.away_per_connected) * figures.bytes_per_device / GIB,
    }
}

fn postgres(parameters: &Parameters, devices: f64, demand: &Demand) -> Postgres {
    let figures = &parameters.postgres;
    let cores = (demand.log_ins * figures.cpu_per_log_in_us
        + demand.stored_rows * figures.cpu_per_row_us
        + demand.requests * figures.cpu_per_request_us)
        / 1e6;
    let (order_lock, cycle_s) = order_lock(parameters, demand.stored_rows);
    let registered = devices * (1.0 + parameters.load.away_per_connected);
    Postgres {
        cores,
        commits: if demand.stored_rows > 0.0 { 1.0 / cycle_s } else { 0.0 },
        order_lock,
        // On average half a cycle until the next commit begins, plus that commit.
        commit_wait_ms: 1.5 * cycle_s * 1e3,
        devices_gib: registered * figures.bytes_per_device / GIB,
        rows_gib_per_day: demand.stored_rows / parameters.load.peak_to_busy_hour
            * 86_400.0
            * figures.bytes_per_row
            / GIB,
    }
}

/// Share of time spent on rows under the order lock, and the duration of one group: c = fixed + rows·c·w.
fn order_lock(parameters: &Parameters, rows_per_second: f64) -> (f64, f64) {
    let fixed_s = fixed_of_group_s(parameters);
    let busy = rows_per_second * row_under_lock_s(parameters);
    (busy, fixed_s / (1.0 - busy).max(0.01))
}

pub(crate) fn fixed_of_group_s(parameters: &Parameters) -> f64 {
    let figures = &parameters.postgres;
    (figures.commit_ms + figures.hand_over_ms + 4.0 * parameters.network.one_way_ms) / 1e3
}

/// A row costs PostgreSQL twice: when it is written under the lock, and when it is acknowledged without it.
pub(crate) fn row_under_lock_s(parameters: &Parameters) -> f64 {
    parameters.postgres.cpu_per_row_us / 2.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_devices_never_need_fewer_resources() {
        let parameters = Parameters::default();
        let mut last: Option<Sizing> = None;
        for devices in [1, 1_000, 100_000, 1_000_000, 3_000_000, 10_000_000, 100_000_000] {
            let now = size(&parameters, devices);
            if let Some(last) = last {
                assert!(now.nodes >= last.nodes && now.cells >= last.cells, "{last:?} {now:?}");
                assert!(
                    now.cells as f64 * now.cell.redis.commands
                        >= last.cells as f64 * last.cell.redis.commands
                );
            }
            last = Some(now);
        }
    }

    #[test]
    fn higher_costs_never_need_fewer_resources() {
        let usual = size(&Parameters::default(), 10_000_000);
        for key in [
            "load.deliveries_per_device_hour",
            "load.log_ins_per_device_day",
            "gateway.cpu_per_delivery_us",
            "gateway.bytes_per_connection",
            "api.cpu_per_request_us",
            "postgres.cpu_per_log_in_us",
            "postgres.cpu_per_row_us",
            "redis.cpu_per_command_us",
        ] {
            let mut parameters = Parameters::default();
            let value = parameters.all().into_iter().find(|one| one.key == key).unwrap().value;
            parameters.set(key, value * 8.0, "test").unwrap();
            let dear = size(&parameters, 10_000_000);
            assert!(dear.nodes >= usual.nodes && dear.cells >= usual.cells, "{key}");
            let cores = |sizing: &Sizing| sizing.cell.postgres.cores + sizing.cell.redis.cores;
            assert!(
                dear.cells as f64 * cores(&dear) >= 0.99 * usual.cells as f64 * cores(&usual),
                "{key}: {dear:?} {usual:?}"
            );
        }
    }

    #[test]
    fn cells_are_split_before_engines_are_overloaded() {
        let mut parameters = Parameters::default();
        parameters.set("postgres.cpu_per_log_in_us", 50_000.0, "test").unwrap();
        let sizing = size(&parameters, 5_000_000);
        assert_eq!(sizing.because, "PostgreSQL");
        assert!(sizing.cell.postgres.cores <= parameters.postgres.cores * parameters.cell.utilization_max);
        assert!(sizing.cells > 3);
    }

    #[test]
    fn a_request_reaches_at_most_all_gateways() {
        assert!((gateways_hit(10.0, 150.0) - 10.0).abs() < 1e-3);
        assert!((gateways_hit(10.0, 1.0) - 1.0).abs() < 1e-9);
        assert!(gateways_hit(1_000.0, 150.0) < 150.0);
    }
}
