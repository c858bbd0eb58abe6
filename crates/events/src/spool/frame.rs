//! The format of batches in a segment, and of the position. All numbers are little-endian.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::batch::Batch;

/// Bytes, CRC-32, events, reserved.
pub(super) const FRAME_HEAD: u64 = 16;

/// A frame is never larger: batches are closed far below.
const FRAME_BYTES_MAX: u32 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    bytes: u32,
    crc: u32,
    pub(super) events: u32,
}

impl Head {
    pub(super) fn of(batch: &Batch) -> Self {
        Self {
            bytes: u32::try_from(batch.bytes.len()).unwrap_or(u32::MAX),
            crc: crc32fast::hash(&batch.bytes),
            events: u32::try_from(batch.events).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn encode(self) -> [u8; FRAME_HEAD as usize] {
        let mut text = [0; FRAME_HEAD as usize];
        text[..4].copy_from_slice(&self.bytes.to_le_bytes());
        text[4..8].copy_from_slice(&self.crc.to_le_bytes());
        text[8..12].copy_from_slice(&self.events.to_le_bytes());
        text
    }

    /// The head at an offset, if the whole frame is before `end`.
    fn read(file: &File, offset: u64, end: u64) -> io::Result<Option<Self>> {
        if offset + FRAME_HEAD > end {
            return Ok(None);
        }
        let mut text = [0; FRAME_HEAD as usize];
        file.read_exact_at(&mut text, offset)?;
        let [bytes, crc, events] = [0, 4, 8].map(|at| number(&text[at..at + 4]));
        let fits =
            bytes <= FRAME_BYTES_MAX && offset + FRAME_HEAD + u64::from(bytes) <= end && text[12..] == [0; 4];
        // No batch is empty: zeros are what a file system leaves of a lost write.
        Ok((fits && bytes > 0).then_some(Self { bytes, crc, events }))
    }
}

fn number(text: &[u8]) -> u32 {
    text.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// The end of the complete frames of a segment, and the events of those from `from` on.
pub(super) fn count(file: &File, from: u64) -> io::Result<(u64, u64)> {
    let end = file.metadata()?.len();
    let (mut offset, mut events) = (0, 0);
    while let Some(head) = Head::read(file, offset, end)? {
        if offset >= from {
            events += u64::from(head.events);
        }
        offset += FRAME_HEAD + u64::from(head.bytes);
    }
    Ok((offset, events))
}

/// The frame at an offset, verified.
pub(super) fn read(file: &File, offset: u64, end: u64) -> io::Result<(Head, Vec<u8>)> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let head = Head::read(file, offset, end)?.ok_or_else(|| wrong("no frame"))?;
    let mut bytes = vec![0; head.bytes as usize];
    file.read_exact_at(&mut bytes, offset + FRAME_HEAD)?;
    match crc32fast::hash(&bytes) == head.crc {
        true => Ok((head, bytes)),
        false => Err(wrong("the checksum differs")),
    }
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
