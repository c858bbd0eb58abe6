//! The CPU usage of each kind of process, and the commands to Redis, between two points in time.

use crate::Error;
use crate::cell::{Cell, CellNode};
use crate::clock;
use crate::crew::Crew;
use crate::process::{Cpu, Process, machine_busy_seconds};
use crate::redis::Done;
use crate::report::Values;

pub(crate) struct Sample {
    at_ns: u64,
    gateways: Option<Cpu>,
    apis: Option<Cpu>,
    postgres: Option<Cpu>,
    redis: Option<Done>,
    clients: Option<Cpu>,
    machine_seconds: Option<f64>,
}

/// The kinds of processes, in the order of the figures.
const PROCESSES: [&str; 5] = ["gateway", "API", "PostgreSQL", "Redis", "client"];

fn cpu(nodes: &[CellNode]) -> Option<Cpu> {
    // A killed node has none.
    let cpus: Vec<Cpu> = nodes.iter().filter_map(|node| node.process().cpu()).collect();
    (!cpus.is_empty()).then(|| cpus.into_iter().sum())
}

fn between(from: Option<Cpu>, to: Option<Cpu>) -> Option<f64> {
    from.zip(to).map(|(from, to)| (to - from).total_us())
}

impl Sample {
    pub(crate) fn take(cell: &mut Cell, crew: &Crew) -> Result<Self, Error> {
        Self::take_from(cell, crew, 0)
    }

    /// Without the first `gateways`, one of which ends.
    pub(crate) fn take_from(cell: &mut Cell, crew: &Crew, gateways: usize) -> Result<Self, Error> {
        Ok(Self {
            at_ns: clock::now_ns(),
            gateways: cpu(&cell.gateways[gateways..]),
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

    /// CPU in µs of each of [`PROCESSES`].
    fn cpu_until(&self, later: &Self) -> [Option<f64>; 5] {
        [
            between(self.gateways, later.gateways),
            between(self.apis, later.apis),
            between(self.postgres, later.postgres),
            self.redis_until(later).map(|done| done.cpu.total_us()),
            between(self.clients, later.clients),
        ]
    }

    /// Pushes the cost per item; `per` ends the names.
    pub(crate) fn push_each(&self, later: &Self, per: &str, count: u64, values: &mut Values) {
        if count == 0 {
            return;
        }
        let all = self.cpu_until(later);
        if let Some(us) = all[0] {
            values.count_cpu(us);
        }
        for (process, us) in PROCESSES.iter().zip(all) {
            values.push_some(&format!("{process} CPU {per}"), "µs", us.map(|us| us / count as f64));
        }
        let commands = self.redis_until(later).map(|done| done.commands as f64 / count as f64);
        values.push_some(&format!("Redis commands {per}"), "", commands);
    }

    pub(crate) fn redis_commands_per_second(&self, later: &Self) -> Option<f64> {
        let seconds = later.at_ns.saturating_sub(self.at_ns).max(1) as f64 / 1e9;
        Some(self.redis_until(later)?.commands as f64 / seconds)
    }

    pub(crate) fn seconds_until(&self, later: &Self) -> f64 {
        later.at_ns.saturating_sub(self.at_ns).max(1) as f64 / 1e9
    }

    /// CPU of all gateways.
    pub(crate) fn gateway_cores(&self, later: &Self) -> Option<f64> {
        let [gateways, ..] = self.cpu_until(later);
        gateways.map(|us| us / 1e6 / self.seconds_until(later))
    }

    /// CPU of each kind of process while nothing happens.
    pub(crate) fn push_idle(&self, later: &Self, values: &mut Values) {
        let seconds = self.seconds_until(later);
        for (process, us) in PROCESSES.iter().zip(self.cpu_until(later)) {
            values.push_some(&format!("idle: {process} CPU"), "ms/s", us.map(|us| us / 1e3 / seconds));
        }
    }

    pub(crate) fn push_cores(&self, later: &Self, values: &mut Values) {
        let all = self.cpu_until(later);
        let seconds = later.at_ns.saturating_sub(self.at_ns).max(1) as f64 / 1e9;
        let all = all.map(|us| us.map(|us| us / 1e6 / seconds));
        for (process, cores) in PROCESSES.iter().zip(all) {
            values.push_some(&format!("{process} CPU"), "cores", cores);
        }
        let [gateways, _, _, redis, _] = all;
        let share = redis.zip(gateways).filter(|(_, gateways)| *gateways > 0.0);
        values.push_some(
            "Redis CPU to gateway CPU",
            "%",
            share.map(|(redis, gateways)| redis / gateways * 100.0),
        );
        let machine = self.machine_seconds.zip(later.machine_seconds).map(|(from, to)| (to - from) / seconds);
        let ours: f64 = all.into_iter().flatten().sum();
        let others = machine.map(|machine| (machine - ours).max(0.0));
        values.push_some("CPU of everything else on this machine", "cores", others);
    }

    pub(crate) fn redis_note(&self, later: &Self, when: &str) -> Option<String> {
        Some(format!("Redis commands {when}: {}", self.redis_until(later)?.shown()))
    }

    /// Messages from nodes to other nodes through Redis.
    pub(crate) fn bus_messages(&self, later: &Self) -> Option<u64> {
        Some(self.redis_until(later)?.of(&["publish", "spublish", "xadd"]))
    }

    /// Commands that write to Redis, including leases.
    pub(crate) fn redis_writes(&self, later: &Self) -> Option<u64> {
        Some(self.redis_until(later)?.writes())
    }
}
