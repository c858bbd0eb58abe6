//! A bounded queue of batches on disk, in order, for batches that a sink cannot accept now.
//!
//! ```text
//!   00000000000000000007.events   frames ─► … append         frame: head, lines, table of runs
//!   00000000000000000006.events   frames
//!   position                      (segment, offset, CRC-32): everything before was accepted
//! ```
//!
//! Reading and removing are separate: [`Spool::heads`] returns the oldest batches until [`Spool::take`] reports the
//! first of them as accepted, so a crash repeats batches but skips none. A frame that a crash truncated ends its
//! segment. Nothing is synced: a killed process loses nothing here, a machine that loses power may.
//!
//! Invariant: bytes on disk never exceed the limit; a segment is removed when it has been read.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::batch::Batch;

mod frame;

use frame::{FRAME_HEAD, Position};

/// 128 segments in 1 GiB; the accepted part of the first one is the only wasted space.
const SEGMENT_BYTES: u64 = 8 << 20;

const POSITION: &str = "position";
const EXTENSION: &str = "events";

/// Why a batch was not stored.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("the spool is full")]
    Full,
    #[error("cannot write to the spool: {0}")]
    Disk(io::Error),
}

#[derive(Debug)]
struct Segment {
    number: u64,
    file: File,
    bytes: u64,
    events: u64,
}

#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    bytes_max: u64,
    /// Oldest first; batches are appended to the last.
    segments: VecDeque<Segment>,
    next_number: u64,
    /// In the first segment: the offset of the first batch that is not accepted.
    offset: u64,
    /// The batches from there on that have been read, with the size of their frames.
    ahead: VecDeque<(Batch, u64)>,
    /// Where the next one begins: the index of its segment, and the offset there.
    next: (usize, u64),
    /// Batches not accepted yet.
    events: u64,
    /// Bytes on disk, including accepted batches of the first segment.
    bytes: u64,
    /// Events that could not be read back.
    damaged: u64,
    position: File,
    /// Locked: two nodes never share a spool.
    _lock: File,
}

