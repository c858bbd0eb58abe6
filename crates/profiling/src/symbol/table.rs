//! The symbol table of a program or a library (ELF, `.symtab` and `.dynsym`): the full name of the function at a file
//! offset.
//!
//! In a release build the debug information (`line-tables-only`) has only the last part of a name: `run`, `poll`,
//! `{closure#0}`. The table has the full name, but no inlined functions. It is read once; names stay in the file.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use object::elf::FileHeader64;
use object::read::elf::{ElfFile, ElfSymbol};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
use object::{ReadCache, ReadRef, SymbolKind};

use crate::map::Map;

/// Ten times the longest name seen.
const NAME_BYTES_MAX: usize = 16 << 10;

pub(super) struct Table {
    file: File,
    segments: Vec<Segment>,
    /// By address.
    functions: Vec<Symbol>,
}

/// A loaded part of the file.
struct Segment {
    file: Range<u64>,
    address: u64,
}

struct Symbol {
    addresses: Range<u64>,
    /// The offset of its name in the file.
    name: u64,
}

impl Table {
    /// Reads the table of a mapped file. The error explains why there is none.
    pub(super) fn read(map: &Map) -> Result<Self, String> {
        let file = map.open()?;
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let cache = ReadCache::new(file.try_clone().map_err(|error| failed(&error))?);
        let elf = ElfFile::<FileHeader64<Endianness>, _>::parse(&cache).map_err(|error| failed(&error))?;
        let segment = |segment: object::read::elf::ElfSegment<'_, '_, FileHeader64<Endianness>, _>| {
            let (start, size) = segment.file_range();
            Segment { file: start..start.saturating_add(size), address: segment.address() }
        };
        let segments = elf.segments().map(segment).collect();
        let mut functions = Vec::new();
        let names = |section: &str| elf.section_by_name(section).and_then(|names| names.file_range());
        if let Some((names, _)) = names(".strtab") {
            functions.extend(elf.symbols().filter_map(|symbol| function(&symbol, names, elf.endian())));
        }
        if let Some((names, _)) = names(".dynstr") {
            functions
                .extend(elf.dynamic_symbols().filter_map(|symbol| function(&symbol, names, elf.endian())));
        }
        if functions.is_empty() {
            return Err("the file is stripped".to_owned());
        }
        functions.sort_by_key(|symbol| symbol.addresses.start);
        Ok(Self { file, segments, functions })
    }

    /// The mangled name.
    pub(super) fn name(&self, offset: u64) -> Option<Vec<u8>> {
        let segment = self.segments.iter().find(|segment| segment.file.contains(&offset))?;
        let address = (offset - segment.file.start).checked_add(segment.address)?;
        let behind = self.functions.partition_point(|symbol| symbol.addresses.start <= address);
        let symbol = self.functions[..behind].last().filter(|symbol| symbol.addresses.contains(&address))?;
        let mut name = vec![0; NAME_BYTES_MAX];
        let read = self.file.read_at(&mut name, symbol.name).ok()?;
        let end = name[..read].iter().position(|byte| *byte == 0)?;
        name.truncate(end);
        (!name.is_empty()).then_some(name)
    }
}

fn function<'a, R: ReadRef<'a>>(
    symbol: &ElfSymbol<'a, '_, FileHeader64<Endianness>, R>,
    names: u64,
    endian: Endianness,
) -> Option<Symbol> {
    let (start, size) = (symbol.address(), symbol.size());
    let addresses = start..start.saturating_add(size);
    let name = names + u64::from(symbol.elf_symbol().st_name.get(endian));
    (symbol.kind() == SymbolKind::Text && size > 0 && start > 0).then_some(Symbol { addresses, name })
}
