//! Parses a profile (`profile.proto` of github.com/google/pprof) from the Protocol Buffers wire format and
//! checks it against the rules in that file. Deliberately independent of any writer of profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use flate2::read::GzDecoder;

const PLAIN_BYTES_MAX: u64 = 256 << 20;

/// A parsed profile, with names instead of indexes.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// For example `("cpu", "nanoseconds")`.
    pub types: Vec<(String, String)>,
    pub period_type: (String, String),
    pub period: i64,
    pub time_nanos: i64,
    pub duration_nanos: i64,
    pub samples: Vec<Sample>,
    /// Files that code was mapped from.
    pub mappings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Function names, innermost first, including inlined ones.
    pub stack: Vec<String>,
    pub values: Vec<i64>,
    pub labels: BTreeMap<String, String>,
}

/// The value of a field.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    mappings: BTreeMap<u64, (u64, u64, u64)>,
    functions: BTreeMap<u64, u64>,
    /// Address, mapping, functions.
    locations: BTreeMap<u64, (u64, u64, Vec<u64>)>,
}

/// Parses a gzip-compressed profile.
pub fn read(gzip: &[u8]) -> Result<Profile, String> {
    let mut plain = Vec::new();
    let mut reader = GzDecoder::new(gzip).take(PLAIN_BYTES_MAX);
    reader.read_to_end(&mut plain).map_err(|error| format!("invalid gzip: {error}"))?;
    let mut tables = Tables::default();
    let (mut types, mut samples, mut numbers) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut period_type = None;
    for (number, field) in fields(&plain)? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => types.push(pair(bytes)?),
            (2, Field::Bytes(bytes)) => samples.push(bytes.to_vec()),
            (3, Field::Bytes(bytes)) => tables.mapping(bytes)?,
            (4, Field::Bytes(bytes)) => tables.location(bytes)?,
            (5, Field::Bytes(bytes)) => tables.function(bytes)?,
            (6, Field::Bytes(bytes)) => {
                tables.texts.push(String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string())?);
            }
            (11, Field::Bytes(bytes)) => period_type = Some(pair(bytes)?),
            (7..=10 | 12 | 14, Field::Number(value)) => drop(numbers.insert(number, value as i64)),
            (13 | 15, _) => {}
            (number, _) => return Err(format!("unknown field {number} of the profile")),
        }
    }
    tables.check()?;
    let type_of = |(what, unit)| Ok::<_, String>((tables.text(what)?, tables.text(unit)?));
    let types = types.into_iter().map(type_of).collect::<Result<Vec<_>, _>>()?;
    let period_type = type_of(period_type.ok_or("period_type is missing")?)?;
    let number = |field: u64| numbers.get(&field).copied().unwrap_or(0);
    let profile = Profile {
        period_type,
        period: number(12),
        time_nanos: number(9),
        duration_nanos: number(10),
        samples: samples.iter().map(|bytes| tables.sample(bytes, types.len())).collect::<Result<_, _>>()?,
        mappings: tables.mappings.values().map(|(.., name)| tables.text(*name)).collect::<Result<_, _>>()?,
        types,
    };
    match profile.samples.is_empty()
        || profile.types.is_empty()
        || profile.period <= 0
        || profile.time_nanos <= 0
    {
        true => Err("samples, types, period or time are missing".to_owned()),
        false => Ok(profile),
    }
}

impl Tables {
    fn mapping(&mut self, bytes: &[u8]) -> Result<(), String> {
        let fields = numbers(bytes)?;
        let one = |number| fields.get(&number).and_then(|all| all.last()).copied().unwrap_or(0);
        if one(1) == 0 || one(2) >= one(3) {
            return Err("a mapping without an id, or without an extent".to_owned());
        }
        match self.mappings.insert(one(1), (one(2), one(3), one(5))) {
            Some(_) => Err("duplicate mapping id".to_owned()),
            None => Ok(()),
        }
    }

    fn function(&mut self, bytes: &[u8]) -> Result<(), String> {
        let fields = numbers(bytes)?;
        let one = |number| fields.get(&number).and_then(|all| all.last()).copied().unwrap_or(0);
        match one(1) == 0 || self.functions.insert(one(1), one(2)).is_some() {
            true => Err("a function without id, or with a duplicate one".to_owned()),
            false => Ok(()),
        }
    }

