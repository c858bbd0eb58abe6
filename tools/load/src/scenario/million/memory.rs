//! Memory by kind at a moment: processes by resident and proportional size, and the kernel. The difference of two
//! moments, divided by the number of connections, is the cost of one.
//!
//! Proportional size (PSS) divides what several processes map, such as our executable and PostgreSQL's buffers, among
//! them: sums of it are right, those of resident memory are not.

use std::collections::BTreeMap;
use std::fs;

use crate::cell::{Cell, CellNode};
use crate::crew::Crew;
use crate::host::kib_field;
use crate::process::Process;
use crate::report::Values;

/// Caches of the kernel that are shown.
const CACHES_SHOWN: usize = 10;
const MIB: f64 = 1_048_576.0;

#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    resident: f64,
    proportional: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    gateways: Sizes,
    clients: Sizes,
    apis: Sizes,
    postgres: Sizes,
    redis: Sizes,
    /// Of /proc/meminfo, in bytes.
    slab: f64,
    kernel_stacks: f64,
    page_tables: f64,
    available: f64,
    /// Of /proc/net/sockstat: sockets, and bytes of their buffers.
    pub(super) sockets: f64,
    socket_buffers: f64,
    /// Bytes of each cache of the kernel; empty without permission.
    caches: BTreeMap<String, f64>,
}

impl Memory {
    pub(super) fn take(cell: &Cell, crew: &Crew) -> Self {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let of = |name: &str| kib_field(&memory, name).unwrap_or(0) as f64 * 1024.0;
        let (sockets, socket_buffers) = sockets();
        let nodes = |nodes: &[CellNode]| sizes(nodes.iter().map(CellNode::process));
        Self {
            gateways: nodes(&cell.gateways),
            clients: sizes(crew.processes()),
            apis: nodes(&cell.apis),
            postgres: cell.postgres_process().map_or_else(Sizes::default, |process| {
                sizes(std::iter::once(process).chain(process.children()))
            }),
            redis: sizes(cell.redis_process().into_iter()),
            slab: of("Slab"),
            kernel_stacks: of("KernelStack"),
            page_tables: of("PageTables"),
            available: of("MemAvailable"),
            sockets,
            socket_buffers,
            caches: fs::read_to_string("/proc/slabinfo").map(|text| caches(&text)).unwrap_or_default(),
        }
    }

