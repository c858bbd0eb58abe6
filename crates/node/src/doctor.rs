//! Checks whether this machine meets the requirements, and what to change: a list of small pure checks of what [`crate::host`]
//! read. This module reads and changes nothing.
//!
//! A check without a subject (no connection tracking, no server to compare with) or with unreadable values has no finding.

mod clock;
mod folder;
mod limit;
mod machine;
mod network;

use std::collections::BTreeMap;
use std::time::Duration;

use noroshi_types::names;

use crate::capacity::{self, Capacity};
use crate::descriptors::Serves;
use crate::host::{Folder, Host};

/// For how many devices a machine is checked if nothing says a number.
pub const CONNECTIONS_DEFAULT: u64 = 10_000;

/// What the machine must support.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    pub connections: u64,
    pub tls: bool,
    /// Devices connect through a reverse proxy on this machine.
    pub proxied: bool,
    /// `store.database_max`.
    pub database_bytes_max: Option<u64>,
    /// `gateway.connections_max`. 0: as many as possible.
    pub connections_max: usize,
}

/// The input of the checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    pub host: Host,
    pub folder: Folder,
    pub requirements: Requirements,
    /// Offset of this machine's clock from a running server's, if known.
    pub clock_offset: Option<Duration>,
}

names! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Verdict {
        Ok => "ok",
        /// It works, but not always, or slowly.
        Warn => "warn",
        /// The requirement is not met.
        Fail => "fail",
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub name: &'static str,
    pub verdict: Verdict,
    pub found: String,
    pub required: String,
    /// What to do. Empty if nothing.
    pub advice: String,
    pub changes: Vec<Change>,
}

/// A setting to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Sysctl {
        key: &'static str,
        value: String,
    },
    /// The hard limit of open files.
    OpenFiles(u64),
}

/// The results of all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    pub findings: Vec<Finding>,
    pub capacity: Capacity,
}

const CHECKS: [fn(&Subject) -> Option<Finding>; 18] = [
    limit::configured,
    limit::open_files,
    limit::nr_open,
    limit::file_max,
    machine::memory,
    machine::cores,
    machine::kernel,
    network::listen_queue,
    network::half_open,
    network::overflows,
    network::tcp_memory,
    network::conntrack,
    network::source_ports,
    clock::kept,
    clock::compared,
    folder::place,
    folder::privacy,
    folder::disk,
];

/// Runs every check.
pub fn examine(subject: &Subject) -> Diagnosis {
    let Requirements { tls, connections_max, .. } = subject.requirements;
    Diagnosis {
        findings: CHECKS.iter().filter_map(|check| check(subject)).collect(),
        capacity: capacity::estimate(&subject.host, Serves::DevicesAndApi, tls, connections_max),
    }
}

impl Diagnosis {
    pub fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
    }

    /// Kernel settings to change, by key.
    pub fn sysctls(&self) -> BTreeMap<&'static str, &str> {
        let sysctl = |change| match change {
            &Change::Sysctl { key, ref value } => Some((key, value.as_str())),
            Change::OpenFiles(_) => None,
        };
        self.changes().filter_map(sysctl).collect()
    }

    /// The required hard limit of open files, if it must be raised.
    pub fn open_files(&self) -> Option<u64> {
        let limit = |change: &Change| match change {
            Change::OpenFiles(limit) => Some(*limit),
            Change::Sysctl { .. } => None,
        };
        self.changes().find_map(limit)
    }

    fn changes(&self) -> impl Iterator<Item = &Change> {
        self.findings.iter().flat_map(|finding| &finding.changes)
    }
}

impl Finding {
    fn new(name: &'static str, verdict: Verdict, found: String, required: impl Into<String>) -> Self {
        Self { name, verdict, found, required: required.into(), advice: String::new(), changes: Vec::new() }
    }

    /// Adds advice, unless the verdict is `Ok`.
    fn advise(mut self, advice: impl Into<String>) -> Self {
        if self.verdict != Verdict::Ok {
            self.advice = advice.into();
        }
        self
    }

    fn set(mut self, key: &'static str, value: impl ToString) -> Self {
        if self.verdict != Verdict::Ok {
            let value = value.to_string();
            self.advice = format!("set {key} = {value}");
            self.changes.push(Change::Sysctl { key, value });
        }
        self
    }
}

/// `Ok` if the condition holds, otherwise the other verdict.
fn unless(holds: bool, otherwise: Verdict) -> Verdict {
    if holds { Verdict::Ok } else { otherwise }
}

/// Rounds up to the next thousand, for readable settings.
fn round_up(number: u64) -> u64 {
    number.div_ceil(1_000).saturating_mul(1_000)
}

#[cfg(test)]
mod tests;