    fn location(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (mut id, mut mapping, mut address, mut functions) = (0, 0, 0, Vec::new());
        for field in fields(bytes)? {
            match field {
                (1, Field::Number(value)) => id = value,
                (2, Field::Number(value)) => mapping = value,
                (3, Field::Number(value)) => address = value,
                (4, Field::Bytes(line)) => functions.extend(numbers(line)?.remove(&1).unwrap_or_default()),
                (5, Field::Number(_)) => {}
                (number, _) => return Err(format!("unknown field {number} of a location")),
            }
        }
        match id == 0 || self.locations.insert(id, (address, mapping, functions)).is_some() {
            true => Err("a location without id, or with a duplicate one".to_owned()),
            false => Ok(()),
        }
    }

    /// Checks that all references can be resolved.
    fn check(&self) -> Result<(), String> {
        if self.texts.first().is_none_or(|first| !first.is_empty()) {
            return Err("string_table[0] is not empty".to_owned());
        }
        if self.texts.iter().collect::<BTreeSet<_>>().len() != self.texts.len() {
            return Err("duplicate entry in string_table".to_owned());
        }
        if self.mappings.is_empty() || self.functions.is_empty() {
            return Err("mappings or functions are missing".to_owned());
        }
        for name in self.functions.values() {
            if self.text(*name)?.is_empty() {
                return Err("a function without name".to_owned());
            }
        }
        for (address, mapping, functions) in self.locations.values() {
            if *mapping != 0 {
                let (start, limit, _) =
                    self.mappings.get(mapping).ok_or("a location refers to an unknown mapping")?;
                if !(start..limit).contains(&address) {
                    return Err(format!("the address {address:#x} is outside its mapping"));
                }
            }
            if functions.iter().any(|function| !self.functions.contains_key(function)) {
                return Err("a location refers to an unknown function".to_owned());
            }
        }
        Ok(())
    }

    fn text(&self, index: u64) -> Result<String, String> {
        let text = usize::try_from(index).ok().and_then(|index| self.texts.get(index));
        text.cloned().ok_or_else(|| format!("string {index} is missing"))
    }

    fn sample(&self, bytes: &[u8], types: usize) -> Result<Sample, String> {
        let (mut stack, mut values, mut labels) = (Vec::new(), Vec::new(), BTreeMap::new());
        for field in fields(bytes)? {
            match field {
                (1, Field::Bytes(packed)) => {
                    for id in packed_numbers(packed)? {
                        stack.extend(self.functions_at(id)?);
                    }
                }
                (1, Field::Number(id)) => stack.extend(self.functions_at(id)?),
                (2, Field::Bytes(packed)) => {
                    values.extend(packed_numbers(packed)?.into_iter().map(|value| value as i64));
                }
                (2, Field::Number(value)) => values.push(value as i64),
                (3, Field::Bytes(label)) => {
                    let (key, value) = pair(label)?;
                    labels.insert(self.text(key)?, self.text(value)?);
                }
                (number, _) => return Err(format!("unknown field {number} of a sample")),
            }
        }
        match values.len() == types && values.iter().all(|value| *value >= 0) {
            true => Ok(Sample { stack, values, labels }),
            false => Err(format!("wrong number of values in a sample: {values:?}")),
        }
    }

    fn functions_at(&self, location: u64) -> Result<Vec<String>, String> {
        let (.., functions) =
            self.locations.get(&location).ok_or("a sample refers to an unknown location")?;
        functions.iter().map(|function| self.text(self.functions[function])).collect()
    }
}

/// Fields 1 and 2 of a message, 0 if absent.
fn pair(bytes: &[u8]) -> Result<(u64, u64), String> {
    let fields = numbers(bytes)?;
    let one = |number| fields.get(&number).and_then(|all| all.last()).copied().unwrap_or(0);
    Ok((one(1), one(2)))
}

/// The fields of a message that contains only numbers.
fn numbers(bytes: &[u8]) -> Result<BTreeMap<u64, Vec<u64>>, String> {
    let mut numbers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (number, field) in fields(bytes)? {
        match field {
            Field::Number(value) => numbers.entry(number).or_default().push(value),
            Field::Bytes(_) => return Err(format!("field {number} is not a number")),
        }
    }
    Ok(numbers)
}

fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Field<'_>)>, String> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).unwrap_or(usize::MAX);
                let (field, rest) =
                    bytes.split_at_checked(length).ok_or("a field is longer than the profile")?;
                bytes = rest;
                Field::Bytes(field)
            }
            other => return Err(format!("unknown wire type {other}")),
        };
        fields.push((key >> 3, field));
    }
    Ok(fields)
}

fn packed_numbers(mut bytes: &[u8]) -> Result<Vec<u64>, String> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        numbers.push(varint(&mut bytes)?);
    }
    Ok(numbers)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or("truncated varint")?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("varint of more than ten bytes".to_owned())
}
