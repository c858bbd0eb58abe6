//! Encodes fields to header blocks (RFC 7541 §6). The caller marks the fields that repeat: they enter the
//! dynamic table and then cost one or two bytes. Other fields are written out each time and never evict them.

use super::static_table::{self, FIELDS};
use super::table::Table;
use super::{TABLE_BYTES, integer};

pub struct Encoder {
    table: Table,
    /// The smallest size set since the last block, if the next block must announce a change (§4.2).
    smallest: Option<usize>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    pub fn new() -> Self {
        Self { table: Table::new(TABLE_BYTES), smallest: None }
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE, up to [`TABLE_BYTES`]: about a dozen fields repeat, and
    /// a longer table is slower to search.
    pub fn set_size_max(&mut self, offered: usize) {
        let size = offered.min(TABLE_BYTES);
        if size != self.table.size_max() {
            self.smallest = Some(self.smallest.map_or(size, |smallest| smallest.min(size)));
            self.table.resize(size);
        }
    }

    /// Must be called at the start of each header block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.smallest.take() {
            // §4.2: announces the smallest size first, so that the peer evicts the same entries.
            if smallest < self.table.size_max() {
                integer::push(out, 0x20, 5, smallest);
            }
            integer::push(out, 0x20, 5, self.table.size_max());
        }
    }

    /// Appends a field of the static table by its index.
    pub fn static_field(&mut self, index: usize, out: &mut Vec<u8>) {
        integer::push(out, 0x80, 7, index);
    }

    /// Appends one field. `indexed` adds it to the dynamic table unless it is already there.
    pub fn field(&mut self, name: &[u8], value: &[u8], indexed: bool, out: &mut Vec<u8>) {
        let dynamic = |index: usize| FIELDS.len() + 1 + index;
        if indexed && let Some(index) = self.table.find(name, value) {
            return integer::push(out, 0x80, 7, dynamic(index));
        }
        // A field that fills most of the table would evict everything, only to be evicted by the next one.
        let add = indexed && name.len() + value.len() + 32 <= self.table.size_max() / 4 * 3;
        let (first, prefix_bits) = if add { (0x40, 6) } else { (0x00, 4) };
        match static_table::index_of(name).or_else(|| self.table.find_name(name).map(dynamic)) {
            Some(index) => integer::push(out, first, prefix_bits, index),
            None => {
                out.push(first);
                string(name, out);
            }
        }
        string(value, out);
        if add {
            self.table.add(name, value);
        }
    }
}

/// §5.2, without Huffman coding.
fn string(bytes: &[u8], out: &mut Vec<u8>) {
    integer::push(out, 0, 7, bytes.len());
    out.extend_from_slice(bytes);
}
