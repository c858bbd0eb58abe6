//! How many devices this machine has room for, and what limits it. Pure: what [`Host`] says goes in, an
//! estimate comes out. The line at the start of a node and `noroshi doctor` say the same.

use std::fmt;

use crate::descriptors::{self, Available, Serves};
use crate::host::Host;

/// User space, an idle WebSocket: the budget that `gateway`'s counting-allocator test asserts.
const PLAIN_BYTES: u64 = 1_229; // 1.2 KiB
/// The same over TLS 1.3.
const TLS_BYTES: u64 = 5 << 10;
/// Kernel, an idle TCP socket in an epoll set, by /proc/slabinfo of Linux 6.18 (object and its share of
/// the slab): TCP 2,521 + sock_inode_cache 862 + filp 195 + dentry 195 + eventpoll_epi 128 +
/// eventpoll_pwq 64 + ep_head 16 + a security module's 24 + 16 in the table of descriptors = 4,021.
/// Buffers come on top while bytes wait in them.
const KERNEL_BYTES: u64 = 4 << 10;

/// Accepted, but not yet taken by the node: what `listen` asks for; net.core.somaxconn caps it.
pub const BACKLOG: u64 = noroshi_gateway::BACKLOG as u64;

/// What an idle device costs, kernel and user space.
pub fn device_bytes(tls: bool) -> u64 {
    KERNEL_BYTES + if tls { TLS_BYTES } else { PLAIN_BYTES }
}

/// The part of what is left of memory that idle devices may have: the rest is for messages under way,
/// bodies of requests (256 MiB at most) and the database's cache.
pub fn memory_for_devices(left_bytes: u64) -> u64 {
    left_bytes / 4 * 3
}

/// An estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    pub devices: u64,
    /// What would have to change first; none where nothing is known to limit it.
    pub limited_by: Option<Room>,
    /// What would limit it after that.
    pub then: Option<Room>,
    /// What does not limit the number, but how fast devices can come.
    pub remarks: Vec<String>,
}

/// As many devices as one resource allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    pub devices: u64,
    pub resource: Resource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// `gateway.connections_max`.
    Configuration,
    /// The hard limit of the process.
    OpenFiles {
        limit: u64,
    },
    /// `fs.file-max`, of all processes.
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

/// `connections_max`: what the configuration sets, 0 for no limit.
pub fn estimate(host: &Host, serves: Serves, tls: bool, connections_max: usize) -> Capacity {
    let mut rooms = rooms(host, serves, tls);
    if connections_max > 0 {
        rooms.push(Room { devices: connections_max as u64, resource: Resource::Configuration });
    }
    rooms.sort_by_key(|room| room.devices);
    let mut rooms = rooms.into_iter();
    let (limited_by, then) = (rooms.next(), rooms.next());
    let devices = limited_by.as_ref().map_or(u64::MAX, |room| room.devices);
    Capacity { devices, limited_by, then, remarks: remarks(host, devices) }
}

/// What each resource allows that something is known of.
fn rooms(host: &Host, serves: Serves, tls: bool) -> Vec<Room> {
    let kernel = &host.kernel;
    let open_files = host.open_files.hard.map(|limit| Room {
        devices: Available::under(limit).share(0, serves).gateway as u64,
        resource: Resource::OpenFiles { limit },
    });
    let file_max = kernel.file_max.map(|limit| {
        let left = limit.saturating_sub(kernel.files_open.unwrap_or(0));
        Room { devices: left.saturating_sub(descriptors::RESERVED), resource: Resource::FileMax { limit } }
    });
    let memory = host.memory.left_bytes().map(|left_bytes| Room {
        devices: memory_for_devices(left_bytes) / device_bytes(tls),
        resource: Resource::Memory { left_bytes },
    });
    let conntrack = tracked(host).map(|(limit, count)| Room {
        devices: limit.saturating_sub(count),
        resource: Resource::Conntrack { limit },
    });
    [open_files, file_max, memory, conntrack].into_iter().flatten().collect()
}

/// Limit and count of tracked connections. A count of 0 means that nothing is tracked: the module is
/// loaded, but no rule asks for it.
pub fn tracked(host: &Host) -> Option<(u64, u64)> {
    let count = host.kernel.nf_conntrack_count.filter(|count| *count > 0)?;
    Some((host.kernel.nf_conntrack_max?, count))
}

