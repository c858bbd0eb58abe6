//! The arithmetic before a start: how many processes the limit of open files requires, and whether memory and the
//! kernel's limits suffice. Pure: [`Machine`] is what was read, [`Plan::check`] compares.

use std::fmt::Write;

use crate::Error;
use crate::args::{Million, Phase};

use super::machine::Machine;

/// Descriptors of a gateway node that are not for devices: 512 for itself and 256 for HTTP (`node::descriptors`).
const GATEWAY_FILES: u64 = 768;
/// Of a client process: the program, epoll, timer, pipes, and connections for requests.
const CLIENT_FILES: u64 = 200;
/// After a loss, chance distributes the devices of one gateway over the others.
const GATEWAY_FULL: f64 = 0.98;
/// Connections to PostgreSQL of a gateway node: a pool of 2 and three more (`store::postgres`).
pub(super) const GATEWAY_POOL: usize = 2;
const GATEWAY_SESSIONS: usize = GATEWAY_POOL + 3;
/// Of an API node: the default pool of 16 and three more.
const API_SESSIONS: usize = 19;
/// For the operator, and those that PostgreSQL reserves.
const SPARE_SESSIONS: usize = 15;
/// Threads of a gateway node with one shard and one worker, and of a client process.
const GATEWAY_THREADS: u64 = 16;
const CLIENT_THREADS: u64 = 4;

/// Bytes of the kernel per connection over loopback, both ends: growth of /proc/slabinfo of Linux 6.18 over 300,000
/// connections was 8,517. TCP 5,037, sock_inode_cache 1,720, filp 387, dentry 390, eventpoll_epi 286, eventpoll_pwq 127,
/// a security module 142, kmalloc-192 69, bound ports and others.
const KERNEL_BYTES: u64 = 8_600;
/// Bytes per device of a gateway, a client and Redis, measured at 300,000: 580, 145 and 234. PostgreSQL's sessions
/// grew by 89; the page cache holds a part of its tables.
const GATEWAY_BYTES: u64 = 650;
const CLIENT_BYTES: u64 = 180;
const REDIS_BYTES: u64 = 240;
const POSTGRES_BYTES: u64 = 700;
/// Memory of processes without devices, proportional: 10.6 MiB for a gateway, 3.4 for a client, 3.5 for a session of
/// PostgreSQL.
const GATEWAY_BASE: u64 = 12 << 20;
const CLIENT_BASE: u64 = 4 << 20;
const API_BASE: u64 = 80 << 20;
const SESSION_BASE: u64 = 4 << 20;
const ENGINES_BASE: u64 = 400 << 20;
/// Kept free: for messages in flight and for the rest of the machine.
const MEMORY_KEPT: u64 = 1 << 30;
/// Disk for PostgreSQL: the rows with indexes, and the write-ahead log.
const DISK_BYTES: u64 = 2 << 10;
const DISK_BASE: u64 = 5 << 30;
/// The kernel's limit of mappings applies per process; a node with its threads has a few hundred.
const MAPPINGS: u64 = 4_096;
/// A socket with unread bytes is charged at least one page.
const PAGE: u64 = 4_096;

/// Processes and their sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) devices: usize,
    pub(crate) gateways: usize,
    pub(crate) clients: usize,
    pub(crate) apis: usize,
    /// Devices of the fullest gateway after the losses, and of a client.
    gateway_devices: usize,
    client_devices: usize,
    gateway_room: u64,
    client_room: u64,
    handshakes: u64,
}

/// A limit of the machine.
struct Limit {
    what: String,
    needed: u64,
    has: Option<u64>,
    advice: &'static str,
    /// The measurement works without it, but differs.
    is_soft: bool,
}

