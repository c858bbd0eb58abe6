//! Files of lines: the current one, `events.ndjson`, and closed ones, which are compressed later.
//!
//! Written lines belong to the kernel: a killed process loses none of them. A file is synced when it is compressed, and
//! at the end of the log, never while writing; a machine that loses power may lose what the kernel still had. The next
//! start removes a line that a crash truncated.

use std::fs::{File as Handle, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use noroshi_supervision::Threads;

use super::Failure;
use super::archive::{self, Archive};
use crate::batch::Batch;
use crate::config;

const NAME: &str = "events.ndjson";

pub(crate) struct File {
    config: config::File,
    path: PathBuf,
    file: Handle,
    bytes: u64,
    /// When the first line of this file was written.
    since: Option<Instant>,
    archive: Archive,
}

impl File {
    pub(crate) fn open(config: &config::File, threads: &Threads) -> io::Result<Self> {
        std::fs::create_dir_all(&config.folder)?;
        let path = config.folder.join(NAME);
        let (file, bytes) = open(&path)?;
        let since = (bytes > 0).then(|| age(&file)).map(|age| Instant::now().checked_sub(age));
        let since = since.map(|since| since.unwrap_or_else(Instant::now));
        let archive = Archive::start(config.folder.clone(), config.keep_bytes, threads)?;
        Ok(Self { config: config.clone(), path, file, bytes, since, archive })
    }

    pub(crate) fn write(&mut self, batch: &Batch) -> Result<(), Failure> {
        self.try_write(batch).map_err(|error| Failure(format!("{}: {error}", self.path.display())))
    }

    fn try_write(&mut self, batch: &Batch) -> io::Result<()> {
        let old = self.since.is_some_and(|since| since.elapsed() >= self.config.age);
        if self.bytes > 0 && (old || self.bytes + batch.bytes.len() as u64 > self.config.bytes) {
            self.rotate()?;
        }
        if let Err(error) = self.file.write_all_at(&batch.bytes, self.bytes) {
            // For example, the disk is full: removes the partial batch, which is sent again.
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += batch.bytes.len() as u64;
        self.since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Renames the file and starts another.
    fn rotate(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, archive::free_name(&self.config.folder, SystemTime::now())?)?;
        (self.file, self.bytes) = open(&self.path)?;
        self.since = None;
        self.archive.look();
        Ok(())
    }

    pub(crate) fn end(self) {
        if let Err(error) = self.file.sync_data() {
            tracing::warn!(path = %self.path.display(), %error, "failed to sync the event file");
        }
        self.archive.end();
    }
}

/// The age of a file, by its creation time or else its modification time.
fn age(file: &Handle) -> Duration {
    let made = file.metadata().and_then(|data| data.created().or_else(|_| data.modified()));
    made.ok().and_then(|made| made.elapsed().ok()).unwrap_or_default()
}

/// Opens a file to continue after its last complete line.
fn open(path: &Path) -> io::Result<(Handle, u64)> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
    let end = file.metadata()?.len();
    let whole = whole_lines(&file, end)?;
    if whole < end {
        file.set_len(whole)?;
    }
    Ok((file, whole))
}

/// The end of the last complete line.
fn whole_lines(file: &Handle, end: u64) -> io::Result<u64> {
    let mut piece = [0; 64 << 10];
    let mut end = end;
    while end > 0 {
        let begin = end.saturating_sub(piece.len() as u64);
        let piece = &mut piece[..usize::try_from(end - begin).unwrap_or(0)];
        file.read_exact_at(piece, begin)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
