//! The limits of PutRecordBatch: what fits into one call, and into one record. Pure.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::batch::Batch;

/// Records per call (PutRecordBatch, Records).
pub(crate) const RECORDS_MAX: usize = 500;

/// Bytes per call, all its records together.
pub(crate) const CALL_BYTES_MAX: usize = 4 << 20;

/// Bytes per record, before it is encoded for the wire.
pub(crate) const RECORD_BYTES_MAX: usize = 1_000 << 10;

/// Some lines, and their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedRecord {
    pub(crate) bytes: Bytes,
    pub(crate) events: u64,
}

/// Splits a batch into records of at most `record_bytes`, in order. A longer line is a record of its own.
pub(crate) fn records(batch: &Batch, record_bytes: usize) -> VecDeque<SharedRecord> {
    let (mut records, mut begin, mut end, mut events) = (VecDeque::new(), 0, 0, 0);
    for line in batch.lines() {
        if events > 0 && end - begin + line.len() > record_bytes {
            records.push_back(SharedRecord { bytes: batch.bytes.slice(begin..end), events });
            (begin, events) = (end, 0);
        }
        end += line.len();
        events += 1;
    }
    if events > 0 {
        records.push_back(SharedRecord { bytes: batch.bytes.slice(begin..end), events });
    }
    records
}

/// How many of the first records make one call: at least one.
pub(crate) fn call(records: &VecDeque<SharedRecord>) -> usize {
    let mut bytes = 0;
    let fits = |record: &&SharedRecord| {
        bytes += record.bytes.len();
        bytes <= CALL_BYTES_MAX
    };
    records.iter().take(RECORDS_MAX).take_while(fits).count().max(1).min(records.len())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn batch(lines: usize, bytes: usize) -> Batch {
        let line = format!("{}\n", "x".repeat(bytes - 1));
        Batch { bytes: Bytes::from(line.repeat(lines)), events: lines as u64, since: Instant::now() }
    }

    #[test]
    fn lines_share_records_and_none_is_split() {
        let records = |lines, bytes, record_bytes| {
            let batch = batch(lines, bytes);
            let records = records(&batch, record_bytes);
            let whole: Vec<u8> = records.iter().flat_map(|record| record.bytes.to_vec()).collect();
            assert_eq!(whole, batch.bytes);
            records.iter().map(|record| record.events).collect::<Vec<_>>()
        };
        assert_eq!(records(10, 100, 0), [1; 10]);
        assert_eq!(records(10, 100, 99), [1; 10]);
        assert_eq!(records(10, 100, 399), [3, 3, 3, 1]);
        assert_eq!(records(10, 100, 8_000), [10]);
        assert_eq!(records(0, 100, 8_000), [0; 0]);
    }

    #[test]
    fn a_call_has_500_records_and_4_mib() {
        assert_eq!(call(&records(&batch(600, 10), 0)), 500);
        // 4 MiB are 8 records of 512 KiB.
        assert_eq!(call(&records(&batch(9, 512 << 10), 0)), 8);
        assert_eq!(call(&records(&batch(3, 10), 0)), 3);
        assert_eq!(call(&VecDeque::new()), 0);
    }
}