impl Plan {
    pub(crate) fn new(args: &Million, machine: &Machine) -> Result<Self, Error> {
        let files = machine.files_per_process.unwrap_or(u64::MAX);
        let gateway_room = files.saturating_sub(GATEWAY_FILES).max(1);
        let client_room = files.saturating_sub(CLIENT_FILES).max(1);
        let room = ((gateway_room as f64 * GATEWAY_FULL) as usize).max(1);
        let losses = losses(args);
        // With three, devices of a lost or draining one have a choice.
        let enough = |gateways: &usize| fullest(args.devices, *gateways, losses) <= room;
        let gateways = args.gateways.unwrap_or_else(|| (3..).find(enough).unwrap_or(3));
        let clients = args.clients.unwrap_or_else(|| {
            args.devices.div_ceil(usize::try_from(client_room).unwrap_or(usize::MAX)).max(1)
        });
        let plan = Self {
            devices: args.devices,
            gateways,
            clients,
            apis: args.apis,
            gateway_devices: fullest(args.devices, gateways, losses),
            client_devices: args.devices.div_ceil(clients),
            gateway_room,
            client_room,
            handshakes: args.handshakes.into(),
        };
        if plan.gateway_devices as u64 > gateway_room || plan.client_devices as u64 > client_room {
            return Err(Error::Usage(format!(
                "a gateway would have {} devices after the loss and the drains of others, and a client {}, but \
                 `ulimit -Hn` leaves them {gateway_room} and {client_room}: omit --gateways and --clients, increase them, or raise the limit",
                plan.gateway_devices, plan.client_devices
            )));
        }
        Ok(plan)
    }

    /// `max_connections` of a PostgreSQL that is started here.
    pub(crate) fn postgres_sessions(&self) -> usize {
        self.gateways * GATEWAY_SESSIONS + self.apis * API_SESSIONS + SPARE_SESSIONS
    }

