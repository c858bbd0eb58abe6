//! The data folder: its file system, permissions and free space, and how long a commit waits for the disk. The latter is
//! measured with a temporary file.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, accessat, statfs, statvfs};

use crate::data;

/// Enough for a median; takes a second on a slow disk.
const SYNCS: usize = 25;
const SYNCS_TIME_MAX: Duration = Duration::from_secs(2);
/// A page of the database's log.
const SYNC_BYTES: [u8; 4_096] = [0; 4_096];
const PROBE: &str = "noroshi.doctor";
const DATABASE: &str = "noroshi.db";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folder {
    pub path: PathBuf,
    pub exists: bool,
    pub filesystem: Option<Filesystem>,
    /// Free space for an unprivileged process.
    pub free_bytes: Option<u64>,
    /// Current size of the database on disk.
    pub database_bytes: u64,
    /// Files that other users may read or write, and the folder if they may enter it.
    pub open_to_others: Vec<String>,
    /// Owned by a user other than the current one.
    pub is_foreign: bool,
    /// Median of some commits. None if the folder is not writable.
    pub sync: Option<Duration>,
    /// Why the folder is not writable or cannot be created.
    pub unwritable: Option<String>,
    /// The process that uses the folder.
    pub pid: Option<u32>,
}

/// The kind of file system, by its meaning for a database (statfs(2), `f_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    /// Lost when the machine restarts.
    Memory,
    /// The writable layer of a container, lost with the container.
    Overlay,
    /// SQLite's log in shared memory does not work on it.
    Network,
    Disk,
}

impl Folder {
    /// Reads, and writes a few pages if the folder exists.
    pub fn examine(root: &Path, path: &Path) -> Self {
        let exists = path.is_dir();
        // If it does not exist yet, its closest existing parent counts.
        let place = path.ancestors().find(|place| place.is_dir()).unwrap_or(Path::new("."));
        let mut folder = Self {
            path: path.to_owned(),
            exists,
            filesystem: statfs(place).ok().map(|found| Filesystem::of(found.f_type as u64)),
            free_bytes: statvfs(place).ok().map(|found| found.f_bavail.saturating_mul(found.f_frsize)),
            ..Self::default()
        };
        if exists {
            folder.database_bytes = fs::metadata(path.join(DATABASE)).map_or(0, |found| found.len());
            folder.open_to_others = open_to_others(path);
            folder.is_foreign =
                fs::metadata(path).is_ok_and(|found| found.uid() != rustix::process::geteuid().as_raw());
            folder.pid = fs::metadata(path.join(data::LOCK)).ok().and_then(|lock| holder(root, lock.ino()));
            match sync_time(path) {
                Ok(median) => folder.sync = Some(median),
                Err(error) => folder.unwritable = Some(error.to_string()),
            }
        } else {
            folder.unwritable = obstacle(path);
        }
        folder
    }
}

impl Filesystem {
    /// Numbers of linux/magic.h.
    fn of(magic: u64) -> Self {
        match magic {
            0x0102_1994 | 0x8584_58F6 => Self::Memory, // tmpfs, ramfs
            0x794C_7630 => Self::Overlay,
            // nfs, smb, cifs, smb2, ceph, 9p, afs
            0x6969 | 0x517B | 0xFF53_4D42 | 0xFE53_4D42 | 0x00C3_6400 | 0x0102_1997 | 0x5346_414F => {
                Self::Network
            }
            _ => Self::Disk,
        }
    }
}

