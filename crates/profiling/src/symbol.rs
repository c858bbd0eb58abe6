//! Which function an address is in, and what was inlined there: from the program's own debug information.
//!
//! Looking an address up costs tens of microseconds, and windows that follow each other have nearly all addresses in
//! common: what was found is kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::Arc;

/// Ten times what a node under load was seen to have; when it is full it begins anew.
const ADDRESSES_MAX: usize = 65_536;

/// A function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) system_name: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

#[derive(Default)]
pub(crate) struct Symbols {
    known: HashMap<usize, Arc<[Function]>>,
}

impl Symbols {
    /// The innermost first; empty where nothing is known. `address` is one behind the instruction, as return addresses
    /// are.
    pub(crate) fn at(&mut self, address: usize) -> Arc<[Function]> {
        if self.known.len() >= ADDRESSES_MAX {
            self.known.clear();
        }
        match self.known.entry(address) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => place.insert(look_up(address)).clone(),
        }
    }
}

fn look_up(address: usize) -> Arc<[Function]> {
    let mut functions = Vec::new();
    backtrace::resolve(address as *mut c_void, |symbol| {
        let Some(name) = symbol.name() else { return };
        functions.push(Function {
            // Without the hash at its end.
            name: format!("{name:#}"),
            system_name: String::from_utf8_lossy(name.as_bytes()).into_owned(),
            file: symbol.filename().map(|file| file.display().to_string()).unwrap_or_default(),
            line: symbol.lineno().unwrap_or(0),
        });
    });
    functions.into()
}
