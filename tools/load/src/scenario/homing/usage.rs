//! The CPU usage of each kind of process, and the commands to Redis, between two points in time.

use crate::Error;
use crate::cell::{Cell, CellNode};
use crate::clock;
use crate::crew::Crew;
use crate::process::{Cpu, Process, machine_busy_seconds};
use crate::redis::Done;
use crate::report::Values;

pub(super) struct Sample {
    at_ns: u64,
    gateways: Option<Cpu>,
    apis: Option<Cpu>,
    postgres: Option<Cpu>,
    redis: Option<Done>,
    clients: Option<Cpu>,
    machine_seconds: Option<f64>,
}

/// The names of the cost figures per item.
pub(super) struct Names {
    gateways: &'static str,
    apis: &'static str,
    postgres: &'static str,
    redis: &'static str,
    clients: &'static str,
    commands: &'static str,
}

pub(super) const PER_LOG_IN: Names = Names {
    gateways: "gateway CPU per log-in",
    apis: "API CPU per log-in",
    postgres: "PostgreSQL CPU per log-in",
    redis: "Redis CPU per log-in",
    clients: "client CPU per log-in",
    commands: "Redis commands per log-in",
};
pub(super) const PER_DELIVERY: Names = Names {
    gateways: "gateway CPU per delivery",
    apis: "API CPU per delivery",
    postgres: "PostgreSQL CPU per delivery",
    redis: "Redis CPU per delivery",
    clients: "client CPU per delivery",
    commands: "Redis commands per delivery",
};

fn cpu(nodes: &[CellNode]) -> Option<Cpu> {
    // A killed node has none.
    let cpus: Vec<Cpu> = nodes.iter().filter_map(|node| node.process().cpu()).collect();
    (!cpus.is_empty()).then(|| cpus.into_iter().sum())
}

fn between(from: Option<Cpu>, to: Option<Cpu>) -> Option<f64> {
    from.zip(to).map(|(from, to)| (to - from).total_us())
}

impl Sample {
    pub(super) fn take(cell: &mut Cell, crew: &Crew) -> Result<Self, Error> {
        Ok(Self {
            at_ns: clock::now_ns(),
            gateways: cpu(&cell.gateways),
            apis: cpu(&cell.apis),
            postgres: cell.postgres_cpu(),
            redis: cell.redis.as_mut().map(|redis| redis.done()).transpose()?,
            clients: crew.cpu().zip(Process::this().cpu()).map(|(crew, this)| crew + this),
            machine_seconds: machine_busy_seconds(),
        })
    }

    fn redis_until(&self, later: &Self) -> Option<Done> {
        self.redis.as_ref().zip(later.redis.as_ref()).map(|(from, to)| from.until(to))
    }

    /// CPU in µs of gateways, API nodes, PostgreSQL, Redis and clients.
    fn cpu_until(&self, later: &Self) -> [Option<f64>; 5] {
        [
            between(self.gateways, later.gateways),
            between(self.apis, later.apis),
            between(self.postgres, later.postgres),
            self.redis_until(later).map(|done| done.cpu.total_us()),
            between(self.clients, later.clients),
        ]
    }

    /// Pushes the cost per item.
    pub(super) fn push_each(&self, later: &Self, names: &Names, count: u64, values: &mut Values) {
        if count == 0 {
            return;
        }
        let [gateways, apis, postgres, redis, clients] = self.cpu_until(later);
        if let Some(us) = gateways {
            values.count_cpu(us);
        }
        let each = |us: Option<f64>| us.map(|us| us / count as f64);
        values.push_some(names.gateways, "µs", each(gateways));
        values.push_some(names.apis, "µs", each(apis));
        values.push_some(names.postgres, "µs", each(postgres));
        values.push_some(names.redis, "µs", each(redis));
        values.push_some(names.clients, "µs", each(clients));
        let commands = self.redis_until(later).map(|done| done.commands as f64 / count as f64);
        values.push_some(names.commands, "", commands);
    }

    pub(super) fn redis_commands_per_second(&self, later: &Self) -> Option<f64> {
        let seconds = later.at_ns.saturating_sub(self.at_ns).max(1) as f64 / 1e9;
        Some(self.redis_until(later)?.commands as f64 / seconds)
    }

    pub(super) fn push_cores(&self, later: &Self, values: &mut Values) {
        let all = self.cpu_until(later);
        let seconds = later.at_ns.saturating_sub(self.at_ns).max(1) as f64 / 1e9;
        let [gateways, apis, postgres, redis, clients] = all.map(|us| us.map(|us| us / 1e6 / seconds));
        values.push_some("gateway CPU", "cores", gateways);
        values.push_some("API CPU", "cores", apis);
        values.push_some("PostgreSQL CPU", "cores", postgres);
        values.push_some("Redis CPU", "cores", redis);
        values.push_some("client CPU", "cores", clients);
        let share = redis.zip(gateways).filter(|(_, gateways)| *gateways > 0.0);
        values.push_some(
            "Redis CPU to gateway CPU",
            "%",
            share.map(|(redis, gateways)| redis / gateways * 100.0),
        );
        let machine = self.machine_seconds.zip(later.machine_seconds).map(|(from, to)| (to - from) / seconds);
        let ours: f64 = [gateways, apis, postgres, redis, clients].into_iter().flatten().sum();
        let others = machine.map(|machine| (machine - ours).max(0.0));
        values.push_some("CPU of everything else on this machine", "cores", others);
    }

    pub(super) fn redis_note(&self, later: &Self, when: &str) -> Option<String> {
        Some(format!("Redis commands {when}: {}", self.redis_until(later)?.shown()))
    }

    /// Messages from nodes to other nodes through Redis.
    pub(super) fn bus_messages(&self, later: &Self) -> Option<u64> {
        Some(self.redis_until(later)?.of(&["publish", "spublish", "xadd"]))
    }

    /// Commands that write to Redis, including leases.
    pub(super) fn redis_writes(&self, later: &Self) -> Option<u64> {
        Some(self.redis_until(later)?.writes())
    }
}