/// Why a missing folder cannot be created: the existing part of its path is not a folder, or not writable.
fn obstacle(path: &Path) -> Option<String> {
    // A dangling symbolic link blocks the path as well.
    let there = path.ancestors().find(|place| fs::symlink_metadata(place).is_ok());
    let there = there.unwrap_or(Path::new("."));
    if !there.is_dir() {
        return Some(format!("{} is not a folder", there.display()));
    }
    let access = accessat(CWD, there, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    access.err().map(|error| format!("{}: {}", there.display(), io::Error::from(error)))
}

fn open_to_others(folder: &Path) -> Vec<String> {
    let is_open = |path: &Path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
    let mut found = Vec::new();
    if is_open(folder) {
        found.push(folder.display().to_string());
    }
    let secrets = [data::OPERATOR_TOKEN, data::DEV_KEY, data::DEV_JWT_SECRET, DATABASE, "noroshi.db-wal"];
    found.extend(secrets.iter().filter(|name| is_open(&folder.join(name))).map(|name| (*name).to_owned()));
    found
}

/// The process that locks this file: proc_locks(5), `FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF`. Two file systems may
/// have equal inode numbers, so the process must also have this program's name.
fn holder(root: &Path, inode: u64) -> Option<u32> {
    let locks = fs::read_to_string(root.join("proc/locks")).ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let place = words.iter().position(|word| *word == "FLOCK")?;
        let (pid, file) = (words.get(place + 3)?, words.get(place + 4)?);
        let is_it = file.rsplit(':').next()?.parse() == Ok(inode);
        let pid = pid.parse().ok().filter(|_| is_it)?;
        let name = fs::read_to_string(root.join(format!("proc/{pid}/comm"))).ok()?;
        (name.trim() == "noroshi").then_some(pid)
    })
}

/// The time to write a page and sync it.
fn sync_time(folder: &Path) -> io::Result<Duration> {
    let path = folder.join(PROBE);
    // Left by a killed command.
    let _ = fs::remove_file(&path);
    let measured = measure(&path);
    // Either this command created it, or it does not exist.
    let _ = fs::remove_file(&path);
    measured
}

fn measure(path: &Path) -> io::Result<Duration> {
    // Creates a new file, so that no symbolic link is followed.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let (began, mut times) = (Instant::now(), Vec::with_capacity(SYNCS));
    while times.len() < SYNCS && (times.is_empty() || began.elapsed() < SYNCS_TIME_MAX) {
        let since = Instant::now();
        file.write_all(&SYNC_BYTES)?;
        file.sync_data()?;
        times.push(since.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::tree;

    #[test]
    fn a_folder_is_examined_and_left_as_it_was() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("data");
        let absent = Folder::examine(Path::new("/"), &path);
        assert!(!absent.exists && absent.sync.is_none() && absent.free_bytes.is_some(), "{absent:?}");
        assert!(!path.exists(), "nothing is created");
        assert_eq!(absent.unwritable, None);
        let file = place.path().join("file");
        fs::write(&file, "").expect("written");
        for path in [file.clone(), file.join("below/it")] {
            let found = Folder::examine(Path::new("/"), &path);
            let reason = format!("{} is not a folder", file.display());
            assert_eq!((found.exists, found.unwritable), (false, Some(reason)));
        }
        fs::remove_file(&file).expect("removed");
        std::os::unix::fs::symlink(place.path().join("nowhere"), &file).expect("linked");
        assert!(Folder::examine(Path::new("/"), &file).unwritable.is_some(), "a dangling symbolic link");

        fs::create_dir(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("set");
        for (name, mode) in [(data::OPERATOR_TOKEN, 0o640), (data::DEV_KEY, 0o600)] {
            fs::write(path.join(name), "secret").expect("written");
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).expect("set");
        }
        let found = Folder::examine(Path::new("/"), &path);
        assert!(found.exists && found.sync.is_some() && !found.is_foreign, "{found:?}");
        assert_eq!(found.open_to_others, [data::OPERATOR_TOKEN]);
        assert_eq!(fs::read_dir(&path).expect("there").count(), 2, "the temporary file is deleted");
    }

    #[test]
    fn the_node_that_holds_the_lock_is_found() {
        let root = tree(&[
            (
                "proc/locks",
                "1: POSIX  ADVISORY  READ  5 fe:00:99 0 EOF\n2: FLOCK  ADVISORY  WRITE 6 fe:00:99 0 EOF\n\
                 3: -> FLOCK  ADVISORY  WRITE 8 fe:00:98 0 EOF\n4: FLOCK  ADVISORY  WRITE 7 fe:01:99 0 EOF\n",
            ),
            ("proc/5/comm", "noroshi\n"),
            ("proc/6/comm", "other\n"),
            ("proc/7/comm", "noroshi\n"),
            ("proc/8/comm", "noroshi\n"),
        ]);
        assert_eq!(holder(root.path(), 99), Some(7));
        assert_eq!(holder(root.path(), 98), Some(8));
        assert_eq!(holder(root.path(), 97), None);
        assert_eq!(holder(Path::new("/nowhere"), 99), None);
    }
}
