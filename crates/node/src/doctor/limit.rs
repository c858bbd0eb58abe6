//! How many devices the node lets in by its own configuration, and how many files may be open: of the
//! process, of any process, of all processes.

use super::{Change, Finding, Patient, Verdict, round_up, unless};
use crate::capacity::grouped;
use crate::descriptors::{Available, RESERVED};

/// The hard limit that leaves room for the connections wanted.
fn needed(patient: &Patient) -> u64 {
    Available::limit_for(patient.wanted.connections)
}

pub(super) fn configured(patient: &Patient) -> Option<Finding> {
    let (found, wanted) = (patient.wanted.connections_max as u64, patient.wanted.connections);
    if found == 0 {
        return None;
    }
    let verdict = unless(found >= wanted, Verdict::Fail);
    let finding = Finding::new("gateway.connections_max", verdict, grouped(found), grouped(wanted));
    Some(finding.advise("raise it, or set it to 0: as many as there is room for"))
}

pub(super) fn open_files(patient: &Patient) -> Option<Finding> {
    let (found, needed) = (&patient.host.open_files, needed(patient));
    let hard = found.hard?;
    let verdict = unless(hard >= needed, Verdict::Fail);
    let whose = match found.pid {
        Some(pid) => format!("of the running node ({pid})"),
        None => "of this shell; a service has its own".to_owned(),
    };
    let limit = round_up(needed);
    let mut finding =
        Finding::new("open files", verdict, format!("hard limit {}, {whose}", shown(hard)), grouped(needed))
            .advise(format!(
                "systemd: LimitNOFILE={limit} in the unit; Docker: --ulimit nofile={limit}; a shell of root's: ulimit -Hn {limit} (nobody \
                 else may raise a hard limit)"
            ));
    if verdict != Verdict::Ok {
        finding.changes.push(Change::OpenFiles(limit));
    }
    Some(finding)
}

/// A hard limit above this cannot be given to any process.
pub(super) fn nr_open(patient: &Patient) -> Option<Finding> {
    let (found, needed) = (patient.host.kernel.nr_open?, needed(patient));
    let verdict = unless(found >= needed, Verdict::Fail);
    let finding = Finding::new("fs.nr_open", verdict, shown(found), grouped(needed));
    Some(finding.set("fs.nr_open", round_up(needed)))
}

pub(super) fn file_max(patient: &Patient) -> Option<Finding> {
    let kernel = &patient.host.kernel;
    let found = kernel.file_max?;
    let needed = needed(patient).saturating_add(kernel.files_open.unwrap_or(0)).saturating_add(RESERVED);
    let verdict = unless(found >= needed, Verdict::Fail);
    let finding = Finding::new("fs.file-max", verdict, shown(found), grouped(needed));
    Some(finding.set("fs.file-max", round_up(needed)))
}

fn shown(limit: u64) -> String {
    // Since Linux 5.x the default is the largest number that fits.
    if limit >= i64::MAX as u64 { "unlimited".to_owned() } else { grouped(limit) }
}
