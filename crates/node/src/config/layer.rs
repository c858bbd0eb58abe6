//! The uninterpreted layers of a configuration: `noroshi.toml`, then environment, then flags, each overriding the one before.
//! Values remember their source, so that problems name the line, variable or flag.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::de::{DeArray, DeTable, DeValue};

use super::problem::{Problem, Source};

/// The default file.
pub const FILE_NAME: &str = "noroshi.toml";

/// `NOROSHI__GATEWAY__PING_INTERVAL` is `gateway.ping_interval`.
const ENVIRONMENT_PREFIX: &str = "NOROSHI__";

/// All inputs of a configuration, as values, so that tests control them.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// `--config`: must exist. None: [`FILE_NAME`] in `folder`, if it exists.
    pub file: Option<PathBuf>,
    /// The working directory.
    pub folder: PathBuf,
    pub environment: Vec<(String, String)>,
    pub flags: Vec<Flag>,
}

/// A key set on the command line.
#[derive(Debug, Clone)]
pub struct Flag {
    /// `--http`
    pub name: &'static str,
    /// `server.http`
    pub key: String,
    pub value: String,
}

/// An uninterpreted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Raw {
    Text(String),
    Integer(String),
    Boolean(bool),
    /// An array of strings.
    List(Vec<String>),
    /// An array of tables of strings, which is not empty.
    Tables(Vec<Vec<(String, String)>>),
    /// A date, a fraction or another array, which no key accepts. Contains the name of the type.
    Other(&'static str),
}

#[derive(Debug, Clone)]
pub(super) struct Layered {
    pub(super) raw: Raw,
    pub(super) source: Source,
}

pub(super) type Layers = BTreeMap<String, Layered>;

/// Combines the layers. An upper layer overrides a lower one.
pub(super) fn collect(inputs: &Inputs, problems: &mut Vec<Problem>) -> Layers {
    let mut layers = Layers::new();
    file(inputs, &mut layers, problems);
    for (name, value) in &inputs.environment {
        if let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) {
            let source = Source::Environment { name: name.clone() };
            let key = rest.replace("__", ".").to_ascii_lowercase();
            layers.insert(key, Layered { raw: Raw::Text(value.clone()), source });
        }
    }
    for flag in &inputs.flags {
        let source = Source::Flag { name: flag.name.to_owned() };
        layers.insert(flag.key.clone(), Layered { raw: Raw::Text(flag.value.clone()), source });
    }
    layers
}

fn file(inputs: &Inputs, layers: &mut Layers, problems: &mut Vec<Problem>) {
    let path = inputs.file.clone().unwrap_or_else(|| inputs.folder.join(FILE_NAME));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && inputs.file.is_none() => return,
        Err(error) => {
            let source = Source::File { path, line: 0 };
            problems.push(Problem { key: String::new(), source, text: format!("cannot be read: {error}") });
            return;
        }
    };
    // Shows a file in the working directory with its relative path.
    let shown = inputs.file.clone().unwrap_or_else(|| PathBuf::from(FILE_NAME));
    let (table, errors) = DeTable::parse_recoverable(&text);
    problems.extend(errors.iter().map(|error| Problem {
        key: String::new(),
        source: Source::File {
            path: shown.clone(),
            line: line(&text, error.span().map_or(0, |span| span.start)),
        },
        text: format!("not TOML: {}", error.message()),
    }));
    // Keys near a syntax error are unreliable and would cause false problems.
    if errors.is_empty() {
        flatten(table.get_ref(), "", &text, &shown, layers);
    }
}

fn flatten(table: &DeTable<'_>, prefix: &str, text: &str, path: &Path, layers: &mut Layers) {
    for (name, value) in table {
        let key = match prefix {
            "" => name.get_ref().to_string(),
            _ => format!("{prefix}.{}", name.get_ref()),
        };
        let raw = match value.get_ref() {
            DeValue::Table(table) => {
                flatten(table, &key, text, path, layers);
                continue;
            }
            DeValue::String(text) => Raw::Text(text.to_string()),
            DeValue::Integer(integer) if integer.radix() == 10 => Raw::Integer(integer.as_str().to_owned()),
            DeValue::Boolean(boolean) => Raw::Boolean(*boolean),
            DeValue::Array(items) => match items.iter().map(|item| item.get_ref().as_str()).collect() {
                Some::<Vec<&str>>(items) => Raw::List(items.into_iter().map(str::to_owned).collect()),
                None => tables(items).map_or(Raw::Other("array"), Raw::Tables),
            },
            other => Raw::Other(other.type_str()),
        };
        let source = Source::File { path: path.to_owned(), line: line(text, name.span().start) };
        layers.insert(key, Layered { raw, source });
    }
}

/// The items, if all are tables of strings.
fn tables(items: &DeArray<'_>) -> Option<Vec<Vec<(String, String)>>> {
    let field = |name: &str, value: &DeValue<'_>| Some((name.to_owned(), value.as_str()?.to_owned()));
    let table = |item: &DeValue<'_>| match item {
        DeValue::Table(table) => {
            table.iter().map(|(name, value)| field(name.get_ref(), value.get_ref())).collect()
        }
        _ => None,
    };
    items.iter().map(|item| table(item.get_ref())).collect()
}

/// As in a file, for a variable of the environment.
pub(super) fn parse_tables(text: &str) -> Option<Vec<Vec<(String, String)>>> {
    let text = format!("value = {text}");
    let table = DeTable::parse(&text).ok()?;
    match table.get_ref().get("value")?.get_ref() {
        DeValue::Array(items) if table.get_ref().len() == 1 => tables(items),
        _ => None,
    }
}

/// The line, counted from 1, of a byte.
fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}
