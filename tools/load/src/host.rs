//! The machine of the measurement, and the number of connections that a process may hold.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::Error;

/// Open files of a process apart from its connections: the program, logs, epoll, HTTP.
const FILES_RESERVED: u64 = 200;

/// Files that a gateway-only node reserves for itself and HTTP.
const NODE_FILES_RESERVED: u64 = 768;

/// Printed with every result, since figures depend on the machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Host {
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    /// `/proc/sys/kernel/osrelease`
    pub(crate) kernel: String,
    pub(crate) cpu: String,
}

impl Host {
    pub(crate) fn read() -> Self {
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (cpus, memory) = (file("/proc/cpuinfo"), file("/proc/meminfo"));
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kib_field(&memory, "MemTotal").unwrap_or(0) / 1024,
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field(&cpus, "model name").unwrap_or("unknown").to_owned(),
        }
    }
}

/// The value of `name:` in a file with one field per line.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// A value followed by `kB`, in KiB.
pub(crate) fn kib_field(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim().parse().ok()
}

/// Raises the soft limit of open files to the hard one, which child processes inherit. Returns the effective
/// limit; `None` if unlimited.
pub(crate) fn raise_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Checks that `connections` fit into `processes` processes.
pub(crate) fn make_room_for(connections: usize, processes: usize) -> Result<(), Error> {
    let excess = excess(connections, processes, FILES_RESERVED);
    excess.map_or(Ok(()), |(wanted, files_max, reserved)| Err(Error::Files { wanted, files_max, reserved }))
}

/// Checks that gateway nodes started here, which inherit the limit, can hold `connections` together.
pub(crate) fn make_room_in_nodes(connections: usize, nodes: usize) -> Result<(), Error> {
    let excess = excess(connections, nodes, NODE_FILES_RESERVED);
    excess
        .map_or(Ok(()), |(wanted, files_max, reserved)| Err(Error::NodeFiles { wanted, files_max, reserved }))
}

/// The connections of each process, the files that it may open and those that are reserved, if that is too much.
fn excess(connections: usize, processes: usize, reserved: u64) -> Option<(usize, u64, u64)> {
    let each = connections.div_ceil(processes.max(1));
    let files_max = raise_files()?;
    ((each as u64).saturating_add(reserved) > files_max).then_some((each, files_max, reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields_with_and_without_a_unit() {
        let text = "Name:\tnoroshi\nVmRSS:\t   12345 kB\nmodel name\t: A CPU\n";
        assert_eq!(kib_field(text, "VmRSS"), Some(12_345));
        assert_eq!(kib_field(text, "Name"), None);
        assert_eq!(field(text, "model name"), Some("A CPU"));
        assert_eq!(field(text, "VmHWM"), None);
    }

    #[test]
    fn too_many_connections_are_rejected_before_connecting() {
        let error = make_room_for(usize::MAX / 2, 2).unwrap_err().to_string();
        assert!(error.contains("ulimit") && error.contains("--processes"), "{error}");
        let files = raise_files().unwrap_or(u64::MAX).min(1 << 40) as usize;
        assert!(make_room_for(files, 1).is_err());
        assert!(make_room_for(files, 2).is_ok(), "the limit applies per process");
        assert!(make_room_in_nodes(files, 1).unwrap_err().to_string().contains("--spare"));
        assert!(make_room_in_nodes(files, 2).is_ok(), "the limit applies per node");
    }
}