    /// Memory by kind, in bytes.
    fn memory(&self) -> [(&'static str, u64); 7] {
        let devices = self.devices as u64;
        let (gateways, clients, apis) = (self.gateways as u64, self.clients as u64, self.apis as u64);
        [
            ("kernel: two sockets per device", devices * KERNEL_BYTES),
            ("gateway nodes", gateways * GATEWAY_BASE + devices * GATEWAY_BYTES),
            ("client processes", clients * CLIENT_BASE + devices * CLIENT_BYTES),
            ("API nodes", apis * API_BASE),
            ("PostgreSQL's sessions", self.postgres_sessions() as u64 * SESSION_BASE),
            ("PostgreSQL and Redis", ENGINES_BASE + devices * (POSTGRES_BYTES + REDIS_BYTES)),
            ("kept free", MEMORY_KEPT),
        ]
    }

    fn memory_needed(&self) -> u64 {
        self.memory().iter().map(|(_, bytes)| bytes).sum()
    }

    /// The number of devices for which `available` bytes suffice.
    fn devices_for(&self, available: u64) -> u64 {
        let fixed = self.memory_needed() - self.devices as u64 * self.bytes_per_device();
        available.saturating_sub(fixed) / self.bytes_per_device()
    }

    fn bytes_per_device(&self) -> u64 {
        KERNEL_BYTES + GATEWAY_BYTES + CLIENT_BYTES + POSTGRES_BYTES + REDIS_BYTES
    }

    fn limits(&self, machine: &Machine) -> Vec<Limit> {
        let devices = self.devices as u64;
        let processes = (self.gateways + self.clients + self.apis) as u64;
        let threads = self.gateways as u64 * GATEWAY_THREADS
            + self.clients as u64 * CLIENT_THREADS
            + self.apis as u64 * 2 * GATEWAY_THREADS
            + self.postgres_sessions() as u64;
        let hard = |what: &str, needed, has, advice| Limit {
            what: what.to_owned(),
            needed,
            has,
            advice,
            is_soft: false,
        };
        let soft =
            |what: &str, needed, has, advice| Limit { is_soft: true, ..hard(what, needed, has, advice) };
        vec![
            hard(
                "memory",
                self.memory_needed(),
                machine.memory_available,
                "use fewer --devices, or end other programs",
            ),
            hard(
                "disk space for PostgreSQL",
                DISK_BASE + devices * DISK_BYTES,
                machine.disk_free,
                "use --data",
            ),
            hard(
                "open files of the machine",
                2 * devices + 200 * processes,
                machine.files_left,
                "raise fs.file-max",
            ),
            hard(
                "watched files of a user",
                2 * devices + 64 * processes,
                machine.epoll_watches,
                "raise fs.epoll.max_user_watches",
            ),
            hard(
                "threads",
                threads,
                machine.threads,
                "raise kernel.threads-max, kernel.pid_max, or pids.max",
            ),
            hard("mappings of a process", MAPPINGS, machine.mappings, "raise vm.max_map_count"),
            hard(
                "ports of a source address",
                u64::from(crate::engine::CONNECTIONS_PER_SOURCE) * 2,
                machine.ports,
                "widen net.ipv4.ip_local_port_range",
            ),
            hard(
                "tracked connections",
                devices + 1_000,
                machine.conntrack_left,
                "raise net.netfilter.nf_conntrack_max, or remove the rules that track connections on lo",
            ),
            soft(
                "connections that a listener queues",
                self.handshakes.div_ceil(self.gateways as u64).max(128),
                machine.somaxconn,
                "raise net.core.somaxconn, or lower --handshakes",
            ),
            soft(
                "memory of all TCP sockets, if a message to all waits in each",
                devices * PAGE,
                machine.tcp_memory,
                "raise the third value of net.ipv4.tcp_mem: above it the kernel drops segments, which are repeated later",
            ),
        ]
    }

    /// One line per limit, and the arithmetic of memory.
    pub(crate) fn describe(&self, machine: &Machine) -> String {
        let mut text = format!(
            "{} devices, {} gateways of up to {} devices (room for {}), {} clients of {} (room for {}), {} API nodes\n\nmemory",
            self.devices,
            self.gateways,
            self.gateway_devices,
            self.gateway_room,
            self.clients,
            self.client_devices,
            self.client_room,
            self.apis
        );
        // Writing to a String cannot fail.
        for (what, bytes) in self.memory() {
            let _ = write!(text, "\n  {what:34} {:>10.1} MiB", bytes as f64 / 1_048_576.0);
        }
        let available = machine.memory_available.unwrap_or(0);
        let _ = write!(
            text,
            "\n  {:34} {:>10.1} MiB\n  {:34} {:>10.1} MiB: enough for {} devices\n\nlimits",
            "sum",
            self.memory_needed() as f64 / 1_048_576.0,
            "available",
            available as f64 / 1_048_576.0,
            self.devices_for(available)
        );
        for limit in self.limits(machine) {
            let has = limit.has.map_or_else(|| "no limit known".to_owned(), |has| has.to_string());
            let is_short = limit.is_short();
            let verdict = if !is_short {
                ""
            } else if limit.is_soft {
                ": may slow down"
            } else {
                ": TOO SMALL"
            };
            let _ = write!(text, "\n  {}: {} needed, {has}{verdict}", limit.what, limit.needed);
        }
        text
    }

    /// Fails if a limit is too small. Returns notes about those that only change the results.
    pub(crate) fn check(&self, machine: &Machine) -> Result<Vec<String>, Error> {
        let limits = self.limits(machine);
        let (mut wrong, mut notes) = (Vec::new(), Vec::new());
        for limit in limits.iter().filter(|limit| limit.is_short()) {
            let has = limit.has.unwrap_or_default();
            let text = format!("{}: {} needed, {has} there: {}", limit.what, limit.needed, limit.advice);
            if limit.is_soft { notes.push(text) } else { wrong.push(text) }
        }
        if wrong.is_empty() {
            return Ok(notes);
        }
        Err(Error::Usage(format!(
            "this machine cannot hold {} devices (--plan shows the arithmetic, --force starts anyway):\n  {}",
            self.devices,
            wrong.join("\n  ")
        )))
    }
}

/// The gateways that lose their devices, one after the other.
fn losses(args: &Million) -> usize {
    usize::from(args.has(Phase::Kill)) + if args.has(Phase::Drain) { args.drains } else { 0 }
}

/// The devices of a gateway after others have lost theirs: each loss distributes those of one over all others. Those that
/// restarted have fewer.
fn fullest(devices: usize, gateways: usize, losses: usize) -> usize {
    let others = gateways.saturating_sub(1);
    if others == 0 || losses == 0 {
        return devices.div_ceil(gateways.max(1));
    }
    let share = 1.0 + 1.0 / others as f64;
    (devices as f64 / gateways as f64 * share.powi(losses.min(others) as i32)).ceil() as usize
}

impl Limit {
    fn is_short(&self) -> bool {
        self.has.is_some_and(|has| has < self.needed)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        million: Million,
    }

