//! Reads what this machine allows: limits, kernel settings, memory and clock.
//!
//! All paths are below a root: `/`, or a temporary folder in tests. Unreadable values are `None`; [`crate::capacity`] and
//! [`mod@crate::doctor`] then report nothing about them. This module decides and changes nothing.

mod cgroup;
mod clock;
mod folder;

pub use cgroup::Cgroup;
pub use clock::Clock;
pub use folder::{Filesystem, Folder};

use std::fs;
use std::path::Path;
use std::str::FromStr;

/// A machine, as one process sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    pub open_files: OpenFiles,
    pub kernel: Kernel,
    pub memory: Memory,
    pub listening: Option<Listening>,
    pub clock: Clock,
    pub cores: u64,
}

/// Limits of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenFiles {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
    /// The process, if it is not this one.
    pub pid: Option<u32>,
}

/// Settings below `/proc/sys`, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    pub release: Option<String>,
    pub file_max: Option<u64>,
    /// Open files of all processes.
    pub files_open: Option<u64>,
    pub nr_open: Option<u64>,
    pub somaxconn: Option<u64>,
    pub tcp_max_syn_backlog: Option<u64>,
    /// 0 is off.
    pub tcp_syncookies: Option<u64>,
    /// Pages: no pressure below the first, no allocation above the third.
    pub tcp_mem: Option<[u64; 3]>,
    pub ip_local_port_range: Option<(u64, u64)>,
    /// Present if the module is loaded; relevant only if connections are tracked.
    pub nf_conntrack_max: Option<u64>,
    pub nf_conntrack_count: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    /// Available to processes without swapping (proc_meminfo(5)).
    pub available_bytes: Option<u64>,
    /// The tightest cgroup of this process.
    pub cgroup: Option<Cgroup>,
}

impl Memory {
    /// Available to this process: the lower of the machine's and its cgroup's.
    pub fn left_bytes(&self) -> Option<u64> {
        let group = self.cgroup.as_ref().map(Cgroup::left_bytes);
        [self.available_bytes, group].into_iter().flatten().min()
    }
}

/// Connections dropped because of a full listen queue since the machine started, for all programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    pub overflows: u64,
    pub drops: u64,
}

impl Host {
    /// This machine, as seen by this process.
    pub fn read() -> Self {
        Self::of(Path::new("/"), None)
    }

    /// As seen by the process `pid`, or by this one.
    pub fn of(root: &Path, pid: Option<u32>) -> Self {
        let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        Self {
            open_files: OpenFiles::read(root, &process, pid),
            kernel: Kernel::read(root),
            memory: Memory::read(root, &process),
            listening: text(root, "proc/net/netstat").as_deref().and_then(listening),
            clock: Clock::read(root),
            cores: cores_of(root).map_or(cores, |count| count.min(cores)),
        }
    }
}

impl OpenFiles {
    /// proc_pid_limits(5): columns, the name first.
    fn read(root: &Path, process: &str, pid: Option<u32>) -> Self {
        let limits = text(root, &format!("proc/{process}/limits")).unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let mut columns = line.unwrap_or_default().split_ascii_whitespace();
        let mut next = || match columns.next() {
            Some("unlimited") => Some(u64::MAX),
            column => column?.parse().ok(),
        };
        Self { soft: next(), hard: next(), pid }
    }
}

impl Kernel {
    fn read(root: &Path) -> Self {
        let setting = |name: &str| number(root, &format!("proc/sys/{name}"));
        let words = |name: &str| numbers(root, &format!("proc/sys/{name}"));
        Self {
            release: text(root, "proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            file_max: setting("fs/file-max"),
            files_open: words("fs/file-nr").first().copied(),
            nr_open: setting("fs/nr_open"),
            somaxconn: setting("net/core/somaxconn"),
            tcp_max_syn_backlog: setting("net/ipv4/tcp_max_syn_backlog"),
            tcp_syncookies: setting("net/ipv4/tcp_syncookies"),
            tcp_mem: words("net/ipv4/tcp_mem").try_into().ok(),
            ip_local_port_range: match words("net/ipv4/ip_local_port_range")[..] {
                [first, last] => Some((first, last)),
                _ => None,
            },
            nf_conntrack_max: setting("net/netfilter/nf_conntrack_max"),
            nf_conntrack_count: setting("net/netfilter/nf_conntrack_count"),
        }
    }
}

impl Memory {
    fn read(root: &Path, process: &str) -> Self {
        let meminfo = text(root, "proc/meminfo").unwrap_or_default();
        let field = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
        };
        let total_bytes = field("MemTotal");
        let cgroup = Cgroup::tightest(root, process, total_bytes.unwrap_or(u64::MAX));
        Self { total_bytes, available_bytes: field("MemAvailable"), cgroup }
    }
}

