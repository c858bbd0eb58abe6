//! Estimates how many device connections this machine can hold, and what limits them. Pure: computes it from a [`Host`]. Used by
//! the first log line of a node and by `noroshi doctor`.

use std::fmt;

use crate::descriptors::{self, Available, Serves};
use crate::host::Host;

/// User space, per idle WebSocket: the budget that the gateway's counting allocator test asserts.
const PLAIN_BYTES: u64 = 1_229; // 1.2 KiB
/// The same over TLS 1.3.
const TLS_BYTES: u64 = 5 << 10;
/// Kernel, per idle TCP socket in an epoll set, from /proc/slabinfo of Linux 6.18 (object and its share of the slab): TCP 2,521 + sock_inode_cache 862 + filp 195 + dentry 195 + eventpoll_epi 128 +
/// eventpoll_pwq 64 + ep_head 16 + a security module's 24 + 16 in the table of descriptors = 4,021.
/// Plus buffers while they contain bytes.
const KERNEL_BYTES: u64 = 4 << 10;

/// The backlog passed to `listen`: connections that the node has not accepted yet. net.core.somaxconn limits it.
pub const BACKLOG: u64 = noroshi_gateway::BACKLOG as u64;

/// Memory of an idle device connection, in kernel and user space.
pub fn device_bytes(tls: bool) -> u64 {
    KERNEL_BYTES + if tls { TLS_BYTES } else { PLAIN_BYTES }
}

/// The share of available memory for idle devices. The rest is for messages in transit, request bodies (at most 256 MiB) and the
/// database cache.
pub fn memory_for_devices(left_bytes: u64) -> u64 {
    left_bytes / 4 * 3
}

/// An estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    pub devices: u64,
    /// The tightest limit. None if no limit is known.
    pub limited_by: Option<Limit>,
    /// The next limit.
    pub then: Option<Limit>,
    /// Settings that limit not the number of connections, but how fast they can arrive.
    pub notes: Vec<String>,
}

/// The number of devices that one resource allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub devices: u64,
    pub resource: Resource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// `gateway.connections_max`.
    Configuration,
    /// The process's hard limit.
    OpenFiles {
        limit: u64,
    },
    /// `fs.file-max`, for all processes.
    FileMax {
        limit: u64,
    },
    Memory {
        left_bytes: u64,
    },
    /// `net.netfilter.nf_conntrack_max`.
    Conntrack {
        limit: u64,
    },
}

/// `connections_max`: the configured limit; 0: none.
pub fn estimate(host: &Host, serves: Serves, tls: bool, connections_max: usize) -> Capacity {
    let mut limits = limits(host, serves, tls);
    if connections_max > 0 {
        limits.push(Limit { devices: connections_max as u64, resource: Resource::Configuration });
    }
    limits.sort_by_key(|limit| limit.devices);
    let mut limits = limits.into_iter();
    let (limited_by, then) = (limits.next(), limits.next());
    let devices = limited_by.as_ref().map_or(u64::MAX, |limit| limit.devices);
    Capacity { devices, limited_by, then, notes: notes(host, devices) }
}

/// The limits of all known resources.
fn limits(host: &Host, serves: Serves, tls: bool) -> Vec<Limit> {
    let kernel = &host.kernel;
    let open_files = host.open_files.hard.map(|limit| Limit {
        devices: Available::under(limit).share(0, serves).gateway as u64,
        resource: Resource::OpenFiles { limit },
    });
    let file_max = kernel.file_max.map(|limit| {
        let left = limit.saturating_sub(kernel.files_open.unwrap_or(0));
        Limit { devices: left.saturating_sub(descriptors::RESERVED), resource: Resource::FileMax { limit } }
    });
    let memory = host.memory.left_bytes().map(|left_bytes| Limit {
        devices: memory_for_devices(left_bytes) / device_bytes(tls),
        resource: Resource::Memory { left_bytes },
    });
    let conntrack = tracked(host).map(|(limit, count)| Limit {
        devices: limit.saturating_sub(count),
        resource: Resource::Conntrack { limit },
    });
    [open_files, file_max, memory, conntrack].into_iter().flatten().collect()
}

/// Limit and count of tracked connections. A count of 0 means that no rule uses the loaded module, so nothing is tracked.
pub fn tracked(host: &Host) -> Option<(u64, u64)> {
    let count = host.kernel.nf_conntrack_count.filter(|count| *count > 0)?;
    Some((host.kernel.nf_conntrack_max?, count))
}

