//! Closed event files: compresses them one after the other on a separate thread, and removes the oldest beyond the
//! limit.
//!
//! A compressed file is written under a temporary name and renamed, so a crash leaves either the original or the
//! result; the next start compresses what a crash left over. Uses the fastest compression level: lines repeat so much
//! that a higher one gains little.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use noroshi_supervision::{Heartbeat, Kind, Threads};
use noroshi_types::Timestamp;

const PREFIX: &str = "events-";
const PLAIN: &str = ".ndjson";
const PACKED: &str = ".ndjson.gz";
const UNFINISHED: &str = ".ndjson.gz.part";

/// The thread that manages a folder.
pub(super) struct Archive {
    thread: JoinHandle<()>,
    ending: Arc<AtomicBool>,
}

impl Archive {
    pub(super) fn start(folder: PathBuf, keep_bytes: u64, threads: &Threads) -> io::Result<Self> {
        let ending = Arc::<AtomicBool>::default();
        let ends = ending.clone();
        let run = move |pulse: &Heartbeat| {
            loop {
                pulse.working();
                if let Err(error) = tidy(&folder, keep_bytes, &ends) {
                    tracing::warn!(folder = %folder.display(), %error, "failed to compress closed event files");
                }
                if ends.load(Ordering::Acquire) {
                    return;
                }
                pulse.waiting();
                // Woken when a file was closed.
                std::thread::park();
            }
        };
        let thread = threads.spawn(Kind::EventsArchive, "events-archive", run)?;
        Ok(Self { thread, ending })
    }

    /// A file was closed.
    pub(super) fn look(&self) {
        self.thread.thread().unpark();
    }

    /// Cancels the compression in progress: the next start continues.
    pub(super) fn end(self) {
        self.ending.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // The thread logs its own failures; the panic hook reports a panic.
        let _ = self.thread.join();
    }
}

/// A free name for a file that is closed now: names sort by time.
pub(super) fn free_name(folder: &Path, now: SystemTime) -> io::Result<PathBuf> {
    let ms = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    for ms in u64::try_from(ms).unwrap_or_default().. {
        // "2026-11-22T17:00:00.123Z" without the characters that are awkward in file names.
        let time: String =
            Timestamp(ms).to_string().chars().filter(|letter| !"-:.".contains(*letter)).collect();
        let name = |end: &str| folder.join(format!("{PREFIX}{time}{end}"));
        if !name(PLAIN).exists() && !name(PACKED).exists() {
            return Ok(name(PLAIN));
        }
    }
    Err(io::Error::other("no name is free"))
}

/// Compresses closed files, and then removes the oldest beyond the limit.
fn tidy(folder: &Path, keep_bytes: u64, ends: &AtomicBool) -> io::Result<()> {
    for path in closed(folder)? {
        if path.to_string_lossy().ends_with(PLAIN) && !compress(&path, ends)? {
            return Ok(());
        }
    }
    let mut kept = 0;
    for path in closed(folder)?.into_iter().rev() {
        kept += path.metadata()?.len();
        if kept > keep_bytes {
            tracing::info!(path = %path.display(), "removing an old event file");
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Closed files, oldest first.
fn closed(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && (name.ends_with(PLAIN) || name.ends_with(PACKED)) {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// True if it was compressed; false if it was cancelled.
fn compress(path: &Path, ends: &AtomicBool) -> io::Result<bool> {
    let named = |end: &str| {
        let text = path.to_string_lossy();
        PathBuf::from(format!("{}{end}", text.strip_suffix(PLAIN).unwrap_or(&text)))
    };
    let (unfinished, packed) = (named(UNFINISHED), named(PACKED));
    let mut plain = File::open(path)?;
    let mut out = GzEncoder::new(File::create(&unfinished)?, Compression::fast());
    let mut piece = vec![0; 256 << 10];
    loop {
        if ends.load(Ordering::Acquire) {
            std::fs::remove_file(unfinished)?;
            return Ok(false);
        }
        match plain.read(&mut piece)? {
            0 => break,
            count => out.write_all(&piece[..count])?,
        }
    }
    out.finish()?.sync_all()?;
    std::fs::rename(unfinished, packed)?;
    std::fs::remove_file(path)?;
    Ok(true)
}