/// Two lines for each group: names, then values in the same order.
fn listening(netstat: &str) -> Option<Listening> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |wanted: &str| {
        let place = names.split_ascii_whitespace().position(|name| name == wanted)?;
        values.split_ascii_whitespace().nth(place)?.parse().ok()
    };
    Some(Listening { overflows: value("ListenOverflows")?, drops: value("ListenDrops")? })
}

fn cores_of(root: &Path) -> Option<u64> {
    let stat = text(root, "proc/stat")?;
    let is_core = |line: &&str| {
        let rest = line.strip_prefix("cpu").unwrap_or_default();
        rest.starts_with(|first: char| first.is_ascii_digit())
    };
    Some(stat.lines().filter(is_core).count() as u64).filter(|count| *count > 0)
}

fn text(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

fn number<T: FromStr>(root: &Path, path: &str) -> Option<T> {
    text(root, path)?.trim().parse().ok()
}

/// The numbers at the beginning of a file.
fn numbers(root: &Path, path: &str) -> Vec<u64> {
    let text = text(root, path).unwrap_or_default();
    text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A temporary tree of files.
    pub(crate) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             96365                96365                processes \n\
                      Max open files            1024                 524288               files     \n";
        let root = tree(&[
            ("proc/self/limits", limits),
            ("proc/77/limits", &limits.replace("524288", "unlimited")),
            ("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"),
            ("proc/sys/fs/file-max", "9223372036854775807\n"),
            ("proc/sys/fs/file-nr", "1344\t0\t9223372036854775807\n"),
            ("proc/sys/fs/nr_open", "1048576\n"),
            ("proc/sys/net/core/somaxconn", "4096\n"),
            ("proc/sys/net/ipv4/tcp_max_syn_backlog", "512\n"),
            ("proc/sys/net/ipv4/tcp_syncookies", "1\n"),
            ("proc/sys/net/ipv4/tcp_mem", "92184\t122912\t184368\n"),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
            ("proc/meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n"),
            (
                "proc/net/netstat",
                "TcpExt: A ListenOverflows ListenDrops B\nTcpExt: 1 2 3 4\nIpExt: X\nIpExt: 1\n",
            ),
            ("proc/stat", "cpu  1 2\ncpu0 1 2\nintr 5\n"),
        ]);
        let host = Host::of(root.path(), None);
        let expected = Host {
            open_files: OpenFiles { soft: Some(1_024), hard: Some(524_288), pid: None },
            kernel: Kernel {
                release: Some("6.1.0-13-amd64".to_owned()),
                file_max: Some(9_223_372_036_854_775_807),
                files_open: Some(1_344),
                nr_open: Some(1_048_576),
                somaxconn: Some(4_096),
                tcp_max_syn_backlog: Some(512),
                tcp_syncookies: Some(1),
                tcp_mem: Some([92_184, 122_912, 184_368]),
                ip_local_port_range: Some((32_768, 60_999)),
                nf_conntrack_max: None,
                nf_conntrack_count: None,
            },
            memory: Memory { total_bytes: Some(2 << 20), available_bytes: Some(1 << 20), cgroup: None },
            listening: Some(Listening { overflows: 2, drops: 3 }),
            clock: Clock::default(),
            cores: 1,
        };
        assert_eq!(host, expected);
        let other = Host::of(root.path(), Some(77)).open_files;
        assert_eq!(other, OpenFiles { soft: Some(1_024), hard: Some(u64::MAX), pid: Some(77) });
    }

    #[test]
    fn missing_and_malformed_values_are_none() {
        let root = tree(&[
            ("proc/self/limits", "Max open files"),
            ("proc/sys/fs/nr_open", "many\n"),
            ("proc/sys/net/ipv4/tcp_mem", "1 2\n"),
            ("proc/net/netstat", "TcpExt: ListenOverflows\n"),
            ("proc/meminfo", "MemAvailable: x kB\n"),
        ]);
        let host = Host::of(root.path(), None);
        assert_eq!(host, Host { cores: host.cores, ..Host::default() });
        assert!(host.cores > 0);
    }

    #[test]
    fn this_machine_is_readable() {
        let host = Host::read();
        assert!(host.open_files.hard.is_some() && host.kernel.nr_open.is_some());
        assert!(host.memory.left_bytes().is_some_and(|bytes| bytes > 0));
    }
}