fn remarks(host: &Host, devices: u64) -> Vec<String> {
    let somaxconn = host.kernel.somaxconn.filter(|found| *found < devices.min(BACKLOG));
    let queue = somaxconn.map(|found| {
        format!("net.core.somaxconn {} is below the {} wanted", grouped(found), grouped(BACKLOG))
    });
    queue.into_iter().collect()
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limited_by) = &self.limited_by else {
            return f.write_str("room for devices: nothing is known of this machine's limits");
        };
        write!(f, "room for {} devices: limited by {}", grouped(self.devices), limited_by.resource)?;
        if let Some(room) = &self.then {
            write!(f, "; then by {} at {}", room.resource, grouped(room.devices))?;
        }
        self.remarks.iter().try_for_each(|remark| write!(f, "; {remark}"))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Configuration => f.write_str("gateway.connections_max"),
            Resource::OpenFiles { limit } => write!(f, "open files (hard limit {})", grouped(*limit)),
            Resource::FileMax { limit } => write!(f, "fs.file-max ({})", grouped(*limit)),
            Resource::Memory { left_bytes } => write!(f, "memory ({} left)", size(*left_bytes)),
            Resource::Conntrack { limit } => write!(f, "nf_conntrack_max ({})", grouped(*limit)),
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

/// Bytes, as a person would say it.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => {
            // One place behind the point.
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

    fn check(host: &Host, tls: bool, connections_max: usize, devices: u64, said: &str) {
        let capacity = estimate(host, Serves::DevicesAndApi, tls, connections_max);
        assert_eq!((capacity.devices, capacity.to_string().as_str()), (devices, said));
    }

    #[test]
    fn the_tightest_resource_limits() {
        let remark = "net.core.somaxconn 4,096 is below the 8,192 wanted";
        let files = "room for 15,591 devices: limited by open files (hard limit 20,000)";
        let memory = "memory (16.0 GiB left)";
        check(&host(), false, 0, 15_591, &format!("{files}; then by {memory} at 2,419,699; {remark}"));
        let many = Host { open_files: OpenFiles { hard: Some(u64::MAX), ..OpenFiles::default() }, ..host() };
        let file_max = "fs.file-max (2,466,193)";
        check(
            &many,
            false,
            0,
            2_419_699,
            &format!(
                "room for 2,419,699 devices: limited by {memory}; then by {file_max} at 2,464,337; {remark}"
            ),
        );
        check(
            &many,
            true,
            0,
            1_398_101,
            &format!(
                "room for 1,398,101 devices: limited by {memory}; then by {file_max} at 2,464,337; {remark}"
            ),
        );
        // Two thousand cannot fill a queue of four.
        let configured = "room for 2,000 devices: limited by gateway.connections_max";
        check(
            &host(),
            false,
            2_000,
            2_000,
            &format!("{configured}; then by open files (hard limit 20,000) at 15,591"),
        );
    }

    #[test]
    fn a_container_has_its_groups_memory() {
        let cgroup = Some(Cgroup { limit_bytes: 512 << 20, used_bytes: 112 << 20 });
        let contained = Host { memory: Memory { cgroup, ..host().memory }, ..host() };
        let left_bytes = 400 << 20;
        let room = estimate(&contained, Serves::DevicesAndApi, true, 0).then.expect("memory is known");
        assert_eq!(room, Room { devices: 34_133, resource: Resource::Memory { left_bytes } });
    }

    #[test]
    fn tracked_connections_count_where_they_are_tracked() {
        let mut tracking = host();
        tracking.kernel.nf_conntrack_max = Some(10_000);
        tracking.kernel.nf_conntrack_count = Some(0);
        assert_eq!(estimate(&tracking, Serves::DevicesAndApi, false, 0).devices, 15_591);
        tracking.kernel.nf_conntrack_count = Some(500);
        assert_eq!(estimate(&tracking, Serves::DevicesAndApi, false, 0).devices, 9_500);
    }

    #[test]
    fn nothing_known_is_said() {
        assert!(
            estimate(&Host::default(), Serves::DevicesAndApi, false, 0)
                .to_string()
                .contains("nothing is known")
        );
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
