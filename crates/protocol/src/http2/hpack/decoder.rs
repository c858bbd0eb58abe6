//! Decodes header blocks to fields (RFC 7541 §3, §6). Fields are borrowed from a table, the block or a reused
//! buffer, so decoding allocates nothing.
//!
//! After an error the table no longer matches the peer's: the connection must end (RFC 9113 §4.3).

use super::error::HpackError;
use super::static_table::FIELDS;
use super::table::Table;
use super::{huffman, integer};

pub struct Decoder {
    table: Table,
    /// The announced limit of the peer's table.
    size_max: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// A string literal: bytes of the block, or decoded into the buffer.
enum Literal<'a> {
    Plain(&'a [u8]),
    Decoded,
}

impl Decoder {
    /// Creates a table of `size_max` bytes, which must be our SETTINGS_HEADER_TABLE_SIZE.
    pub fn new(size_max: usize) -> Self {
        Self { table: Table::new(size_max), size_max, name: Vec::new(), value: Vec::new() }
    }

    /// Decodes a complete header block and calls `on` with name and value of each field.
    pub fn decode(&mut self, mut block: &[u8], on: &mut impl FnMut(&[u8], &[u8])) -> Result<(), HpackError> {
        self.size_updates(&mut block)?;
        while let Some(&first) = block.first() {
            match first {
                // §6.1
                0x80.. => {
                    let index = integer::take(&mut block, 7)?;
                    let (name, value) = self.at(index)?;
                    on(name, value);
                }
                // §6.2.1
                0x40..=0x7f => self.literal(&mut block, 6, true, on)?,
                // §4.2: only before the first field.
                0x20..=0x3f => return Err(HpackError("a table size update after a field")),
                // §6.2.2, §6.2.3: "never indexed" only matters to intermediaries.
                0x00..=0x1f => self.literal(&mut block, 4, false, on)?,
            }
        }
        Ok(())
    }

    /// §6.3. An encoder announces the smallest and the final size since the previous block (§4.2).
    fn size_updates(&mut self, block: &mut &[u8]) -> Result<(), HpackError> {
        let mut count = 0;
        while let Some(0x20..=0x3f) = block.first() {
            let size = integer::take(block, 5)?;
            count += 1;
            if size > self.size_max || count > 2 {
                return Err(HpackError("the table size exceeds the announced maximum"));
            }
            self.table.resize(size);
        }
        Ok(())
    }

    /// §2.3.3: the static table's fields, then the dynamic table's, newest first.
    fn at(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let field = match index.checked_sub(1) {
            Some(place) if place < FIELDS.len() => {
                let (name, value) = FIELDS[place];
                Some((name.as_bytes(), value.as_bytes()))
            }
            Some(place) => self.table.get(place - FIELDS.len()),
            None => None,
        };
        field.ok_or(HpackError("an index is out of range"))
    }

    fn literal(
        &mut self,
        block: &mut &[u8],
        prefix_bits: u32,
        add: bool,
        on: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let name = match integer::take(block, prefix_bits)? {
            0 => string(block, &mut self.name)?,
            index if index <= FIELDS.len() => Literal::Plain(FIELDS[index - 1].0.as_bytes()),
            index => {
                // Copies the name, as adding the field may evict the entry that holds it (§4.4).
                let mut buffer = std::mem::take(&mut self.name);
                buffer.clear();
                buffer.extend_from_slice(self.at(index)?.0);
                self.name = buffer;
                Literal::Decoded
            }
        };
        let value = string(block, &mut self.value)?;
        let name = name.bytes(&self.name);
        let value = value.bytes(&self.value);
        on(name, value);
        if add {
            self.table.add(name, value);
        }
        Ok(())
    }
}

impl<'a> Literal<'a> {
    fn bytes(self, buffer: &'a [u8]) -> &'a [u8] {
        match self {
            Literal::Plain(bytes) => bytes,
            Literal::Decoded => buffer,
        }
    }
}

/// §5.2.
fn string<'a>(block: &mut &'a [u8], buffer: &mut Vec<u8>) -> Result<Literal<'a>, HpackError> {
    let coded = block.first().is_some_and(|first| first & 0x80 != 0);
    let len = integer::take(block, 7)?;
    let (bytes, rest) = block.split_at_checked(len).ok_or(HpackError("the block ends within a string"))?;
    *block = rest;
    if !coded {
        return Ok(Literal::Plain(bytes));
    }
    buffer.clear();
    huffman::decode(bytes, buffer)?;
    Ok(Literal::Decoded)
}