    fn processes(&self) -> [(&'static str, Sizes); 5] {
        [
            ("gateways", self.gateways),
            ("clients", self.clients),
            ("API nodes", self.apis),
            ("PostgreSQL", self.postgres),
            ("Redis", self.redis),
        ]
    }

    /// The state without devices.
    pub(super) fn push_base(&self, gateways: usize, clients: usize, values: &mut Values) {
        values.push(
            "memory of a gateway without devices, resident",
            "MiB",
            self.gateways.resident / MIB / gateways as f64,
        );
        let each = self.gateways.proportional / MIB / gateways as f64;
        values.push("memory of a gateway without devices, proportional", "MiB", each);
        values.push(
            "memory of a client without devices, proportional",
            "MiB",
            self.clients.proportional / MIB / clients as f64,
        );
    }

    /// What `devices` have added since `before`.
    pub(super) fn push_growth(&self, before: &Self, devices: usize, values: &mut Values) {
        let count = devices as f64;
        for ((kind, now), (_, earlier)) in self.processes().into_iter().zip(before.processes()) {
            values.push(format!("memory of {kind}, resident"), "MiB", now.resident / MIB);
            values.push(format!("memory of {kind}, proportional"), "MiB", now.proportional / MIB);
            let each = (now.proportional - earlier.proportional) / count;
            values.push(format!("memory of {kind} per connection"), "bytes", each);
        }
        values.push("kernel: TCP sockets", "", self.sockets);
        values.push("kernel: buffers of TCP sockets", "MiB", self.socket_buffers / MIB);
        values.push("kernel: slab", "MiB", self.slab / MIB);
        values.push("kernel: slab per connection, both ends", "bytes", (self.slab - before.slab) / count);
        if !self.caches.is_empty() {
            let sockets: f64 = SOCKET_CACHES.iter().map(|name| self.cache_growth(before, name)).sum();
            values.push("kernel: caches of sockets per connection, both ends", "bytes", sockets / count);
        }
        values.push("kernel: stacks", "MiB", self.kernel_stacks / MIB);
        values.push("kernel: page tables", "MiB", self.page_tables / MIB);
        values.push("memory available before", "MiB", before.available / MIB);
        values.push("memory available with all connections", "MiB", self.available / MIB);
        values.push(
            "memory per connection, everything",
            "bytes",
            (before.available - self.available) / count,
        );
    }

    fn cache_growth(&self, before: &Self, name: &str) -> f64 {
        let of = |memory: &Self| memory.caches.get(name).copied().unwrap_or(0.0);
        of(self) - of(before)
    }

    /// The caches of the kernel that grew most.
    pub(super) fn caches_note(&self, before: &Self, devices: usize) -> Option<String> {
        let grown = self.caches.keys().map(|name| (name, self.cache_growth(before, name) / devices as f64));
        let mut grown: Vec<_> = grown.filter(|(_, bytes)| *bytes >= 8.0).collect();
        grown.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shown: Vec<String> =
            grown.iter().take(CACHES_SHOWN).map(|(name, bytes)| format!("{name} {bytes:.0}")).collect();
        (!shown.is_empty()).then(|| {
            format!(
                "kernel caches that grew with the connections, bytes per connection for both ends (slabs that other \
                 programs fill included): {}",
                shown.join(", ")
            )
        })
    }
}

/// Caches that only sockets, files and epoll fill.
const SOCKET_CACHES: [&str; 10] = [
    "TCP",
    "sock_inode_cache",
    "filp",
    "eventpoll_epi",
    "eventpoll_pwq",
    "ep_head",
    "lsm_file_cache",
    "tcp_bind_bucket",
    "tcp_bind2_bucket",
    "skbuff_small_head",
];

fn sizes(processes: impl Iterator<Item = Process>) -> Sizes {
    processes.fold(Sizes::default(), |sum, process| {
        let resident = process.resident_bytes().unwrap_or(0) as f64;
        // Another user's process may hide it.
        let proportional = process.proportional_bytes().map_or(resident, |bytes| bytes as f64);
        Sizes { resident: sum.resident + resident, proportional: sum.proportional + proportional }
    })
}

/// `TCP: inuse 5 orphan 0 tw 0 alloc 5 mem 2`, the last one in pages.
fn sockets() -> (f64, f64) {
    let text = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    parse_sockets(&text, rustix::param::page_size() as f64)
}

fn parse_sockets(text: &str, page: f64) -> (f64, f64) {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or_default();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let of = |name: &str| {
        let at = words.iter().position(|word| *word == name);
        at.and_then(|at| words.get(at + 1)?.parse::<f64>().ok()).unwrap_or(0.0)
    };
    (of("alloc"), of("mem") * page)
}

/// TCP sockets of this machine.
pub(super) fn socket_count() -> f64 {
    sockets().0
}

/// slabinfo(5): name, active objects, objects, their size, objects per slab, pages per slab. An object counts with its
/// share of a slab; slabs that the kernel keeps for later objects do not count.
fn caches(text: &str) -> BTreeMap<String, f64> {
    let page = rustix::param::page_size() as f64;
    let bytes = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        let (active, per_slab, pages) = (number(1)?, number(4)?, number(5)?);
        Some(((*fields.first()?).to_owned(), active * pages * page / per_slab.max(1.0)))
    };
    text.lines().filter_map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_and_caches_are_parsed() {
        let text = "sockets: used 9\nTCP: inuse 1 orphan 0 tw 3 alloc 7 mem 2\nUDP: inuse 0 mem 0\n";
        assert_eq!(parse_sockets(text, 4_096.0), (7.0, 8_192.0));
        assert_eq!(parse_sockets("", 4_096.0), (0.0, 0.0));
        let text = "slabinfo - version: 2.1\n# name <active_objs>\nTCP 10 13 2368 13 8 : tunables 0 0 0 : slabdata 1 3 0\n";
        let page = rustix::param::page_size() as f64;
        assert_eq!(caches(text), BTreeMap::from([("TCP".to_owned(), 10.0 * 8.0 / 13.0 * page)]));
    }

    #[test]
    fn memory_of_this_process_is_both_resident_and_proportional() {
        let all = sizes(std::iter::once(Process::this()));
        assert!(all.resident >= all.proportional && all.proportional > 0.0, "{all:?}");
    }
}
