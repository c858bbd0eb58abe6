//! Detects time synchronization. The kernel's state (adjtimex(2)) requires unsafe code, so this looks for running programs that
//! synchronize clocks, and for the marker file of one of them.

use std::fs;
use std::path::Path;

/// Process names (`/proc/PID/comm`, truncated to 15 bytes): chrony, ntpd, OpenNTPD, ntpd-rs, systemd-timesyncd, linuxptp, and
/// guest tools of hypervisors.
const KEEPERS: [&str; 8] =
    ["chronyd", "ntpd", "openntpd", "ntp-daemon", "systemd-timesyn", "phc2sys", "vmtoolsd", "VBoxService"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clock {
    pub keeper: Option<String>,
    /// systemd-timesyncd has synchronized the clock since the machine started.
    pub is_set: bool,
    /// The host synchronizes the clock.
    pub in_container: bool,
}

impl Clock {
    pub(super) fn read(root: &Path) -> Self {
        Self {
            keeper: time_service(root),
            is_set: root.join("run/systemd/timesync/synchronized").exists(),
            in_container: [".dockerenv", "run/.containerenv"].iter().any(|mark| root.join(mark).exists()),
        }
    }
}

fn time_service(root: &Path) -> Option<String> {
    let processes = fs::read_dir(root.join("proc")).ok()?.filter_map(Result::ok);
    let names = processes
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).find(|name| KEEPERS.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::tree;

    #[test]
    fn a_time_service_is_found_by_its_name() {
        let root = tree(&[
            ("proc/1/comm", "systemd\n"),
            ("proc/sys/comm", "chronyd\n"),
            ("proc/42/comm", "systemd-timesyn\n"),
            ("run/systemd/timesync/synchronized", ""),
        ]);
        let expected =
            Clock { keeper: Some("systemd-timesyn".to_owned()), is_set: true, in_container: false };
        assert_eq!(Clock::read(root.path()), expected);
        let root = tree(&[("proc/1/comm", "noroshi\n"), (".dockerenv", "")]);
        let expected = Clock { keeper: None, is_set: false, in_container: true };
        assert_eq!(Clock::read(root.path()), expected);
    }
}
