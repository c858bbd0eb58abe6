//! Writes Rust types for the schemas of an OpenAPI 3.1 document.
//!
//! ```text
//! noroshi-typegen --security NAME --document FILE --out FILE [--request Schema,…] [--response Schema,…] [--omit Schema,…]
//!     [--import Schema,…] [--queries] [--codes NAME,…]
//! ```
//!
//! It takes the operations whose security names NAME, and every schema that they refer to. The document is OpenAPI 3.1: nullable
//! types are lists such as `["string", "null"]`, and unions are `oneOf` and `anyOf`. The rules:
//!
//! - An object is a struct, non-exhaustive. Those of requests have `new` with the required fields and a method for each other field.
//! - A text with an enum is an open enum: a later version of the service may add values. Equal enums share one.
//! - A union of objects with one field each is an enum with a variant for each field; a union with a discriminator is a tagged enum.
//! - In a schema whose description says that null clears or removes, a nullable field is a `Patch`, which distinguishes null from
//!   absent.
//! - Times are `SystemTime`, durations `Duration`, any JSON is `serde_json::Value`.

mod document;
mod generator;
mod names;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, io};

use document::Document;
use generator::{Generator, Selection};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("typegen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let mut selection = Selection::default();
    let (mut path, mut out) = (None, None);
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--queries" {
            selection.queries = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| wrong(format!("{argument} needs a value")))?;
        let list = || value.split(',').map(str::to_owned).collect();
        match argument.as_str() {
            "--security" => selection.security = value,
            "--document" => path = Some(PathBuf::from(value)),
            "--out" => out = Some(PathBuf::from(value)),
            "--request" => selection.requests = list(),
            "--response" => selection.responses = list(),
            "--import" => selection.imports = list(),
            "--omit" => selection.omit = list(),
            "--codes" => selection.codes = list(),
            _ => return Err(wrong(format!("unknown option {argument}"))),
        }
    }
    let (Some(path), Some(out)) = (path, out) else {
        return Err(wrong("--document and --out are required".to_owned()));
    };
    let document: Document = serde_json::from_slice(&fs::read(&path)?)?;
    let source = Generator::new(&document, &selection).file().map_err(wrong)?;
    fs::write(&out, formatted(&source)?)
}

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// With the settings of the folder in which the program runs.
fn formatted(source: &str) -> io::Result<Vec<u8>> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = rustfmt.stdin.take().ok_or_else(|| wrong("rustfmt has no input".to_owned()))?;
    // rustfmt reads everything before it writes.
    io::Write::write_all(&mut input, source.as_bytes())?;
    drop(input);
    let output = rustfmt.wait_with_output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(wrong(format!("rustfmt failed on:\n{source}"))),
    }
}
