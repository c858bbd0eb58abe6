//! Input of commands: files, `-` for standard input, and arguments in JSON.

use std::path::Path;

use serde_json::{Map, Value};

use crate::failure::Failure;

/// The text of a file; `-`: of standard input.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let text = match path.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(path),
    };
    text.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

/// The same as JSON. The error has line and column, never the text.
pub(crate) fn read_json(path: &Path) -> Result<Value, Failure> {
    let invalid = |error| Failure::Usage(format!("{}: {error}", path.display()));
    parse_json(&read(path)?).map_err(invalid)
}

pub(crate) fn parse_json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

/// The fields that are given.
pub(crate) fn present(fields: &[(&str, &Option<String>)]) -> Map<String, Value> {
    let given =
        |(name, value): &(&str, &Option<String>)| Some(((*name).to_owned(), Value::from((*value).clone()?)));
    fields.iter().filter_map(given).collect()
}