    fn args(line: &str) -> Million {
        Cli::try_parse_from(std::iter::once("million").chain(line.split_whitespace())).unwrap().million
    }

    fn machine() -> Machine {
        Machine {
            files_per_process: Some(20_000),
            memory_available: Some(22 << 30),
            disk_free: Some(50 << 30),
            files_left: Some(2_400_000),
            epoll_watches: Some(5_000_000),
            threads: Some(32_768),
            mappings: Some(65_530),
            ports: Some(28_232),
            conntrack_left: None,
            somaxconn: Some(4_096),
            tcp_memory: Some(8 << 30),
        }
    }

    #[test]
    fn processes_follow_from_the_limit_of_open_files() {
        let plan = Plan::new(&args(""), &machine()).unwrap();
        assert_eq!((plan.gateways, plan.clients), (57, 51));
        assert!(plan.gateway_devices as u64 <= plan.gateway_room);
        assert_eq!(plan.check(&machine()).unwrap(), Vec::<String>::new());
        let unlimited = Machine { files_per_process: None, ..machine() };
        let plan = Plan::new(&args(""), &unlimited).unwrap();
        assert_eq!((plan.gateways, plan.clients), (3, 1));
        let plan = Plan::new(&args("--devices 10"), &machine()).unwrap();
        assert_eq!((plan.gateways, plan.clients), (3, 1));
    }

    #[test]
    fn too_few_processes_are_rejected() {
        for line in ["--devices 100000 --gateways 5", "--devices 100000 --clients 4"] {
            let error = Plan::new(&args(line), &machine()).unwrap_err().to_string();
            assert!(error.contains("ulimit"), "{line}: {error}");
        }
        assert!(Plan::new(&args("--devices 100 --gateways 1"), &machine()).is_ok());
        assert!(Plan::new(&args("--devices 100000 --gateways 6 --skip kill,drain"), &machine()).is_ok());
        assert_eq!((fullest(600, 3, 0), fullest(600, 3, 1), fullest(600, 3, 3)), (200, 300, 450));
    }

    #[test]
    fn every_limit_that_is_too_small_is_named_with_its_setting() {
        let small = Machine {
            memory_available: Some(8 << 30),
            files_left: Some(1_000_000),
            conntrack_left: Some(262_144),
            ..machine()
        };
        let plan = Plan::new(&args(""), &small).unwrap();
        let error = plan.check(&small).unwrap_err().to_string();
        for part in ["memory", "fs.file-max", "nf_conntrack_max", "--force"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(!error.contains("threads"), "{error}");
        let slow = Machine { tcp_memory: Some(2 << 30), ..machine() };
        assert!(plan.check(&slow).unwrap()[0].contains("tcp_mem"));
        let text = plan.describe(&small);
        assert!(text.contains("TOO SMALL") && text.contains("two sockets per device"), "{text}");
    }

    #[test]
    fn memory_suffices_for_the_stated_number_of_devices() {
        let plan = Plan::new(&args(""), &machine()).unwrap();
        let devices = plan.devices_for(plan.memory_needed());
        assert_eq!(devices, 1_000_000);
    }
}
