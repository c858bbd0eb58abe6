//! Resolves an address to its function: the full name by a symbol table, and on request inlined functions and lines by
//! the program's debug information.
//!
//! The table takes microseconds and little memory, so it suits continuous profiles. Debug information takes far more of
//! both (docs/performance.md): it is read in batches for on-demand profiles, and dropped after each batch.

mod table;

use std::collections::{BTreeSet, HashMap};
use std::ffi::c_void;

use backtrace::SymbolName;

use crate::map::{self, Map};
use crate::profile::Detail;
use table::Table;

/// Addresses are resolved in order, so that neighbours share debug information.
const BATCH: usize = 64;

/// A function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) system_name: String,
    /// Empty, with the line 0: unknown.
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// The tables read so far, by path; none for a file without one.
#[derive(Default)]
pub(crate) struct Symbols(HashMap<String, Option<Table>>);

impl Symbols {
    /// The functions at each address, innermost first; none if unknown. Addresses are return addresses, one instruction
    /// after the call.
    pub(crate) fn look_up(
        &mut self,
        addresses: impl Iterator<Item = usize>,
        maps: &[Map],
        detail: Detail,
    ) -> HashMap<usize, Vec<Function>> {
        let addresses: Vec<usize> = addresses.collect::<BTreeSet<_>>().into_iter().collect();
        let mut found = HashMap::with_capacity(addresses.len());
        for batch in addresses.chunks(BATCH) {
            for address in batch {
                let inlined =
                    if detail == Detail::Lines { by_debug_information(*address) } else { Vec::new() };
                let whole = self.whole_name(address.saturating_sub(1) as u64, maps);
                found.insert(*address, named(inlined, whole.as_deref()));
            }
            if detail == Detail::Lines {
                backtrace::clear_symbol_cache();
            }
        }
        found
    }

    fn whole_name(&mut self, address: u64, maps: &[Map]) -> Option<Vec<u8>> {
        let map = map::at(maps, address)?;
        let table = self.0.entry(map.path.clone()).or_insert_with(|| {
            let table = Table::read(map);
            table
                .inspect_err(|reason| {
                    tracing::debug!(map.path, reason, "no symbol table: functions have no full names")
                })
                .ok()
        });
        table.as_ref()?.name(address - map.start + map.offset)
    }
}

fn by_debug_information(address: usize) -> Vec<Function> {
    let mut functions = Vec::new();
    backtrace::resolve(address as *mut c_void, |symbol| {
        let Some(name) = symbol.name() else { return };
        functions.push(Function {
            name: plain(&name),
            system_name: String::from_utf8_lossy(name.as_bytes()).into_owned(),
            file: symbol.filename().map(|file| file.display().to_string()).unwrap_or_default(),
            line: symbol.lineno().unwrap_or(0),
        });
    });
    functions
}

/// Sets the full name of the outermost function, into which the others were inlined.
fn named(mut functions: Vec<Function>, whole: Option<&[u8]>) -> Vec<Function> {
    let Some(whole) = whole else { return functions };
    let (file, line) = functions.pop().map(|function| (function.file, function.line)).unwrap_or_default();
    functions.push(Function {
        name: plain(&SymbolName::new(whole)),
        system_name: String::from_utf8_lossy(whole).into_owned(),
        file,
        line,
    });
    functions
}

/// Without the hash suffix.
fn plain(name: &SymbolName<'_>) -> String {
    format!("{name:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_with_a_path() -> usize {
        std::hint::black_box(a_function_with_a_path as *const () as usize)
    }

    #[test]
    fn a_function_has_its_full_name_and_its_line_on_request() {
        let (address, maps) = (a_function_with_a_path() + 1, map::read());
        let mut symbols = Symbols::default();
        for detail in [Detail::Functions, Detail::Lines] {
            let found = symbols.look_up([address, 7].into_iter(), &maps, detail);
            let function = &found[&address][0];
            assert_eq!(function.name, "noroshi_profiling::symbol::tests::a_function_with_a_path");
            let lines = detail == Detail::Lines;
            assert_eq!((function.file.ends_with("symbol.rs"), function.line > 0), (lines, lines));
            assert_eq!(found[&7], [], "not in a file");
        }
    }

    #[test]
    fn functions_of_libraries_have_names_too() {
        let address = libc::getpid as *const () as usize + 1;
        let found = Symbols::default().look_up([address].into_iter(), &map::read(), Detail::Functions);
        assert!(found[&address][0].name.contains("getpid"), "{:?}", found[&address]);
    }

    #[test]
    fn the_outermost_function_has_its_full_name() {
        let function = |name: &str| Function {
            name: name.to_owned(),
            system_name: name.to_owned(),
            file: "shard.rs".to_owned(),
            line: 7,
        };
        let functions = vec![function("{closure#0}"), function("run")];
        let whole = named(functions.clone(), Some(b"_ZN7gateway5shard3run17h0123456789abcdefE"));
        assert_eq!(whole[0], functions[0]);
        assert_eq!((whole[1].name.as_str(), whole[1].line), ("gateway::shard::run", 7));
        assert_eq!(named(functions.clone(), None), functions);
    }
}
