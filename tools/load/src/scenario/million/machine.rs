//! What this machine allows, read from /proc and the control groups of this process. `None`: no limit known.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::{kib_field, raise_files};

#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    pub(crate) files_per_process: Option<u64>,
    /// In bytes, as the next three.
    pub(crate) memory_available: Option<u64>,
    pub(crate) disk_free: Option<u64>,
    /// `net.ipv4.tcp_mem`, the third value.
    pub(crate) tcp_memory: Option<u64>,
    /// Below `fs.file-max`.
    pub(crate) files_left: Option<u64>,
    pub(crate) epoll_watches: Option<u64>,
    pub(crate) threads: Option<u64>,
    pub(crate) mappings: Option<u64>,
    /// Of one address.
    pub(crate) ports: Option<u64>,
    /// `None` if nothing is tracked.
    pub(crate) conntrack_left: Option<u64>,
    pub(crate) somaxconn: Option<u64>,
}

impl Machine {
    /// `data`: the parent of the data folders.
    pub(crate) fn read(data: &Path) -> Self {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let available = kib_field(&memory, "MemAvailable").map(|kib| kib * 1024);
        let page = rustix::param::page_size() as u64;
        Self {
            files_per_process: raise_files(),
            memory_available: least([available, memory_left_in_group()]),
            disk_free: rustix::fs::statvfs(data).ok().map(|disk| disk.f_bavail * disk.f_frsize),
            tcp_memory: number("net/ipv4/tcp_mem", 2).map(|pages| pages.saturating_mul(page)),
            files_left: number("fs/file-max", 0)
                .zip(number("fs/file-nr", 0))
                .map(|(most, open)| most.saturating_sub(open)),
            epoll_watches: number("fs/epoll/max_user_watches", 0),
            threads: least([
                number("kernel/threads-max", 0),
                number("kernel/pid_max", 0),
                threads_in_group(),
            ]),
            mappings: number("vm/max_map_count", 0),
            ports: number("net/ipv4/ip_local_port_range", 0)
                .zip(number("net/ipv4/ip_local_port_range", 1))
                .map(|(first, last)| last.saturating_sub(first) + 1),
            // A count of 0 means that no rule uses the loaded module.
            conntrack_left: number("net/netfilter/nf_conntrack_count", 0)
                .filter(|count| *count > 0)
                .zip(number("net/netfilter/nf_conntrack_max", 0))
                .map(|(count, most)| most.saturating_sub(count)),
            somaxconn: number("net/core/somaxconn", 0),
        }
    }
}

fn least<const N: usize>(limits: [Option<u64>; N]) -> Option<u64> {
    limits.into_iter().flatten().min()
}

/// The number at this position of a file below /proc/sys.
fn number(path: &str, at: usize) -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?;
    text.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// The folders of this process's control group and those above it, for a controller of version 1, or version 2.
fn groups(controller: &str) -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut all = Vec::new();
    for line in own.lines() {
        // cgroups(7): hierarchy, controllers (none in version 2), path.
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => PathBuf::from("/sys/fs/cgroup"),
            names if names.split(',').any(|name| name == controller) => {
                Path::new("/sys/fs/cgroup").join(controller)
            }
            _ => continue,
        };
        let folder = root.join(path.trim_start_matches('/'));
        all.extend(folder.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_owned));
    }
    all
}

fn value(folder: &Path, names: [&str; 2]) -> Option<u64> {
    names.iter().find_map(|name| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok())
}

/// What the control groups of this process leave. Those without a limit say `max`, or a number above all memory.
fn memory_left_in_group() -> Option<u64> {
    let left = |folder: PathBuf| {
        let most = value(&folder, ["memory.max", "memory.limit_in_bytes"]).filter(|most| *most < 1 << 50)?;
        Some(most.saturating_sub(value(&folder, ["memory.current", "memory.usage_in_bytes"])?))
    };
    groups("memory").into_iter().filter_map(left).min()
}

fn threads_in_group() -> Option<u64> {
    let left = |folder: PathBuf| {
        let most = value(&folder, ["pids.max", "pids.max"])?;
        Some(most.saturating_sub(value(&folder, ["pids.current", "pids.current"])?))
    };
    groups("pids").into_iter().filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_read() {
        let machine = Machine::read(&std::env::temp_dir());
        assert!(machine.memory_available.unwrap() > 1 << 20);
        assert!(machine.disk_free.is_some() && machine.files_left.is_some() && machine.threads.is_some());
        assert!(machine.ports.unwrap() > 1_000);
    }
}
