//! Which function an address is in, and what was inlined there: from the program's own debug information.
//!
//! Reading that takes tens of milliseconds and, kept, hundreds of megabytes, while windows that follow each other have
//! most addresses in common. So names are kept, each text once, and the debug information is not: what is new in a
//! window is looked up in batches, and what was read for a batch is forgotten with it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::c_void;
use std::sync::Arc;

/// Ten times what a node under load was seen to have; when it is full it begins anew.
const ADDRESSES_MAX: usize = 65_536;

/// Looked up one after the other, in order, so that neighbours share what is read for them.
const BATCH: usize = 256;

/// A function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: Arc<str>,
    pub(crate) system_name: Arc<str>,
    pub(crate) file: Arc<str>,
    pub(crate) line: u32,
}

#[derive(Default)]
pub(crate) struct Symbols {
    known: HashMap<usize, Box<[Function]>>,
    texts: HashSet<Arc<str>>,
}

impl Symbols {
    /// From here on [`Symbols::at`] knows them all. Each is one behind its instruction, as return addresses are.
    pub(crate) fn learn(&mut self, addresses: impl Iterator<Item = usize> + Clone) {
        let unknown = |symbols: &Self| -> BTreeSet<usize> {
            addresses.clone().filter(|address| !symbols.known.contains_key(address)).collect()
        };
        let mut new = unknown(self);
        if self.known.len() + new.len() > ADDRESSES_MAX {
            *self = Self::default();
            new = unknown(self);
        }
        let new: Vec<usize> = new.into_iter().collect();
        for batch in new.chunks(BATCH) {
            for address in batch {
                let functions = self.look_up(*address);
                self.known.insert(*address, functions);
            }
            backtrace::clear_symbol_cache();
        }
    }

    /// The innermost first; empty where nothing is known.
    pub(crate) fn at(&self, address: usize) -> &[Function] {
        self.known.get(&address).map_or(&[], |functions| functions)
    }

    fn look_up(&mut self, address: usize) -> Box<[Function]> {
        let mut functions = Vec::new();
        backtrace::resolve(address as *mut c_void, |symbol| {
            let Some(name) = symbol.name() else { return };
            functions.push(Function {
                // Without the hash at its end.
                name: self.text(format!("{name:#}")),
                system_name: self.text(String::from_utf8_lossy(name.as_bytes()).into_owned()),
                file: self.text(symbol.filename().map(|file| file.display().to_string()).unwrap_or_default()),
                line: symbol.lineno().unwrap_or(0),
            });
        });
        functions.into()
    }

    fn text(&mut self, text: String) -> Arc<str> {
        if let Some(known) = self.texts.get(text.as_str()) {
            return known.clone();
        }
        let text: Arc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }
}
