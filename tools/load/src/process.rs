//! The resource usage of a process from `/proc/<pid>`: CPU time, user and system separately, and resident
//! memory. The kernel counts CPU time in ticks of 10 ms, so a measurement needs at least a second for two
//! significant digits.

use std::fs;
use std::iter::Sum;
use std::ops::{Add, Sub};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::Error;
use crate::host::{field, kib_field};

/// CPU time up to a point in time, or between two.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Cpu {
    pub(crate) user_us: f64,
    pub(crate) system_us: f64,
}

impl Cpu {
    pub(crate) fn total_us(self) -> f64 {
        self.user_us + self.system_us
    }
}

impl Sub for Cpu {
    type Output = Cpu;

    fn sub(self, earlier: Cpu) -> Cpu {
        Cpu { user_us: self.user_us - earlier.user_us, system_us: self.system_us - earlier.system_us }
    }
}

impl Add for Cpu {
    type Output = Cpu;

    fn add(self, other: Cpu) -> Cpu {
        Cpu { user_us: self.user_us + other.user_us, system_us: self.system_us + other.system_us }
    }
}

impl Sum for Cpu {
    fn sum<I: Iterator<Item = Cpu>>(all: I) -> Cpu {
        all.fold(Cpu::default(), Add::add)
    }
}

/// A measured process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
}

impl Process {
    pub(crate) fn this() -> Self {
        Self { pid: std::process::id() }
    }

    /// Ends this process with `signal` when its parent ends, however that happens.
    pub(crate) fn end_with_parent(signal: Signal) -> Result<(), Error> {
        set_parent_process_death_signal(Some(signal))
            .map_err(|errno| Error::System { what: "a signal at the parent's death", source: errno.into() })
    }

    /// Fails if the process cannot be measured.
    pub(crate) fn running(pid: u32) -> Result<Self, Error> {
        let process = Self { pid };
        process.cpu().map(|_| process).ok_or(Error::NoProcess(pid))
    }

    /// `None` if the process has exited.
    pub(crate) fn cpu(self) -> Option<Cpu> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        parse_cpu(&stat, rustix::param::clock_ticks_per_second())
    }

    /// Includes its children that have exited and were waited for.
    pub(crate) fn cpu_with_children(self) -> Option<Cpu> {
        let ticks = rustix::param::clock_ticks_per_second();
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let own = parse_cpu(&stat, ticks)? + parse_waited_cpu(&stat, ticks)?;
        Some(own + self.children().into_iter().filter_map(Process::cpu).sum())
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        Some(kib_field(&status, "VmRSS")? * 1024)
    }

    /// Resident memory, where memory that several processes map counts for each in part.
    pub(crate) fn proportional_bytes(self) -> Option<u64> {
        let sums = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).ok()?;
        Some(kib_field(&sums, "Pss")? * 1024)
    }

    /// Its threads: how many there are, and how often they have given up the processor, mostly to wait.
    pub(crate) fn threads(self) -> Option<(usize, u64)> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?;
        let waits = tasks.filter_map(|task| {
            let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            field(&status, "voluntary_ctxt_switches")?.parse::<u64>().ok()
        });
        Some(waits.fold((0, 0), |(count, sum), waits| (count + 1, sum + waits)))
    }

    /// The processes that it has started and that still run.
    pub(crate) fn children(self) -> Vec<Process> {
        let all = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            (parse_parent(&stat)? == self.pid).then_some(Process { pid })
        });
        all.collect()
    }

    /// The number of open files: since Linux 6.2 from the folder's size, before by counting entries.
    pub(crate) fn open_files(self) -> Option<u64> {
        let path = format!("/proc/{}/fd", self.pid);
        match fs::metadata(&path).ok()?.len() {
            0 => Some(fs::read_dir(&path).ok()?.count() as u64),
            files => Some(files),
        }
    }

    /// The limit of open files.
    pub(crate) fn files_max(self) -> Option<u64> {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.pid)).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    }
}

/// CPU time in seconds that the whole machine has spent since boot.
pub(crate) fn machine_busy_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    parse_busy(&stat, rustix::param::clock_ticks_per_second())
}

/// proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; later fields are included in these.
fn parse_busy(stat: &str, ticks_per_second: u64) -> Option<f64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().take(8);
    let ticks = fields.map(str::parse::<u64>).collect::<Result<Vec<_>, _>>().ok()?;
    let [user, nice, system, _idle, _iowait, irq, softirq, steal] = ticks[..] else { return None };
    Some((user + nice + system + irq + softirq + steal) as f64 / ticks_per_second as f64)
}

/// proc_pid_stat(5): utime and stime are fields 14 and 15. The second field is the name in brackets, which
/// may contain anything, so counting starts after its last bracket.
fn parse_cpu(stat: &str, ticks_per_second: u64) -> Option<Cpu> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let tick_us = 1e6 / ticks_per_second as f64;
    let mut next = || fields.next()?.parse::<u64>().ok().map(|ticks| ticks as f64 * tick_us);
    Some(Cpu { user_us: next()?, system_us: next()? })
}

/// proc_pid_stat(5): cutime and cstime are fields 16 and 17.
fn parse_waited_cpu(stat: &str, ticks_per_second: u64) -> Option<Cpu> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(13);
    let tick_us = 1e6 / ticks_per_second as f64;
    let mut next = || fields.next()?.parse::<u64>().ok().map(|ticks| ticks as f64 * tick_us);
    Some(Cpu { user_us: next()?, system_us: next()? })
}

/// proc_pid_stat(5): ppid is field 4.
fn parse_parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_parsed_after_a_name_with_spaces_and_brackets() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 2713 0 0 0 250 75 0 0 20 0 4 0 100 0 0";
        let cpu = parse_cpu(stat, 100).unwrap();
        assert_eq!(cpu, Cpu { user_us: 2_500_000.0, system_us: 750_000.0 });
        assert_eq!(parse_cpu("42 (a)", 100), None);
        assert_eq!(parse_parent(stat), Some(1));
        let stat = stat.replace(" 250 75 0 0 ", " 250 75 100 50 ");
        assert_eq!(parse_waited_cpu(&stat, 100), Some(Cpu { user_us: 1e6, system_us: 5e5 }));
    }

    #[test]
    fn busy_time_excludes_idle_and_iowait() {
        let stat = "cpu  100 10 200 9999 888 5 25 60 7 7\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_busy(stat, 100), Some(4.0));
        assert_eq!(parse_busy("intr 1", 100), None);
        assert!(machine_busy_seconds().is_some());
    }

    #[test]
    fn this_process_can_be_measured() {
        let this = Process::this();
        assert!(this.cpu().is_some());
        assert!(this.resident_bytes().unwrap() > 100_000);
        assert!(this.files_max().unwrap() > 0);
        assert!(this.open_files().unwrap() >= 3);
        assert!(this.proportional_bytes().unwrap() <= this.resident_bytes().unwrap());
        assert!(this.threads().unwrap().0 >= 1);
        assert!(this.children().iter().all(|child| child.pid != this.pid));
    }
}