impl Spool {
    /// Opens a folder with the batches of an earlier run.
    pub fn open(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("lock"))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "another process uses the spool"))?;
        let position = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(folder.join(POSITION))?;
        let mut spool = Self {
            folder: folder.to_owned(),
            bytes_max,
            segments: VecDeque::new(),
            next_number: 1,
            offset: 0,
            ahead: VecDeque::new(),
            next: (0, 0),
            events: 0,
            bytes: 0,
            damaged: 0,
            position,
            _lock: lock,
        };
        spool.restore()?;
        Ok(spool)
    }

    fn restore(&mut self) -> io::Result<()> {
        let taken = Position::read(&self.position).unwrap_or(Position { segment: 0, offset: 0 });
        self.next_number = taken.segment.max(1);
        for number in self.numbers()? {
            let path = self.path(number);
            if number < taken.segment {
                std::fs::remove_file(path)?;
                continue;
            }
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let from = if number == taken.segment { taken.offset } else { 0 };
            let (bytes, events) = frame::count(&file, from)?;
            // Truncates what a crash left unfinished.
            file.set_len(bytes)?;
            (self.bytes, self.events) = (self.bytes + bytes, self.events + events);
            self.segments.push_back(Segment { number, file, bytes, events });
            self.next_number = number + 1;
        }
        if self.segments.front().is_some_and(|first| first.number == taken.segment) {
            self.offset = taken.offset.min(self.segments[0].bytes);
            self.next = (0, self.offset);
        }
        self.drop_read()
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                numbers.extend(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number:020}.{EXTENSION}"))
    }

    /// Events that are not accepted yet.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Events that could not be read back since the last call.
    pub fn take_damaged(&mut self) -> u64 {
        std::mem::take(&mut self.damaged)
    }

    /// Appends a batch.
    pub fn append(&mut self, batch: &Batch) -> Result<(), Refused> {
        let (head, table) = frame::encode(batch);
        let table_at = FRAME_HEAD + batch.bytes.len() as u64;
        let frame_bytes = table_at + table.len() as u64;
        if self.bytes + frame_bytes > self.bytes_max {
            return Err(Refused::Full);
        }
        if self.segments.back().is_none_or(|last| last.bytes >= SEGMENT_BYTES) {
            self.begin_segment().map_err(Refused::Disk)?;
        }
        let Some(last) = self.segments.back_mut() else { return Err(Refused::Full) };
        let written = last
            .file
            .write_all_at(&head, last.bytes)
            .and_then(|()| last.file.write_all_at(&batch.bytes, last.bytes + FRAME_HEAD))
            .and_then(|()| last.file.write_all_at(&table, last.bytes + table_at));
        if let Err(error) = written {
            // A partial frame would end the segment for readers.
            let _ = last.file.set_len(last.bytes);
            return Err(Refused::Disk(error));
        }
        last.bytes += frame_bytes;
        last.events += batch.events;
        (self.bytes, self.events) = (self.bytes + frame_bytes, self.events + batch.events);
        Ok(())
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let number = self.next_number;
        let file =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(self.path(number))?;
        self.next_number += 1;
        self.segments.push_back(Segment { number, file, bytes: 0, events: 0 });
        Ok(())
    }

    /// The oldest batches that are not accepted, up to `bytes_max`, and at least one if there is any.
    pub fn heads(&mut self, bytes_max: usize) -> Vec<Batch> {
        let (mut heads, mut bytes) = (Vec::new(), 0);
        while heads.is_empty() || bytes < bytes_max {
            if heads.len() == self.ahead.len() && !self.read_ahead() {
                break;
            }
            let (batch, _) = &self.ahead[heads.len()];
            bytes += batch.bytes.len();
            heads.push(batch.clone());
        }
        heads
    }

    /// Reads one more batch. False: there is none, or damage must wait until the batches before it are accepted.
    fn read_ahead(&mut self) -> bool {
        loop {
            let (index, offset) = self.next;
            let Some(segment) = self.segments.get(index) else { return false };
            if offset >= segment.bytes {
                if index + 1 >= self.segments.len() {
                    return false;
                }
                self.next = (index + 1, 0);
                continue;
            }
            match frame::read(&segment.file, offset, segment.bytes) {
                Ok((batch, frame_bytes)) => {
                    self.next = (index, offset + frame_bytes);
                    self.ahead.push_back((batch, frame_bytes));
                    return true;
                }
                Err(error) if self.ahead.is_empty() => self.skip_segment(&error),
                Err(_) => return false,
            }
        }
    }

    /// The rest of the first segment is damaged.
    fn skip_segment(&mut self, error: &io::Error) {
        let Some(first) = self.segments.front_mut() else { return };
        tracing::error!(segment = first.number, offset = self.offset, events = first.events, %error, "a segment of the event spool is damaged; the rest of it is lost");
        self.damaged += first.events;
        self.events -= first.events;
        first.events = 0;
        self.offset = first.bytes;
        self.forget_read();
    }

    /// The sink accepted the oldest batch.
    pub fn take(&mut self) {
        // It was not read if it moved here after the sink got it.
        if self.heads(0).is_empty() {
            return;
        }
        let (Some((batch, frame_bytes)), Some(first)) = (self.ahead.pop_front(), self.segments.front_mut())
        else {
            return;
        };
        self.offset += frame_bytes;
        first.events -= batch.events;
        self.events -= batch.events;
        self.forget_read();
    }

    /// Removes segments that have been read, and records the position.
    fn forget_read(&mut self) {
        if let Err(error) = self.drop_read() {
            // At worst a batch is sent twice after a crash.
            tracing::warn!(%error, "failed to write the position of the event spool");
        }
    }

    fn drop_read(&mut self) -> io::Result<()> {
        while let Some(first) = self.segments.front()
            && self.offset >= first.bytes
        {
            let path = self.path(first.number);
            self.bytes -= first.bytes;
            self.segments.pop_front();
            self.offset = 0;
            // Batches ahead are in later segments; without any, reading continues at the first one.
            self.next = self.next.0.checked_sub(1).map_or((0, 0), |index| (index, self.next.1));
            std::fs::remove_file(path)?;
        }
        let segment = self.segments.front().map_or(self.next_number, |first| first.number);
        Position { segment, offset: self.offset }.write(&self.position)
    }
}

#[cfg(test)]
mod tests;
