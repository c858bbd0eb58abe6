//! Batches of lines: all sinks share the same bytes.

use std::sync::Arc;
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
    /// The sources of the lines. The sums of their bytes and events are those of the batch.
    pub runs: Arc<[Run]>,
}

/// Consecutive lines of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The thread that emitted them, by a number of this log. Only the lines of one source have an order.
    pub source: u32,
    pub bytes: u32,
    pub events: u32,
}

impl Batch {
    /// A batch whose lines have one source.
    pub fn of_one_source(bytes: Bytes, events: u64, since: Instant) -> Self {
        let run = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let run = Run { source: 0, bytes: run(bytes.len() as u64), events: run(events) };
        Self { bytes, events, since, runs: Arc::new([run]) }
    }

    /// The lines, each with its line feed.
    pub fn lines(&self) -> impl Iterator<Item = Bytes> + '_ {
        lines(&self.bytes)
    }
}

/// Splits bytes after their line feeds.
pub(crate) fn lines(bytes: &Bytes) -> impl Iterator<Item = Bytes> + '_ {
    let mut begin = 0;
    std::iter::from_fn(move || {
        let rest = &bytes[begin..];
        if rest.is_empty() {
            return None;
        }
        let end = begin + rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        let line = bytes.slice(begin..end);
        begin = end;
        Some(line)
    })
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
    bytes: Vec<u8>,
    events: u64,
    since: Instant,
    runs: Vec<Run>,
}

impl Open {
    pub(crate) fn new(limits: Limits, now: Instant) -> Self {
        Self { limits, bytes: Vec::new(), events: 0, since: now, runs: Vec::new() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.events >= self.limits.events || self.bytes.len() >= self.limits.bytes
    }

    /// Appends lines of a source. `write` returns their number.
    pub(crate) fn write(&mut self, source: u32, write: impl FnOnce(&mut Vec<u8>) -> u32) {
        let before = self.bytes.len();
        let events = write(&mut self.bytes);
        // Far below 4 GiB: a batch has few MiB.
        let bytes = u32::try_from(self.bytes.len() - before).unwrap_or(u32::MAX);
        self.events += u64::from(events);
        match self.runs.last_mut() {
            Some(last) if last.source == source => {
                last.bytes += bytes;
                last.events += events;
            }
            _ if events > 0 => self.runs.push(Run { source, bytes, events }),
            _ => {}
        }
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
        let runs = std::mem::take(&mut self.runs).into();
        Some(Batch { bytes, events: std::mem::take(&mut self.events), since, runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_after_their_line_feeds() {
        let batch = Batch::of_one_source(Bytes::from_static(b"a\nbb\n\nc"), 4, Instant::now());
        let lines: Vec<_> = batch.lines().collect();
        assert_eq!(lines, ["a\n", "bb\n", "\n", "c"]);
    }

    fn write(open: &mut Open, source: u32, text: &str) {
        open.write(source, |bytes| {
            bytes.extend_from_slice(text.as_bytes());
            u32::try_from(text.lines().count()).expect("few lines")
        });
    }

    #[test]
    fn a_batch_is_full_by_events_or_bytes() {
        let now = Instant::now();
        let mut open = Open::new(Limits { events: 2, bytes: 10 }, now);
        assert!(open.take(now).is_none());
        write(&mut open, 0, "123456789\n");
        assert!(open.is_full());
        assert_eq!(open.take(now).expect("batch").events, 1);
        write(&mut open, 0, "1\n2\n");
        assert!(open.is_full());
    }

    #[test]
    fn consecutive_lines_of_a_source_are_one_run() {
        let mut open = Open::new(Limits { events: 9, bytes: 99 }, Instant::now());
        for (source, text) in [(1, "a\n"), (1, "b\nc\n"), (2, ""), (2, "d\n"), (1, "e\n")] {
            write(&mut open, source, text);
        }
        let batch = open.take(Instant::now()).expect("batch");
        let run = |source, bytes, events| Run { source, bytes, events };
        assert_eq!(batch.runs[..], [run(1, 6, 3), run(2, 2, 1), run(1, 2, 1)]);
        assert_eq!((batch.bytes.len(), batch.events), (10, 5));
    }
}
