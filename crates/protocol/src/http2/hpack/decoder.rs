//! Header blocks to fields (RFC 7541 §3, §6). A field is handed out borrowed, from a table, from the block
//! or from a buffer that is used again, so that reading one allocates nothing.
//!
//! An error leaves the table out of step with the peer's: the connection is over (RFC 9113 §4.3).

use super::static_table::FIELDS;
use super::table::Table;
use super::{huffman, integer};

/// What is wrong with a header block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HpackError(pub &'static str);

pub struct Decoder {
    table: Table,
    /// What we announced: the peer's table must not be larger.
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
    /// A table of `size_max` bytes, as our SETTINGS_HEADER_TABLE_SIZE says.
    pub fn new(size_max: usize) -> Self {
        Self { table: Table::new(size_max), size_max, name: Vec::new(), value: Vec::new() }
    }

    /// Reads a whole header block and calls `on` with the name and value of each field.
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
                // §6.2.2, §6.2.3: never indexed matters to who would encode it again.
                0x00..=0x1f => self.literal(&mut block, 4, false, on)?,
            }
        }
        Ok(())
    }

    /// §6.3. The smallest and the last size since the block before are what an encoder tells (§4.2).
    fn size_updates(&mut self, block: &mut &[u8]) -> Result<(), HpackError> {
        let mut count = 0;
        while let Some(0x20..=0x3f) = block.first() {
            let size = integer::take(block, 5)?;
            count += 1;
            if size > self.size_max || count > 2 {
                return Err(HpackError("a table size that was not offered"));
            }
            self.table.resize(size);
        }
        Ok(())
    }

    /// §2.3.3: the static table's fields, then the dynamic table's from the newest.
    fn at(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let field = match index.checked_sub(1) {
            Some(place) if place < FIELDS.len() => {
                let (name, value) = FIELDS[place];
                Some((name.as_bytes(), value.as_bytes()))
            }
            Some(place) => self.table.get(place - FIELDS.len()),
            None => None,
        };
        field.ok_or(HpackError("an index of no field"))
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
                // A copy, as adding the field may evict the entry that has its name (§4.4).
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
    let (bytes, rest) = block.split_at_checked(len).ok_or(HpackError("a block that ends in a string"))?;
    *block = rest;
    if !coded {
        return Ok(Literal::Plain(bytes));
    }
    buffer.clear();
    huffman::decode(bytes, buffer)?;
    Ok(Literal::Decoded)
}
