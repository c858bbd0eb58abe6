//! Checks of the data folder and its disk.

use std::time::Duration;

use super::{Finding, Subject, Verdict};
use crate::capacity::{grouped, size};
use crate::host::Filesystem;

/// A group commit waits for one sync, so `202` responses take at least this long.
const SYNC_OK: Duration = Duration::from_millis(20);
/// With less, a busy node fills the disk before anybody notices.
const FREE_BYTES_OK: u64 = 1 << 30;
/// The database's log may need this much.
const FREE_BYTES_MIN: u64 = 128 << 20;

pub(super) fn place(subject: &Subject) -> Option<Finding> {
    let folder = &subject.folder;
    let (verdict, what, advice) = match folder.filesystem? {
        Filesystem::Disk => (Verdict::Ok, "on a disk", ""),
        Filesystem::Memory => (Verdict::Warn, "in memory", "data is lost when the machine restarts"),
        Filesystem::Overlay => {
            (Verdict::Warn, "in the container's own layer", "mount a volume; data is lost with the container")
        }
        Filesystem::Network => {
            (Verdict::Fail, "on a network file system", "use a local disk; SQLite's log does not work there")
        }
    };
    let path = folder.path.display();
    let (verdict, advice) = match &folder.unwritable {
        Some(reason) => (Verdict::Fail, format!("not writable: {reason}")),
        None => (verdict, advice.to_owned()),
    };
    let absent = match (folder.exists, &folder.unwritable) {
        (true, _) => "",
        (false, None) => " (does not exist yet)",
        (false, Some(_)) => " (cannot be created)",
    };
    Some(
        Finding::new("data folder", verdict, format!("{path}{absent}, {what}"), "a local disk")
            .advise(advice),
    )
}

pub(super) fn privacy(subject: &Subject) -> Option<Finding> {
    let folder = &subject.folder;
    if !folder.exists {
        return None;
    }
    let (verdict, found) = match folder.open_to_others[..] {
        [_, ..] => {
            (Verdict::Fail, format!("accessible to other users: {}", folder.open_to_others.join(", ")))
        }
        [] if folder.is_foreign => {
            (Verdict::Warn, "owned by a different user than this command's".to_owned())
        }
        [] => (Verdict::Ok, "accessible only to its owner".to_owned()),
    };
    let advice = match verdict {
        Verdict::Fail => format!("chmod -R go= {}", folder.path.display()),
        Verdict::Ok | Verdict::Warn => "run the command as the user that the node runs as".to_owned(),
    };
    Some(Finding::new("privacy of the data", verdict, found, "accessible only to its owner").advise(advice))
}

pub(super) fn disk(subject: &Subject) -> Option<Finding> {
    let (folder, free) = (&subject.folder, subject.folder.free_bytes?);
    let growth = subject.requirements.database_bytes_max.unwrap_or(0).saturating_sub(folder.database_bytes);
    let required = growth.max(FREE_BYTES_OK);
    let is_slow = folder.sync.is_some_and(|sync| sync > SYNC_OK);
    let (verdict, advice) = match free {
        free if free < FREE_BYTES_MIN => {
            (Verdict::Fail, "free disk space; when it is full, requests get 507")
        }
        free if free < required => (Verdict::Warn, "free disk space, or lower store.database_max"),
        _ if is_slow => (Verdict::Warn, "use a faster disk; every stored notification waits for a sync"),
        _ => (Verdict::Ok, ""),
    };
    let sync = folder.sync.map_or(String::new(), |sync| {
        format!(", {}.{} ms per sync", grouped(sync.as_millis() as u64), sync.subsec_micros() % 1_000 / 100)
    });
    let required = format!("{} free, {} ms per sync", size(required), SYNC_OK.as_millis());
    Some(Finding::new("disk", verdict, format!("{} free{sync}", size(free)), required).advise(advice))
}
