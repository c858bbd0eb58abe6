//! Which lines may be sent now, and the calls that they make, within the limits of PutRecordBatch. Pure: time is an
//! argument.
//!
//! A source has at most one record in flight. The lines behind it wait until Firehose has accepted it, so lines of one
//! source never overtake each other, whatever fails. A failed record is sent again after a pause; other sources
//! continue. If each line is a record, a source has one call in flight instead, and the failed ones of its lines make
//! the next call alone: they arrive after later lines of their own call, but before those of any other.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_egress::Backoff;

use crate::batch::{Batch, lines};

/// Records per call (PutRecordBatch, Records).
pub(super) const RECORDS_MAX: usize = 500;
/// Bytes per record, before it is encoded for the wire.
pub(super) const RECORD_BYTES_MAX: usize = 1_000 << 10;
/// A call takes no further record from this size on: large records go in parallel, small ones share a call. The largest
/// call, 256 + 1,000 KiB, is far below the limit of 4 MiB.
const CALL_BYTES: usize = 256 << 10;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The lines of some batches that Firehose has not accepted yet.
#[derive(Default)]
pub(super) struct Sources {
    sources: Vec<Source>,
    /// Takes turns: the source that the next call considers first.
    turn: usize,
    /// Lines that are longer than a record may be.
    pub(super) too_long: u64,
    /// Lines that Firehose rejected permanently.
    pub(super) rejected: u64,
    /// 0: each line is a record.
    record_bytes: usize,
}

struct Source {
    pieces: VecDeque<Piece>,
    /// If each line is a record: the pieces at the front that were sent before.
    again: usize,
    in_flight: bool,
    /// After a failure.
    not_before: Option<Instant>,
    backoff: Backoff,
}

/// Consecutive lines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    bytes: Bytes,
    events: u64,
}

/// A record in flight.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    source: usize,
    pieces: Vec<Piece>,
}

impl Record {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.pieces.iter().map(|piece| piece.bytes.len()).sum());
        self.pieces.iter().for_each(|piece| bytes.extend_from_slice(&piece.bytes));
        bytes
    }

    pub(super) fn events(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.events).sum()
    }
}

impl Sources {
    /// `one_source`: all lines have an order, whatever thread they are from.
    pub(super) fn new(batches: &[Batch], record_bytes: usize, one_source: bool) -> Self {
        let mut all = Self { record_bytes, ..Self::default() };
        let mut numbers = HashMap::new();
        for batch in batches {
            let mut begin = 0;
            for run in batch.runs.iter() {
                let end = begin + run.bytes as usize;
                let key = if one_source { 0 } else { run.source };
                let index = *numbers.entry(key).or_insert(all.sources.len());
                if index == all.sources.len() {
                    all.sources.push(Source::default());
                }
                let piece = Piece { bytes: batch.bytes.slice(begin..end), events: u64::from(run.events) };
                all.sources[index].pieces.push_back(piece);
                begin = end;
            }
        }
        all
    }

    /// The records of the next call. Empty: nothing may be sent now.
    pub(super) fn call(&mut self, now: Instant) -> Vec<Record> {
        let (mut call, mut bytes, count) = (Vec::new(), 0, self.sources.len());
        for index in (0..count).map(|step| (self.turn + step) % count) {
            if call.len() >= RECORDS_MAX || bytes >= CALL_BYTES {
                self.turn = index;
                break;
            }
            if !self.sources[index].is_ready(now) {
                continue;
            }
            let records_max = match (self.record_bytes, self.sources[index].again) {
                (0, 0) => RECORDS_MAX - call.len(),
                (0, again) => again.min(RECORDS_MAX - call.len()),
                _ => 1,
            };
            let before = call.len();
            while call.len() - before < records_max && bytes < CALL_BYTES {
                let source = &mut self.sources[index];
                let Some(pieces) = source.take(self.record_bytes, &mut self.too_long) else { break };
                bytes += pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>();
                (source.in_flight, source.not_before) = (true, None);
                source.again = source.again.saturating_sub(1);
                call.push(Record { source: index, pieces });
            }
        }
        call
    }

    /// When a source may be sent again whose last record failed.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        let waiting = self.sources.iter().filter(|source| !source.in_flight && !source.pieces.is_empty());
        waiting.filter_map(|source| source.not_before).min()
    }

    /// The answer to a call: the records that it accepted (or rejected permanently), and those to send again.
    pub(super) fn answered(&mut self, accepted: &[Record], failed: Vec<Record>, now: Instant) {
        for record in accepted {
            let source = &mut self.sources[record.source];
            source.in_flight = false;
            source.backoff.reset();
        }
        for index in self.put_back(failed) {
            let source = &mut self.sources[index];
            source.not_before.get_or_insert_with(|| now + source.backoff.pause());
        }
    }

    /// Returns the records of a call without an answer. The caller waits before the next one.
    pub(super) fn unanswered(&mut self, call: Vec<Record>) {
        self.put_back(call);
    }

    /// Returns the sources of the records.
    fn put_back(&mut self, records: Vec<Record>) -> Vec<usize> {
        let back = |record: Record| {
            let source = &mut self.sources[record.source];
            source.in_flight = false;
            source.again += 1;
            record.pieces.into_iter().rev().for_each(|piece| source.pieces.push_front(piece));
            record.source
        };
        // The last record first: each goes to the front.
        records.into_iter().rev().map(back).collect()
    }
}

impl Default for Source {
    fn default() -> Self {
        let backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        Self { pieces: VecDeque::new(), again: 0, in_flight: false, not_before: None, backoff }
    }
}

impl Source {
    fn is_ready(&self, now: Instant) -> bool {
        !self.in_flight && self.not_before.is_none_or(|at| at <= now)
    }

    /// The next lines of at most `bytes_max`, but at least one line.
    fn take(&mut self, bytes_max: usize, too_long: &mut u64) -> Option<Vec<Piece>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(piece) = self.pieces.front_mut() {
            if bytes + piece.bytes.len() <= bytes_max {
                bytes += piece.bytes.len();
                taken.extend(self.pieces.pop_front());
                continue;
            }
            let part = piece.split(bytes_max - bytes.min(bytes_max), taken.is_empty());
            if piece.bytes.is_empty() {
                self.pieces.pop_front();
            }
            match part {
                // A record of its own would make its call fail. Lines are far shorter.
                Some(part) if part.bytes.len() > RECORD_BYTES_MAX => *too_long += part.events,
                Some(part) => {
                    taken.push(part);
                    break;
                }
                None => break,
            }
        }
        (!taken.is_empty()).then_some(taken)
    }
}

impl Piece {
    /// Removes as many lines as have room. `one`: the first line even if it has none.
    fn split(&mut self, room: usize, one: bool) -> Option<Piece> {
        let fits = self.bytes[..room.min(self.bytes.len())].iter().rposition(|byte| *byte == b'\n');
        let end = match fits {
            Some(at) => at + 1,
            None if one => lines(&self.bytes).next()?.len(),
            None => return None,
        };
        let bytes = self.bytes.split_to(end);
        let feeds = || bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let events = if self.bytes.is_empty() { self.events } else { feeds() };
        self.events -= events;
        Some(Piece { bytes, events })
    }
}

#[cfg(test)]
mod tests;
