//! Encodes stacks in pprof's format (`profile.proto`): mappings of the program and its libraries, a location per
//! address, a function per name, and one table of strings whose first is empty.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;

use crate::map::{self, Map};
use crate::profile::{Detail, Error};
use crate::symbol::{Function, Symbols};

pub(crate) mod message;

use message::{Label, Line, Location, Mapping, Profile, Sample, ValueType};

/// The meaning of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Samples; each represents `period` of CPU time.
    Cpu { period: Duration },
    /// Bytes in use; one in `period_bytes` was sampled.
    #[cfg(feature = "heap")]
    Heap { period_bytes: i64 },
}

/// A stack, with its number of samples or bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stack {
    /// Innermost first: the interrupted instruction, then return addresses.
    pub(crate) addresses: Vec<usize>,
    pub(crate) thread: Option<String>,
    pub(crate) value: i64,
}

impl Stack {
    /// All addresses as return addresses, one after their instruction.
    fn returns(&self) -> impl Iterator<Item = usize> {
        let innermost = self.addresses.iter().take(1).map(|address| address.saturating_add(1));
        innermost.chain(self.addresses.iter().skip(1).copied())
    }
}

pub(crate) fn encode(
    kind: Kind,
    stacks: &[Stack],
    symbols: &mut Symbols,
    detail: Detail,
    (from, lasted): (SystemTime, Duration),
) -> Result<Bytes, Error> {
    let maps = map::read();
    let functions = symbols.look_up(stacks.iter().flat_map(Stack::returns), &maps, detail);
    let mut writer = Writer::new(&maps, detail);
    for stack in stacks {
        writer.stack(kind, stack, &functions);
    }
    let profile = writer.finish(kind, from, lasted);
    let failed = |error: &dyn std::fmt::Display| Error::Failed(format!("failed to encode: {error}"));
    let plain = profile.encode_to_vec();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&plain).map_err(|error| failed(&error))?;
    gzip.finish().map(Bytes::from).map_err(|error| failed(&error))
}

#[derive(Default)]
struct Writer {
    profile: Profile,
    texts: HashMap<Arc<str>, i64>,
    locations: HashMap<usize, u64>,
    functions: HashMap<(String, String), u64>,
}

impl Writer {
    fn new(maps: &[Map], detail: Detail) -> Self {
        let mut writer = Self::default();
        writer.text("");
        let lines = detail == Detail::Lines;
        for map in maps {
            let filename = writer.text(&map.path);
            writer.profile.mapping.push(Mapping {
                id: writer.profile.mapping.len() as u64 + 1,
                memory_start: map.start,
                memory_limit: map.limit,
                file_offset: map.offset,
                filename,
                // The profile has names, so a reader need not find the program.
                has_functions: true,
                has_filenames: lines,
                has_line_numbers: lines,
                has_inline_frames: lines,
            });
        }
        writer
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(index) = self.texts.get(text) {
            return *index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.into(), index);
        index
    }

    fn stack(&mut self, kind: Kind, stack: &Stack, functions: &HashMap<usize, Vec<Function>>) {
        let mut sample = Sample::default();
        for address in stack.returns() {
            let location = self.location(address, functions);
            sample.location_id.push(location);
        }
        if sample.location_id.is_empty() {
            return;
        }
        sample.value = match kind {
            Kind::Cpu { period } => vec![stack.value, stack.value.saturating_mul(nanoseconds(period))],
            #[cfg(feature = "heap")]
            Kind::Heap { .. } => vec![stack.value],
        };
        if let Some(thread) = stack.thread.as_deref().filter(|thread| !thread.is_empty()) {
            let (key, str) = (self.text("thread"), self.text(thread));
            sample.label.push(Label { key, str });
        }
        self.profile.sample.push(sample);
    }

    fn location(&mut self, address: usize, functions: &HashMap<usize, Vec<Function>>) -> u64 {
        if let Some(id) = self.locations.get(&address) {
            return *id;
        }
        let mut location = Location {
            id: self.profile.location.len() as u64 + 1,
            // The instruction, not the one after it.
            address: address.saturating_sub(1) as u64,
            ..Location::default()
        };
        let inside =
            |mapping: &&Mapping| (mapping.memory_start..mapping.memory_limit).contains(&location.address);
        location.mapping_id = self.profile.mapping.iter().find(inside).map_or(0, |mapping| mapping.id);
        for function in functions.get(&address).into_iter().flatten() {
            let function_id = self.function(function);
            location.line.push(Line { function_id, line: i64::from(function.line) });
        }
        self.locations.insert(address, location.id);
        self.profile.location.push(location);
        self.profile.location.len() as u64
    }

    fn function(&mut self, function: &Function) -> u64 {
        let key = (function.system_name.clone(), function.file.clone());
        if let Some(id) = self.functions.get(&key) {
            return *id;
        }
        let id = self.profile.function.len() as u64 + 1;
        let (name, system_name) = (self.text(&function.name), self.text(&function.system_name));
        let filename = self.text(&function.file);
        self.profile.function.push(message::Function { id, name, system_name, filename });
        self.functions.insert(key, id);
        id
    }

    fn finish(mut self, kind: Kind, from: SystemTime, lasted: Duration) -> Profile {
        let (types, period_type, period): (&[_], _, _) = match kind {
            Kind::Cpu { period } => {
                (&[("samples", "count"), ("cpu", "nanoseconds")], ("cpu", "nanoseconds"), nanoseconds(period))
            }
            #[cfg(feature = "heap")]
            Kind::Heap { period_bytes } => (&[("inuse_space", "bytes")], ("space", "bytes"), period_bytes),
        };
        for (what, unit) in types {
            let value_type = self.value_type(what, unit);
            self.profile.sample_type.push(value_type);
        }
        self.profile.period_type = Some(self.value_type(period_type.0, period_type.1));
        self.profile.period = period;
        self.profile.time_nanos = nanoseconds(from.duration_since(UNIX_EPOCH).unwrap_or_default());
        self.profile.duration_nanos = nanoseconds(lasted);
        self.profile
    }

    fn value_type(&mut self, what: &str, unit: &str) -> ValueType {
        let (r#type, unit) = (self.text(what), self.text(unit));
        ValueType { r#type, unit }
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