fn notes(host: &Host, devices: u64) -> Vec<String> {
    let somaxconn = host.kernel.somaxconn.filter(|found| *found < devices.min(BACKLOG));
    let queue = somaxconn
        .map(|found| format!("net.core.somaxconn is {}, recommended {}", grouped(found), grouped(BACKLOG)));
    queue.into_iter().collect()
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limited_by) = &self.limited_by else {
            return f.write_str("capacity: unknown (cannot read this machine's limits)");
        };
        write!(f, "capacity: {} connections (limited by {})", grouped(self.devices), limited_by.resource)?;
        if let Some(next) = &self.then {
            write!(f, "; next limit: {} ({})", grouped(next.devices), next.resource)?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Configuration => f.write_str("gateway.connections_max"),
            Resource::OpenFiles { limit } => write!(f, "open files: {}", grouped(*limit)),
            Resource::FileMax { limit } => write!(f, "fs.file-max: {}", grouped(*limit)),
            Resource::Memory { left_bytes } => write!(f, "memory: {} available", size(*left_bytes)),
            Resource::Conntrack { limit } => write!(f, "nf_conntrack_max: {}", grouped(*limit)),
        }
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in a readable unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => {
            // One decimal place.
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Cgroup, Kernel, Memory, OpenFiles};

    fn host() -> Host {
        Host {
            open_files: OpenFiles { hard: Some(20_000), ..OpenFiles::default() },
            kernel: Kernel {
                file_max: Some(2_466_193),
                files_open: Some(1_344),
                somaxconn: Some(4_096),
                ..Kernel::default()
            },
            memory: Memory { available_bytes: Some(16 << 30), ..Memory::default() },
            cores: 2,
            ..Host::default()
        }
    }

    fn check(host: &Host, tls: bool, connections_max: usize, devices: u64, text: &str) {
        let capacity = estimate(host, Serves::DevicesAndApi, tls, connections_max);
        assert_eq!((capacity.devices, capacity.to_string().as_str()), (devices, text));
    }

    #[test]
    fn the_tightest_resource_is_the_limit() {
        let note = "net.core.somaxconn is 4,096, recommended 8,192";
        let files = "capacity: 15,591 connections (limited by open files: 20,000)";
        let memory = "memory: 16.0 GiB available";
        check(&host(), false, 0, 15_591, &format!("{files}; next limit: 2,419,699 ({memory}); {note}"));
        let many = Host { open_files: OpenFiles { hard: Some(u64::MAX), ..OpenFiles::default() }, ..host() };
        let file_max = "next limit: 2,464,337 (fs.file-max: 2,466,193)";
        check(
            &many,
            false,
            0,
            2_419_699,
            &format!("capacity: 2,419,699 connections (limited by {memory}); {file_max}; {note}"),
        );
        check(
            &many,
            true,
            0,
            1_398_101,
            &format!("capacity: 1,398,101 connections (limited by {memory}); {file_max}; {note}"),
        );
        // 2,000 connections cannot fill a backlog of 4,096.
        let configured = "capacity: 2,000 connections (limited by gateway.connections_max)";
        check(
            &host(),
            false,
            2_000,
            2_000,
            &format!("{configured}; next limit: 15,591 (open files: 20,000)"),
        );
    }

    #[test]
    fn a_container_is_limited_by_its_cgroup() {
        let cgroup = Some(Cgroup { limit_bytes: 512 << 20, used_bytes: 112 << 20 });
        let contained = Host { memory: Memory { cgroup, ..host().memory }, ..host() };
        let left_bytes = 400 << 20;
        let next = estimate(&contained, Serves::DevicesAndApi, true, 0).then.expect("memory is known");
        assert_eq!(next, Limit { devices: 34_133, resource: Resource::Memory { left_bytes } });
    }

    #[test]
    fn conntrack_limits_only_if_connections_are_tracked() {
        let mut tracking = host();
        tracking.kernel.nf_conntrack_max = Some(10_000);
        tracking.kernel.nf_conntrack_count = Some(0);
        assert_eq!(estimate(&tracking, Serves::DevicesAndApi, false, 0).devices, 15_591);
        tracking.kernel.nf_conntrack_count = Some(500);
        assert_eq!(estimate(&tracking, Serves::DevicesAndApi, false, 0).devices, 9_500);
    }

    #[test]
    fn an_unknown_capacity_is_reported() {
        assert!(estimate(&Host::default(), Serves::DevicesAndApi, false, 0).to_string().contains("unknown"));
        assert_eq!(estimate(&Host::default(), Serves::DevicesAndApi, false, 7).devices, 7);
    }

    #[test]
    fn numbers_are_readable() {
        let check = |number, expected: &str| assert_eq!(grouped(number), expected);
        check(0, "0");
        check(999, "999");
        check(1_000, "1,000");
        check(12_345_678, "12,345,678");
        let check = |bytes, expected: &str| assert_eq!(size(bytes), expected);
        check(5, "5 bytes");
        check(1_536, "1.5 KiB");
        check(23 << 30, "23.0 GiB");
        check(u64::MAX, "17179869183.9 GiB");
    }
}
