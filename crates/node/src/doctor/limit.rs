//! Checks of the configured number of connections, and of open files: of the process, of any process, of all processes.

use super::{Change, Finding, Subject, Verdict, round_up, unless};
use crate::capacity::grouped;
use crate::descriptors::{Available, RESERVED};

/// The hard limit that is sufficient for the required connections.
fn needed(subject: &Subject) -> u64 {
    Available::limit_for(subject.requirements.connections)
}

pub(super) fn configured(subject: &Subject) -> Option<Finding> {
    let (found, required) = (subject.requirements.connections_max as u64, subject.requirements.connections);
    if found == 0 {
        return None;
    }
    let verdict = unless(found >= required, Verdict::Fail);
    let finding = Finding::new("gateway.connections_max", verdict, grouped(found), grouped(required));
    Some(finding.advise("raise it, or set it to 0 (as many as possible)"))
}

pub(super) fn open_files(subject: &Subject) -> Option<Finding> {
    let (found, needed) = (&subject.host.open_files, needed(subject));
    let hard = found.hard?;
    let verdict = unless(hard >= needed, Verdict::Fail);
    let whose = match found.pid {
        Some(pid) => format!("of the running node ({pid})"),
        None => "of this shell; a service has its own limit".to_owned(),
    };
    let limit = round_up(needed);
    let mut finding =
        Finding::new("open files", verdict, format!("hard limit {}, {whose}", shown(hard)), grouped(needed))
            .advise(format!(
                "systemd: LimitNOFILE={limit} in the unit; Docker: --ulimit nofile={limit}; root's shell: ulimit -Hn {limit} (only root \
                 can raise a hard limit)"
            ));
    if verdict != Verdict::Ok {
        finding.changes.push(Change::OpenFiles(limit));
    }
    Some(finding)
}

/// The maximum hard limit of any process.
pub(super) fn nr_open(subject: &Subject) -> Option<Finding> {
    let (found, needed) = (subject.host.kernel.nr_open?, needed(subject));
    let verdict = unless(found >= needed, Verdict::Fail);
    let finding = Finding::new("fs.nr_open", verdict, shown(found), grouped(needed));
    Some(finding.set("fs.nr_open", round_up(needed)))
}

pub(super) fn file_max(subject: &Subject) -> Option<Finding> {
    let kernel = &subject.host.kernel;
    let found = kernel.file_max?;
    let needed = needed(subject).saturating_add(kernel.files_open.unwrap_or(0)).saturating_add(RESERVED);
    let verdict = unless(found >= needed, Verdict::Fail);
    let finding = Finding::new("fs.file-max", verdict, shown(found), grouped(needed));
    Some(finding.set("fs.file-max", round_up(needed)))
}

fn shown(limit: u64) -> String {
    // Since Linux 5.x the default is the largest possible number.
    if limit >= i64::MAX as u64 { "unlimited".to_owned() } else { grouped(limit) }
}
