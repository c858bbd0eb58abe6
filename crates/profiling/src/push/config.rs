//! The configuration of continuous profiling. The caller validates the values with the rules in this file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Longer than any password; a larger file is something else.
const FILE_BYTES_MAX: u64 = 4 << 10;
/// Pyroscope's own limits are higher.
const TEXT_BYTES_MAX: usize = 128;
const LABELS_MAX: usize = 16;

/// Labels that [`super::Pusher`] sets itself, and `thread`, which samples have.
const OWN: [&str; 4] = ["node", "role", "version", "thread"];

/// A label by which profiles can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The base URL of the Pyroscope server, without `/ingest`.
    pub server: String,
    /// The name of the application there.
    pub application: String,
    /// The length of a window.
    pub interval: Duration,
    /// Samples per second of CPU time.
    pub hz: u32,
    /// Whether to push heap profiles too.
    pub heap: bool,
    pub labels: Vec<Label>,
    /// The user of HTTP Basic; the password is in the file.
    pub user: Option<String>,
    /// Read for every profile, so that a changed password takes effect.
    pub password_file: Option<PathBuf>,
    pub tenant: Option<String>,
}

impl Label {
    /// The value with characters that would end it replaced by `_`.
    pub fn new(name: &str, value: &str) -> Self {
        let value = value.chars().map(|c| if fits(c) { c } else { '_' }).take(TEXT_BYTES_MAX);
        Self { name: name.to_owned(), value: value.collect() }
    }
}

/// Parses `name=value` pairs separated by commas.
pub fn labels(text: &str) -> Result<Vec<Label>, String> {
    let mut labels: Vec<Label> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not NAME=VALUE"))?;
        check_name(name)?;
        if value.is_empty() || value.len() > TEXT_BYTES_MAX || !value.chars().all(fits) {
            return Err(format!(
                "the value of {name} must have 1 to {TEXT_BYTES_MAX} printable characters without , = {{ }} \""
            ));
        }
        if labels.iter().any(|label| label.name == name) {
            return Err(format!("{name} is repeated"));
        }
        labels.push(Label { name: name.to_owned(), value: value.to_owned() });
    }
    match labels.len() <= LABELS_MAX {
        true => Ok(labels),
        false => Err(format!("at most {LABELS_MAX} are allowed")),
    }
}

/// Prometheus' rule, which Pyroscope follows.
fn check_name(name: &str) -> Result<(), String> {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !first || !rest || name.len() > TEXT_BYTES_MAX || name.starts_with("__") {
        return Err(format!(
            "{name:?} is not a label name: letters, digits and _, not starting with a digit or __"
        ));
    }
    match OWN.contains(&name) {
        true => Err(format!("{name} is set by the node itself")),
        false => Ok(()),
    }
}

/// Validates the name of an application: the part before the labels.
pub fn check_application(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    match !text.is_empty() && text.len() <= TEXT_BYTES_MAX && text.chars().all(plain) {
        true => Ok(()),
        false => Err(format!("1 to {TEXT_BYTES_MAX} of a-z, A-Z, 0-9, '.', '-', '_' and '/'")),
    }
}

/// Validates a header's value.
pub fn check_header(text: &str) -> Result<(), String> {
    match !text.is_empty() && text.len() <= TEXT_BYTES_MAX && text.bytes().all(|b| (0x21..0x7f).contains(&b))
    {
        true => Ok(()),
        false => Err(format!("1 to {TEXT_BYTES_MAX} printable ASCII characters without spaces")),
    }
}

/// Validates a server's address: scheme, host and an optional path, without query and credentials.
pub fn check_server(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '@' | '"' | '\\');
    match rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && rest.chars().all(plain)) {
        true => Ok(()),
        false => Err("an http:// or https:// URL without a user, a query or a fragment".to_owned()),
    }
}

/// Whether a value may contain the character.
fn fits(c: char) -> bool {
    !c.is_control() && !matches!(c, ',' | '=' | '{' | '}' | '"')
}

impl Config {
    /// The value of the header `Authorization`. Reads the password file.
    pub fn authorization(&self) -> Result<Option<String>, String> {
        let (Some(user), Some(file)) = (&self.user, &self.password_file) else { return Ok(None) };
        let credential = format!("{user}:{}", password(file)?);
        // RFC 7617 §2
        Ok(Some(format!("Basic {}", BASE64_STANDARD.encode(credential))))
    }

    /// The first problem, with the key it concerns.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if !crate::CPU {
            return Err((
                "server",
                "this program was built without profiles (feature `profiling`)".to_owned(),
            ));
        }
        if self.heap && !crate::HEAP {
            return Err((
                "heap",
                "this program was built without heap profiles (feature `heap-profiling`)".to_owned(),
            ));
        }
        match (&self.user, &self.password_file) {
            (Some(_), None) => Err(("password_file", "is required with a user".to_owned())),
            (None, Some(_)) => Err(("user", "is required with a password".to_owned())),
            _ => self.authorization().map(drop).map_err(|problem| ("password_file", problem)),
        }
    }
}

fn password(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(format!("{} is larger than any password", path.display()));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    match text.trim() {
        "" => Err(format!("{} is empty", path.display())),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_validated() {
        let pair = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
        assert_eq!(labels("region=eu-1, tier=a b"), Ok(vec![pair("region", "eu-1"), pair("tier", "a b")]));
        assert_eq!(labels(""), Ok(Vec::new()));
        for wrong in ["region", "1a=b", "a-b=c", "__a=b", "a=", "a={b}", "a=b=c", "node=x", "a=b,a=c"] {
            assert!(labels(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Label::new("node", "a,b{c}=d").value, "a_b_c__d");
    }

    #[test]
    fn a_server_is_a_url_without_secrets() {
        for right in ["http://pyroscope:4040", "https://profiles.example.com/push/x"] {
            assert_eq!(check_server(right), Ok(()));
        }
        for wrong in ["pyroscope:4040", "http://", "http:///x", "https://u:p@x", "https://x?y", "https://x y"]
        {
            assert!(check_server(wrong).is_err(), "{wrong}");
        }
    }
}
