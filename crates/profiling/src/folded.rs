//! A profile as lines of `root;caller;function value`, the input of flame graphs. The file may come from any program,
//! so every reference in it is checked.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use prost::Message as _;

use crate::pprof::message::Profile;

/// Far more than any profile; a larger file is something else.
const PLAIN_BYTES_MAX: u64 = 256 << 20;

/// Stacks with their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folded {
    /// The profile's last type of value, such as `cpu` and `nanoseconds`.
    pub what: String,
    pub unit: String,
    /// Each stack once, in order.
    pub lines: Vec<String>,
    pub sum: i64,
}

/// Why a file is not a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a profile of pprof: {0}")]
pub struct Wrong(String);

/// `pprof` is compressed with gzip, or not at all.
pub fn fold(pprof: &[u8]) -> Result<Folded, Wrong> {
    let mut plain = Vec::new();
    let plain = match pprof.starts_with(&[0x1f, 0x8b]) {
        true => {
            let mut reader = MultiGzDecoder::new(pprof).take(PLAIN_BYTES_MAX + 1);
            reader.read_to_end(&mut plain).map_err(|error| Wrong(error.to_string()))?;
            if plain.len() as u64 > PLAIN_BYTES_MAX {
                return Err(Wrong(format!("it decompresses to more than {PLAIN_BYTES_MAX} bytes")));
            }
            &plain[..]
        }
        false => pprof,
    };
    let profile = Profile::decode(plain).map_err(|error| Wrong(error.to_string()))?;
    Reader::new(&profile)?.fold()
}

struct Reader<'a> {
    profile: &'a Profile,
    /// Function names by location, outermost first.
    locations: HashMap<u64, Vec<String>>,
}

impl<'a> Reader<'a> {
    fn new(profile: &'a Profile) -> Result<Self, Wrong> {
        let text = |index| text(profile, index);
        let mut functions = HashMap::new();
        for function in &profile.function {
            functions.insert(function.id, text(function.name)?);
        }
        let mut locations = HashMap::new();
        for location in &profile.location {
            let mut names = Vec::new();
            for line in location.line.iter().rev() {
                let name = functions.get(&line.function_id);
                let name = name.ok_or_else(|| Wrong(format!("unknown function {}", line.function_id)))?;
                names.push(plain(name));
            }
            if names.is_empty() {
                names.push(format!("{:#x}", location.address));
            }
            locations.insert(location.id, names);
        }
        Ok(Self { profile, locations })
    }

    fn fold(self) -> Result<Folded, Wrong> {
        let kind = self.profile.sample_type.last();
        let kind = kind.ok_or_else(|| Wrong("the type of its values is missing".to_owned()))?;
        let (what, unit) =
            (text(self.profile, kind.r#type)?.to_owned(), text(self.profile, kind.unit)?.to_owned());
        let mut stacks: BTreeMap<String, i64> = BTreeMap::new();
        let mut sum = 0_i64;
        for sample in &self.profile.sample {
            let value = sample.value.get(self.profile.sample_type.len() - 1).copied();
            let value = value.ok_or_else(|| Wrong("a sample has too few values".to_owned()))?;
            let mut frames = Vec::new();
            for label in &sample.label {
                if text(self.profile, label.key)? == "thread" {
                    frames.push(thread(text(self.profile, label.str)?));
                }
            }
            for id in sample.location_id.iter().rev() {
                let names = self.locations.get(id);
                frames.extend_from_slice(names.ok_or_else(|| Wrong(format!("unknown location {id}")))?);
            }
            sum = sum.saturating_add(value);
            let stack = stacks.entry(frames.join(";")).or_default();
            *stack = stack.saturating_add(value);
        }
        let lines = stacks.into_iter().map(|(stack, value)| format!("{stack} {value}")).collect();
        Ok(Folded { what, unit, lines, sum })
    }
}

fn text(profile: &Profile, index: i64) -> Result<&str, Wrong> {
    let text = usize::try_from(index).ok().and_then(|index| profile.string_table.get(index));
    text.map(String::as_str).ok_or_else(|| Wrong(format!("unknown string {index}")))
}

/// Threads of one kind count as one: `shard-3` is `shard`.
fn thread(name: &str) -> String {
    plain(name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-'))
}

/// Replaces characters that would end a frame or a line.
fn plain(name: &str) -> String {
    name.replace([';', '\n', '\r'], ":")
}
