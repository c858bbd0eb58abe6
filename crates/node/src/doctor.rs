//! Whether this machine can do what is wanted of it, and what to change: a list of small pure checks over
//! what [`crate::host`] read. Nothing is changed here, and nothing read.
//!
//! A check that is about something that is not there (no tracking of connections, no server to compare
//! with) gives no line; one whose facts could not be read says nothing either, rather than guess.

mod clock;
mod folder;
mod limit;
mod machine;
mod network;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::capacity::{self, Capacity};
use crate::descriptors::Serves;
use crate::host::{Folder, Host};

/// What is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub connections: u64,
    pub tls: bool,
    /// Devices come through a reverse proxy on this machine.
    pub proxied: bool,
    /// `store.database_max`.
    pub database_bytes_max: Option<u64>,
    /// `gateway.connections_max`; 0: as many as there is room for.
    pub connections_max: usize,
}

/// All that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patient {
    pub host: Host,
    pub folder: Folder,
    pub wanted: Wanted,
    /// How far this machine's clock is from a running server's, if one was asked.
    pub clock_offset: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Ok,
    /// It works, but not always or not as fast.
    Warn,
    /// What is wanted cannot be.
    Fail,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub name: &'static str,
    pub verdict: Verdict,
    pub found: String,
    pub wanted: String,
    /// What to do; empty where all is well.
    pub advice: String,
    pub changes: Vec<Change>,
}

/// Something to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Sysctl {
        key: &'static str,
        value: String,
    },
    /// The hard limit of open files.
    OpenFiles(u64),
}

/// Of all checks together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    pub findings: Vec<Finding>,
    pub capacity: Capacity,
}

const CHECKS: [fn(&Patient) -> Option<Finding>; 18] = [
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
pub fn examine(patient: &Patient) -> Diagnosis {
    let Wanted { tls, connections_max, .. } = patient.wanted;
    Diagnosis {
        findings: CHECKS.iter().filter_map(|check| check(patient)).collect(),
        capacity: capacity::estimate(&patient.host, Serves::DevicesAndApi, tls, connections_max),
    }
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

impl Diagnosis {
    pub fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
    }

    /// Kernel settings to be changed, by their keys.
    pub fn sysctls(&self) -> BTreeMap<&'static str, &str> {
        let sysctl = |change| match change {
            &Change::Sysctl { key, ref value } => Some((key, value.as_str())),
            Change::OpenFiles(_) => None,
        };
        self.changes().filter_map(sysctl).collect()
    }

    /// The hard limit of open files, if it has to be raised.
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
    fn new(name: &'static str, verdict: Verdict, found: String, wanted: impl Into<String>) -> Self {
        Self { name, verdict, found, wanted: wanted.into(), advice: String::new(), changes: Vec::new() }
    }

    /// What to do, where there is something to do.
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

/// `Ok` if it holds, else what it means.
fn unless(holds: bool, otherwise: Verdict) -> Verdict {
    if holds { Verdict::Ok } else { otherwise }
}

/// The next thousand: settings are written by people.
fn round_up(number: u64) -> u64 {
    number.div_ceil(1_000).saturating_mul(1_000)
}

#[cfg(test)]
mod tests;
