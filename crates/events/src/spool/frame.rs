//! The format of batches in a segment, and of the position. All numbers are little-endian.
//!
//! A frame has a head, the lines, and a table of their runs. A frame without a table has one source; earlier versions
//! wrote no other.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::batch::{Batch, Run};

/// Bytes of the lines, CRC-32 of lines and table, events, runs in the table.
pub(super) const FRAME_HEAD: u64 = 16;
/// Source, bytes, events.
const RUN_BYTES: usize = 12;

/// A frame is never larger: batches are closed far below.
const FRAME_BYTES_MAX: u32 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    bytes: u32,
    crc: u32,
    events: u32,
    runs: u32,
}

impl Head {
    fn encode(self) -> [u8; FRAME_HEAD as usize] {
        let mut text = [0; FRAME_HEAD as usize];
        let numbers = [self.bytes, self.crc, self.events, self.runs];
        text.chunks_exact_mut(4)
            .zip(numbers)
            .for_each(|(to, number)| to.copy_from_slice(&number.to_le_bytes()));
        text
    }

    /// The size of lines and table.
    fn content(self) -> u64 {
        u64::from(self.bytes) + u64::from(self.runs) * RUN_BYTES as u64
    }

    /// The head at an offset, if the whole frame is before `end`.
    fn read(file: &File, offset: u64, end: u64) -> io::Result<Option<Self>> {
        if offset + FRAME_HEAD > end {
            return Ok(None);
        }
        let mut text = [0; FRAME_HEAD as usize];
        file.read_exact_at(&mut text, offset)?;
        let [bytes, crc, events, runs] = [0, 4, 8, 12].map(|at| number(&text[at..at + 4]));
        let head = Self { bytes, crc, events, runs };
        // A run has at least one event.
        let fits = bytes <= FRAME_BYTES_MAX && runs <= events && offset + FRAME_HEAD + head.content() <= end;
        // No batch is empty: zeros are what a file system leaves of a lost write.
        Ok((fits && bytes > 0).then_some(head))
    }
}

fn number(text: &[u8]) -> u32 {
    text.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// The head and the table of a batch, which enclose its lines.
pub(super) fn encode(batch: &Batch) -> ([u8; FRAME_HEAD as usize], Vec<u8>) {
    let mut table = Vec::with_capacity(batch.runs.len() * RUN_BYTES);
    for run in batch.runs.iter() {
        [run.source, run.bytes, run.events].iter().for_each(|number| table.extend(number.to_le_bytes()));
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&batch.bytes);
    crc.update(&table);
    let head = Head {
        bytes: u32::try_from(batch.bytes.len()).unwrap_or(u32::MAX),
        crc: crc.finalize(),
        events: u32::try_from(batch.events).unwrap_or(u32::MAX),
        runs: u32::try_from(batch.runs.len()).unwrap_or(u32::MAX),
    };
    (head.encode(), table)
}

/// The end of the complete frames of a segment, and the events of those from `from` on.
pub(super) fn count(file: &File, from: u64) -> io::Result<(u64, u64)> {
    let end = file.metadata()?.len();
    let (mut offset, mut events) = (0, 0);
    while let Some(head) = Head::read(file, offset, end)? {
        if offset >= from {
            events += u64::from(head.events);
        }
        offset += FRAME_HEAD + head.content();
    }
    Ok((offset, events))
}

/// The batch at an offset, verified, and the size of its frame.
pub(super) fn read(file: &File, offset: u64, end: u64) -> io::Result<(Batch, u64)> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let head = Head::read(file, offset, end)?.ok_or_else(|| wrong("no frame"))?;
    let mut content = vec![0; usize::try_from(head.content()).map_err(|_| wrong("too large"))?];
    file.read_exact_at(&mut content, offset + FRAME_HEAD)?;
    if crc32fast::hash(&content) != head.crc {
        return Err(wrong("the checksum differs"));
    }
    let mut bytes = Bytes::from(content);
    let table = bytes.split_off(head.bytes as usize);
    let (events, since) = (u64::from(head.events), Instant::now());
    let batch = match runs(&table) {
        runs if runs.is_empty() => Batch::of_one_source(bytes, events, since),
        runs => Batch { bytes, events, since, runs },
    };
    let sum = |of: fn(&Run) -> u32| batch.runs.iter().map(|run| u64::from(of(run))).sum::<u64>();
    match sum(|run| run.bytes) == u64::from(head.bytes) && sum(|run| run.events) == events {
        true => Ok((batch, FRAME_HEAD + head.content())),
        false => Err(wrong("the runs differ from the lines")),
    }
}

fn runs(table: &[u8]) -> Arc<[Run]> {
    let run = |text: &[u8]| {
        let [source, bytes, events] = [0, 4, 8].map(|at| number(&text[at..at + 4]));
        Run { source, bytes, events }
    };
    table.chunks_exact(RUN_BYTES).map(run).collect()
}

/// The position: everything before was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

impl Position {
    /// None: it was never written, or only partially.
    pub(super) fn read(file: &File) -> Option<Self> {
        let mut text = [0; 20];
        file.read_exact_at(&mut text, 0).ok()?;
        let (values, crc) = text.split_at(16);
        let (segment, offset) = values.split_at(8);
        let value = |text: &[u8]| text.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        (number(crc) == crc32fast::hash(values))
            .then(|| Self { segment: value(segment), offset: value(offset) })
    }

    pub(super) fn write(self, file: &File) -> io::Result<()> {
        let mut text = [0; 20];
        text[..8].copy_from_slice(&self.segment.to_le_bytes());
        text[8..16].copy_from_slice(&self.offset.to_le_bytes());
        let crc = crc32fast::hash(&text[..16]);
        text[16..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&text, 0)
    }
}
