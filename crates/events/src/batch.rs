//! Batches of lines: all sinks share the same bytes.

use std::time::Instant;

use bytes::Bytes;

/// A closed batch: immutable.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Lines, each with its line feed.
    pub bytes: Bytes,
    /// The number of lines.
    pub events: u64,
    /// When its first line was written; for a batch from an earlier run, when it was read from disk.
    pub since: Instant,
}

impl Batch {
    /// The lines, each with its line feed.
    pub fn lines(&self) -> impl Iterator<Item = Bytes> + '_ {
        let mut begin = 0;
        std::iter::from_fn(move || {
            let rest = &self.bytes[begin..];
            if rest.is_empty() {
                return None;
            }
            let end = begin + rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            let line = self.bytes.slice(begin..end);
            begin = end;
            Some(line)
        })
    }
}

/// When a batch is full: whichever comes first. The collector checks the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub events: u64,
    pub bytes: usize,
}

/// The batch that is being filled.
#[derive(Debug)]
pub(crate) struct Open {
    limits: Limits,
    pub(crate) bytes: Vec<u8>,
    pub(crate) events: u64,
    since: Instant,
}

impl Open {
    pub(crate) fn new(limits: Limits, now: Instant) -> Self {
        Self { limits, bytes: Vec::new(), events: 0, since: now }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.events >= self.limits.events || self.bytes.len() >= self.limits.bytes
    }

    /// Closes the batch and returns it, unless it is empty.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Batch> {
        let since = std::mem::replace(&mut self.since, now);
        if self.events == 0 {
            return None;
        }
        // Allocates as much as the last batch had: growing in steps would copy the bytes repeatedly.
        let next = Vec::with_capacity(self.bytes.len() + self.bytes.len() / 8);
        let bytes = std::mem::replace(&mut self.bytes, next).into();
        Some(Batch { bytes, events: std::mem::take(&mut self.events), since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_after_their_line_feeds() {
        let bytes = Bytes::from_static(b"a\nbb\n\nc");
        let batch = Batch { bytes, events: 4, since: Instant::now() };
        let lines: Vec<_> = batch.lines().collect();
        assert_eq!(lines, ["a\n", "bb\n", "\n", "c"]);
    }

    #[test]
    fn a_batch_is_full_by_events_or_bytes() {
        let now = Instant::now();
        let mut open = Open::new(Limits { events: 2, bytes: 10 }, now);
        assert!(open.take(now).is_none());
        open.bytes.extend_from_slice(b"123456789\n");
        open.events = 1;
        assert!(open.is_full());
        assert_eq!(open.take(now).expect("batch").events, 1);
        open.events = 2;
        assert!(open.is_full());
    }
}
