//! The data folder and the disk below it.

use std::time::Duration;

use super::{Finding, Patient, Verdict};
use crate::capacity::{grouped, size};
use crate::host::Filesystem;

/// A group commit waits for one sync: `202` answers take at least this long.
const SYNC_OK: Duration = Duration::from_millis(20);
/// Below this a node on a busy day is full before anybody looks.
const FREE_BYTES_OK: u64 = 1 << 30;
/// The log of the database alone may need this much.
const FREE_BYTES_MIN: u64 = 128 << 20;

pub(super) fn place(patient: &Patient) -> Option<Finding> {
    let folder = &patient.folder;
    let (verdict, what, advice) = match folder.filesystem? {
        Filesystem::Disk => (Verdict::Ok, "on a disk", ""),
        Filesystem::Memory => {
            (Verdict::Warn, "in memory", "what is stored is gone when the machine restarts")
        }
        Filesystem::Overlay => {
            (Verdict::Warn, "in the container's own layer", "mount a volume: it is gone with the container")
        }
        Filesystem::Network => {
            (Verdict::Fail, "on a network file system", "SQLite's log does not work there: use a local disk")
        }
    };
    let path = folder.path.display();
    let (verdict, advice) = match &folder.unwritable {
        Some(reason) => (Verdict::Fail, format!("it cannot be written: {reason}")),
        None => (verdict, advice.to_owned()),
    };
    let absent = match (folder.exists, &folder.unwritable) {
        (true, _) => "",
        (false, None) => " (not made yet)",
        (false, Some(_)) => " (cannot be made)",
    };
    Some(
        Finding::new("data folder", verdict, format!("{path}{absent}, {what}"), "a local disk")
            .advise(advice),
    )
}

pub(super) fn privacy(patient: &Patient) -> Option<Finding> {
    let folder = &patient.folder;
    if !folder.exists {
        return None;
    }
    let (verdict, found) = match folder.open_to_others[..] {
        [_, ..] => (Verdict::Fail, format!("open to others: {}", folder.open_to_others.join(", "))),
        [] if folder.is_foreign => (Verdict::Warn, "belongs to another user than this command's".to_owned()),
        [] => (Verdict::Ok, "for its owner alone".to_owned()),
    };
    let advice = match verdict {
        Verdict::Fail => format!("chmod -R go= {}", folder.path.display()),
        Verdict::Ok | Verdict::Warn => "run the command as the user that the node runs as".to_owned(),
    };
    Some(Finding::new("privacy of the data", verdict, found, "for its owner alone").advise(advice))
}

pub(super) fn disk(patient: &Patient) -> Option<Finding> {
    let (folder, free) = (&patient.folder, patient.folder.free_bytes?);
    let growth = patient.wanted.database_bytes_max.unwrap_or(0).saturating_sub(folder.database_bytes);
    let wanted = growth.max(FREE_BYTES_OK);
    let is_slow = folder.sync.is_some_and(|sync| sync > SYNC_OK);
    let (verdict, advice) = match free {
        free if free < FREE_BYTES_MIN => {
            (Verdict::Fail, "make room: requests are answered 507 when it is full")
        }
        free if free < wanted => (Verdict::Warn, "make room, or set store.database_max lower"),
        _ if is_slow => (Verdict::Warn, "every stored notification waits for a sync: use a faster disk"),
        _ => (Verdict::Ok, ""),
    };
    let sync = folder.sync.map_or(String::new(), |sync| {
        format!(
            ", a sync takes {}.{} ms",
            grouped(sync.as_millis() as u64),
            sync.subsec_micros() % 1_000 / 100
        )
    });
    let wanted = format!("{} free, {} ms a sync", size(wanted), SYNC_OK.as_millis());
    Some(Finding::new("disk", verdict, format!("{} free{sync}", size(free)), wanted).advise(advice))
}
