//! Where profiles are pushed to and how they are named. The values were checked by whoever read them, with the rules
//! that are here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Longer than any way to write a password; more is another file.
const FILE_BYTES_MAX: u64 = 4 << 10;
/// Pyroscope's own limits are wider.
const TEXT_BYTES_MAX: usize = 128;
const LABELS_MAX: usize = 16;

/// What [`super::Pusher`] says of a process itself, and `thread`, which samples have.
const OWN: [&str; 4] = ["node", "role", "version", "thread"];

/// Under which profiles can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Of the Pyroscope server, without `/ingest`.
    pub server: String,
    /// The name of the application there.
    pub application: String,
    /// The length of a window.
    pub interval: Duration,
    /// Samples for each second of CPU time.
    pub hz: u32,
    /// Heap profiles too.
    pub heap: bool,
    pub labels: Vec<Label>,
    /// HTTP Basic, with the password of the file.
    pub user: Option<String>,
    /// Read for every profile: a password that is changed is used from then on.
    pub password_file: Option<PathBuf>,
    pub tenant: Option<String>,
}

impl Label {
    /// The value as it can stand in a name: what would end it is `_`.
    pub fn new(name: &str, value: &str) -> Self {
        let value = value.chars().map(|c| if fits(c) { c } else { '_' }).take(TEXT_BYTES_MAX);
        Self { name: name.to_owned(), value: value.collect() }
    }
}

/// `name=value` with commas between; an operator's words for what is wrong.
pub fn labels(text: &str) -> Result<Vec<Label>, String> {
    let mut labels: Vec<Label> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not NAME=VALUE"))?;
        check_name(name)?;
        if value.is_empty() || value.len() > TEXT_BYTES_MAX || !value.chars().all(fits) {
            return Err(format!(
                "the value of {name} is 1 to {TEXT_BYTES_MAX} printable characters but , = {{ }} \""
            ));
        }
        if labels.iter().any(|label| label.name == name) {
            return Err(format!("{name} is there twice"));
        }
        labels.push(Label { name: name.to_owned(), value: value.to_owned() });
    }
    match labels.len() <= LABELS_MAX {
        true => Ok(labels),
        false => Err(format!("there are at most {LABELS_MAX}")),
    }
}

/// Prometheus' rule, which is Pyroscope's.
fn check_name(name: &str) -> Result<(), String> {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !first || !rest || name.len() > TEXT_BYTES_MAX || name.starts_with("__") {
        return Err(format!(
            "{name:?} is no name of a label: letters, digits and _, not a digit first, not __"
        ));
    }
    match OWN.contains(&name) {
        true => Err(format!("{name} is set by the node itself")),
        false => Ok(()),
    }
}

/// The name of an application: what may stand before the labels.
pub fn check_application(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    match !text.is_empty() && text.len() <= TEXT_BYTES_MAX && text.chars().all(plain) {
        true => Ok(()),
        false => Err(format!("1 to {TEXT_BYTES_MAX} of a-z, A-Z, 0-9, '.', '-', '_' and '/'")),
    }
}

/// A header's value.
pub fn check_header(text: &str) -> Result<(), String> {
    match !text.is_empty() && text.len() <= TEXT_BYTES_MAX && text.bytes().all(|b| (0x21..0x7f).contains(&b))
    {
        true => Ok(()),
        false => Err(format!("1 to {TEXT_BYTES_MAX} printable ASCII characters without spaces")),
    }
}

/// A server's address: scheme, host and maybe a path, but neither a query nor credentials.
pub fn check_server(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '@' | '"' | '\\');
    match rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && rest.chars().all(plain)) {
        true => Ok(()),
        false => Err("an http:// or https:// URL without a user, a query or a fragment".to_owned()),
    }
}

/// What can stand in a value: its end and the name's are told by the rest.
fn fits(c: char) -> bool {
    !c.is_control() && !matches!(c, ',' | '=' | '{' | '}' | '"')
}

impl Config {
    /// What stands in the header `Authorization`. Reads the password's file.
    pub fn authorization(&self) -> Result<Option<String>, String> {
        let (Some(user), Some(file)) = (&self.user, &self.password_file) else { return Ok(None) };
        let credential = format!("{user}:{}", password(file)?);
        // RFC 7617 §2
        Ok(Some(format!("Basic {}", BASE64_STANDARD.encode(credential))))
    }

    /// What is wrong, in an operator's words, and with which part.
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
            (Some(_), None) => Err(("password_file", "has to be there where there is a user".to_owned())),
            (None, Some(_)) => Err(("user", "has to be there where there is a password".to_owned())),
            _ => self.authorization().map(drop).map_err(|problem| ("password_file", problem)),
        }
    }
}

fn password(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
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
    fn labels_are_what_a_name_can_carry() {
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
