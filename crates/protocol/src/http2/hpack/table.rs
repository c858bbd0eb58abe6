//! The dynamic table (RFC 7541 §2.3.2, §4): first in, first out, bounded by bytes. Fields are contiguous in
//! one buffer, so adding one allocates nothing once the buffer has reached its size.

use std::collections::VecDeque;

/// RFC 7541 §4.1: the overhead that an entry counts in addition to its bytes.
const ENTRY_BYTES: usize = 32;

pub(super) struct Table {
    /// Name and value of each entry, oldest first. May start with bytes of evicted entries.
    bytes: Vec<u8>,
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// §4.1, `0 <= size <= size_max`.
    size: usize,
    size_max: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The start of the name in `bytes`.
    start: usize,
    name_len: usize,
    value_len: usize,
}

impl Entry {
    fn size(self) -> usize {
        self.name_len + self.value_len + ENTRY_BYTES
    }
}

impl Table {
    pub(super) fn new(size_max: usize) -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, size_max }
    }

    pub(super) fn size_max(&self) -> usize {
        self.size_max
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// §4.3: a smaller size evicts entries immediately.
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(size_max);
    }

    /// Name and value at `index`, 0 for the newest.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = *self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        let field = &self.bytes[entry.start..entry.start + entry.name_len + entry.value_len];
        Some(field.split_at(entry.name_len))
    }

    /// §4.4: a field larger than the table empties it and is not added.
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        let mut entry = Entry { start: 0, name_len: name.len(), value_len: value.len() };
        if entry.size() > self.size_max {
            return self.evict(0);
        }
        self.evict(self.size_max - entry.size());
        self.compact();
        entry.start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(entry);
        self.size += entry.size();
    }

    /// The index of a field. Our tables have about a dozen entries: comparing the lengths and last bytes of
    /// all, then the rest of the remaining one, is faster than hashing.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<usize> {
        self.entries.iter().rev().position(|entry| {
            if entry.name_len != name.len() || entry.value_len != value.len() {
                return false;
            }
            let (entry_name, rest) = self.bytes[entry.start..].split_at(entry.name_len);
            let entry_value = &rest[..entry.value_len];
            entry_value.last() == value.last() && entry_name == name && entry_value == value
        })
    }

    /// The index of the newest field with this name.
    pub(super) fn find_name(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().rev().position(|entry| {
            entry.name_len == name.len() && self.bytes[entry.start..entry.start + entry.name_len] == *name
        })
    }

    fn evict(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.size -= oldest.size();
        }
    }

    /// Moves the entries to the front once the evicted bytes before them reach the maximum size, so each
    /// added byte is moved at most once.
    fn compact(&mut self) {
        let start = self.entries.front().map_or(self.bytes.len(), |oldest| oldest.start);
        if start < self.size_max.max(256) {
            return;
        }
        self.bytes.drain(..start);
        for entry in &mut self.entries {
            entry.start -= start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entries_are_evicted_and_the_buffer_stays_small() {
        let mut table = Table::new(200);
        for i in 0..10_000u32 {
            let value = format!("value {i}");
            table.add(b"name", value.as_bytes());
            assert_eq!(table.get(0), Some((&b"name"[..], value.as_bytes())));
            assert!(table.size() <= 200);
            assert!(table.bytes.capacity() <= 1024, "{}", table.bytes.capacity());
        }
        assert_eq!(table.entries.len(), 200 / (4 + 10 + 32));
        assert_eq!(table.get(1), Some((&b"name"[..], &b"value 9998"[..])));
        assert_eq!(table.get(table.entries.len()), None);
        assert_eq!(table.get(usize::MAX - 1), None);
    }

    #[test]
    fn oversized_field_empties_the_table() {
        let mut table = Table::new(100);
        table.add(b"a", b"b");
        table.add(b"large", &[b'x'; 64]);
        assert_eq!((table.get(0), table.size()), (None, 0));
        table.add(b"fits", &[b'x'; 64]);
        assert_eq!(table.size(), 100);
        table.resize(99);
        assert_eq!((table.get(0), table.size()), (None, 0));
    }

    #[test]
    fn fields_are_found_by_name_and_value_or_by_name() {
        let mut table = Table::new(4096);
        table.add(b"a", b"1");
        table.add(b"b", b"1");
        table.add(b"a", b"2");
        assert_eq!(table.find(b"a", b"1"), Some(2));
        assert_eq!(table.find(b"a", b"2"), Some(0));
        assert_eq!(table.find(b"a", b"3"), None);
        assert_eq!(table.find_name(b"a"), Some(0));
        assert_eq!(table.find_name(b"b"), Some(1));
        assert_eq!(table.find_name(b"c"), None);
    }
}
