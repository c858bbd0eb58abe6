//! Reads keys from the layers, one call per key, and records every key. The records are the source of the documentation and of
//! `config print`, and reveal unknown keys. An invalid value is a problem, and the default replaces it, so that one run finds
//! all problems.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use noroshi_egress::ProxyUrl;
use noroshi_types::time::{format_duration, parse_duration};

use super::layer::{Layers, Raw, parse_tables};
use super::problem::{Problem, Source};
use super::redact;
use super::size::{format_size, parse_size};
use super::{Role, Roles};

/// A key with its description and value.
#[derive(Debug, Clone)]
pub struct Entry {
    /// `gateway.ping_interval`
    pub key: &'static str,
    /// Its description, in a sentence.
    pub help: &'static str,
    /// The type of the value: `duration`, `size`, … A `credential` is never shown, a `url` without its password.
    pub unit: &'static str,
    /// As TOML. Empty if unset.
    pub default: String,
    /// Minimum and maximum, or the possible values.
    pub range: String,
    /// As TOML. Empty if unset.
    pub value: String,
    pub source: Source,
}

impl Entry {
    /// Whether the value, or a part of it, is not shown: decided by its type.
    pub fn is_masked(&self) -> bool {
        matches!(self.unit, redact::SECRET | redact::URL) && self.value.contains(redact::HIDDEN)
    }
}

pub(super) struct Reader {
    layers: Layers,
    pub(super) entries: Vec<Entry>,
    pub(super) problems: Vec<Problem>,
}

/// The properties of a value, except its parser.
struct Field<'a, T> {
    unit: &'static str,
    range: String,
    default: T,
    /// As TOML. Empty if unset.
    show: &'a dyn Fn(&T) -> String,
}

impl Reader {
    pub(super) fn new(layers: Layers, problems: Vec<Problem>) -> Self {
        Self { layers, entries: Vec::new(), problems }
    }

    pub(super) fn problem(&mut self, key: &str, text: impl Into<String>) {
        let source = self.entries.iter().find(|entry| entry.key == key).map(|entry| entry.source.clone());
        self.problem_from(source.unwrap_or(Source::Default), key, text);
    }

    /// A problem of a key's value that was found elsewhere.
    pub(super) fn problem_from(&mut self, source: Source, key: &str, text: impl Into<String>) {
        self.problems.push(Problem { key: key.to_owned(), source, text: text.into() });
    }

    /// The remaining keys of the layers are unknown.
    pub(super) fn finish(mut self) -> (Vec<Entry>, Vec<Problem>) {
        for (key, layered) in std::mem::take(&mut self.layers) {
            let text = match self.nearest(&key) {
                Some(near) => format!("unknown key; did you mean `{near}`?"),
                None => "unknown key".to_owned(),
            };
            self.problems.push(Problem { key, source: layered.source, text });
        }
        (self.entries, self.problems)
    }

    fn nearest(&self, key: &str) -> Option<&'static str> {
        let near = self.entries.iter().map(|entry| (distance(entry.key, key), entry.key)).min()?;
        (near.0 <= key.len() / 3).then_some(near.1)
    }

    fn read<T: Clone>(
        &mut self,
        key: &'static str,
        help: &'static str,
        field: Field<'_, T>,
        parse: impl Fn(&Raw) -> Result<T, String>,
    ) -> T {
        let Field { unit, range, default, show } = field;
        let (value, source) = match self.layers.remove(key) {
            None => (default.clone(), Source::Default),
            Some(layered) => match parse(&layered.raw) {
                Ok(value) => (value, layered.source),
                Err(text) => {
                    self.problems.push(Problem { key: key.to_owned(), source: layered.source.clone(), text });
                    (default.clone(), layered.source)
                }
            },
        };
        let entry = Entry { key, help, unit, default: show(&default), range, value: show(&value), source };
        self.entries.push(entry);
        value
    }

    /// As [`Reader::read`], for a key without a default. An empty string unsets a lower layer.
    fn read_optional<T: Clone>(
        &mut self,
        key: &'static str,
        help: &'static str,
        (unit, range): (&'static str, String),
        show: impl Fn(&T) -> String,
        parse: impl Fn(&Raw) -> Result<T, String>,
    ) -> Option<T> {
        let show = |value: &Option<T>| value.as_ref().map(&show).unwrap_or_default();
        self.read(key, help, Field { unit, range, default: None, show: &show }, |raw| match raw {
            Raw::Text(text) if text.is_empty() => Ok(None),
            raw => parse(raw).map(Some),
        })
    }

    pub(super) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
        help: &'static str,
    ) -> Duration {
        let bounds = format!("{} to {}", format_duration(*range.start()), format_duration(*range.end()));
        let expected = "a duration with a unit (ms, s, m, h, d), such as \"30s\"";
        let show = |value: &Duration| quoted(format_duration(*value));
        self.read(key, help, Field { unit: "duration", range: bounds.clone(), default, show: &show }, |raw| {
            match raw {
                Raw::Text(text) if !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    let value = parse_duration(text).map_err(|_| unexpected(raw, expected))?;
                    within(value, &range, raw, &bounds)
                }
                _ => Err(unexpected(raw, expected)),
            }
        })
    }

    pub(super) fn size(
        &mut self,
        key: &'static str,
        default: usize,
        range: RangeInclusive<usize>,
        help: &'static str,
    ) -> usize {
        let bounds = format!("{} to {}", format_size(*range.start()), format_size(*range.end()));
        let expected = "a size with a unit (B, KiB, MiB, GiB), such as \"256KiB\"";
        let show = |value: &usize| quoted(format_size(*value));
        self.read(key, help, Field { unit: "size", range: bounds.clone(), default, show: &show }, |raw| {
            match raw {
                Raw::Text(text) => {
                    within(parse_size(text).ok_or_else(|| unexpected(raw, expected))?, &range, raw, &bounds)
                }
                _ => Err(unexpected(raw, expected)),
            }
        })
    }

    pub(super) fn count(
        &mut self,
        key: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
        unit: &'static str,
        help: &'static str,
    ) -> u64 {
        let bounds = format!("{} to {}", range.start(), range.end());
        let show = |value: &u64| value.to_string();
        let field = Field { unit, range: bounds.clone(), default, show: &show };
        self.read(key, help, field, |raw| within(whole(raw, unit)?, &range, raw, &bounds))
    }

    /// A count from 1 to ten million.
    pub(super) fn positive(
        &mut self,
        key: &'static str,
        default: u32,
        unit: &'static str,
        help: &'static str,
    ) -> u32 {
        // The range fits in 32 bits.
        self.count(key, u64::from(default), 1..=10_000_000, unit, help) as u32
    }

    pub(super) fn optional_count(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        unit: &'static str,
        help: &'static str,
    ) -> Option<u64> {
        let bounds = format!("{} to {}", range.start(), range.end());
        self.read_optional(key, help, (unit, bounds.clone()), u64::to_string, |raw| {
            within(whole(raw, unit)?, &range, raw, &bounds)
        })
    }

    /// One of these words. The first one is the default.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
        help: &'static str,
    ) -> T {
        let range = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let expected = format!("one of {range}");
        let show = |at: &usize| quoted(words[*at].0);
        let at = self.read(key, help, Field { unit: "word", range, default: 0, show: &show }, |raw| {
            let Raw::Text(text) = raw else { return Err(unexpected(raw, &expected)) };
            words.iter().position(|(word, _)| word == text).ok_or_else(|| unexpected(raw, &expected))
        });
        words[at].1
    }

    pub(super) fn switch(&mut self, key: &'static str, default: bool, help: &'static str) -> bool {
        let field =
            Field { unit: "switch", range: "true, false".to_owned(), default, show: &bool::to_string };
        self.read(key, help, field, |raw| match raw {
            Raw::Boolean(value) => Ok(*value),
            Raw::Text(text) => text.parse().map_err(|_| unexpected(raw, "true or false")),
            _ => Err(unexpected(raw, "true or false")),
        })
    }

    pub(super) fn address(
        &mut self,
        key: &'static str,
        default: SocketAddr,
        help: &'static str,
    ) -> SocketAddr {
        let show = |value: &SocketAddr| quoted(value);
        let field = Field { unit: "address", range: ADDRESS.to_owned(), default, show: &show };
        self.read(key, help, field, |raw| parse_address(raw, 8080))
    }

    /// `port`: the standard port, for the example in errors.
    pub(super) fn optional_address(
        &mut self,
        key: &'static str,
        port: u16,
        help: &'static str,
    ) -> Option<SocketAddr> {
        let parse = |raw: &Raw| parse_address(raw, port);
        self.read_optional(key, help, ("address", ADDRESS.to_owned()), |value| quoted(value), parse)
    }

    pub(super) fn path(&mut self, key: &'static str, default: &str, help: &'static str) -> PathBuf {
        let show = |value: &PathBuf| quoted(value.display());
        let field = Field {
            unit: "path",
            range: "a folder".to_owned(),
            default: PathBuf::from(default),
            show: &show,
        };
        self.read(key, help, field, |raw| match raw {
            Raw::Text(text) if !text.is_empty() => Ok(PathBuf::from(text)),
            _ => Err(unexpected(raw, "a path")),
        })
    }

    /// A string. `check` returns what it expects instead of an invalid value.
    pub(super) fn text(
        &mut self,
        key: &'static str,
        default: &str,
        (unit, range): (&'static str, &'static str),
        check: impl Fn(&str) -> Result<(), String>,
        help: &'static str,
    ) -> String {
        let show = |value: &String| quoted(redact::shown(unit, value));
        let field = Field { unit, range: range.to_owned(), default: default.to_owned(), show: &show };
        self.read(key, help, field, |raw| {
            let Raw::Text(text) = raw else { return Err(unexpected_unit(unit, raw, range)) };
            check(text).map(|()| text.clone()).map_err(|expected| unexpected_unit(unit, raw, &expected))
        })
    }

    /// An optional string. `check` returns what it expects instead of an invalid value.
    pub(super) fn optional(
        &mut self,
        key: &'static str,
        (unit, range): (&'static str, &'static str),
        check: impl Fn(&str) -> Result<(), String>,
        help: &'static str,
    ) -> Option<String> {
        let show = |value: &String| quoted(redact::shown(unit, value));
        self.read_optional(key, help, (unit, range.to_owned()), show, |raw| {
            let Raw::Text(text) = raw else { return Err(unexpected_unit(unit, raw, range)) };
            check(text).map(|()| text.clone()).map_err(|expected| unexpected_unit(unit, raw, &expected))
        })
    }

    pub(super) fn optional_path(
        &mut self,
        key: &'static str,
        range: &'static str,
        help: &'static str,
    ) -> Option<PathBuf> {
        self.optional(key, ("path", range), any, help).map(Into::into)
    }

    /// An optional credential. Its value is never shown, even if it is invalid.
    pub(super) fn secret(
        &mut self,
        key: &'static str,
        range: &'static str,
        help: &'static str,
    ) -> Option<String> {
        self.optional(key, (redact::SECRET, range), any, help)
    }

    /// The URL of a database or Redis, beginning with one of `schemes`. Never shown with its password.
    pub(super) fn engine_url(
        &mut self,
        key: &'static str,
        schemes: &'static [&'static str],
        help: &'static str,
    ) -> Option<EngineUrl> {
        let range = schemes.join(", ");
        let show = |value: &EngineUrl| quoted(value);
        self.read_optional(key, help, (redact::URL, range.clone()), show, |raw| match raw {
            Raw::Text(text) if schemes.iter().any(|scheme| text.starts_with(scheme)) => {
                Ok(EngineUrl(text.clone()))
            }
            // Not quoted, since it may contain a password.
            Raw::Text(_) => Err(format!("must begin with one of {range}")),
            _ => Err("expected a URL".to_owned()),
        })
    }

    /// A list of roles, or a comma-separated string.
    pub(super) fn roles(&mut self, key: &'static str, help: &'static str) -> Roles {
        let expected = "a list of api, gateway and sender, or only front";
        let show = |value: &Roles| {
            let names: Vec<String> = value.names().into_iter().map(quoted).collect();
            format!("[{}]", names.join(", "))
        };
        let range = Role::ALL.map(Role::as_str).join(", ");
        let field = Field { unit: "list", range, default: Roles::WHOLE, show: &show };
        self.read(key, help, field, |raw| {
            let items: Vec<&str> = match raw {
                Raw::List(items) => items.iter().map(String::as_str).collect(),
                Raw::Text(text) => text.split(',').map(str::trim).collect(),
                _ => return Err(unexpected(raw, expected)),
            };
            let role = |item: &&str| Role::ALL.into_iter().find(|role| role.as_str() == *item);
            let roles: Option<Vec<Role>> = items.iter().map(role).collect();
            match roles {
                Some(roles) if roles.is_empty() || roles.contains(&Role::Front) && roles.len() > 1 => {
                    Err(unexpected(raw, expected))
                }
                Some(roles) => Ok(Roles::of(&roles)),
                None => Err(unexpected(raw, expected)),
            }
        })
    }

    /// The names that the operator gave: what follows `prefix` in keys, up to the next dot.
    pub(super) fn names(&self, prefix: &str) -> Vec<String> {
        let keys = self.layers.keys().filter_map(|key| key.strip_prefix(prefix));
        let mut names: Vec<String> =
            keys.map(|rest| rest.split_once('.').map_or(rest, |(name, _)| name).to_owned()).collect();
        names.dedup(); // the keys are sorted
        names
    }

    /// Removes the keys that begin with `prefix`, with one problem for all of them.
    pub(super) fn forget(&mut self, prefix: &str, text: impl Into<String>) {
        let keys: Vec<String> = self.layers.keys().filter(|key| key.starts_with(prefix)).cloned().collect();
        let mut removed =
            keys.iter().filter_map(|key| self.layers.remove(key)).collect::<Vec<_>>().into_iter();
        let source = removed.next().map_or(Source::Default, |layered| layered.source);
        self.problem_from(source, prefix.trim_end_matches('.'), text);
    }

    /// Strings: an array, or a comma-separated string. `check` returns what it expects instead of an invalid item.
    pub(super) fn texts(
        &mut self,
        key: &'static str,
        range: &'static str,
        check: impl Fn(&str) -> Result<(), String>,
        help: &'static str,
    ) -> Vec<String> {
        let show = |value: &Vec<String>| found(&Raw::List(value.clone()));
        let field = Field { unit: "list", range: range.to_owned(), default: Vec::new(), show: &show };
        self.read(key, help, field, |raw| {
            let items: Vec<String> = match raw {
                Raw::List(items) => items.clone(),
                Raw::Text(text) => text
                    .split(',')
                    .map(str::trim)
                    .filter(|item| !item.is_empty())
                    .map(str::to_owned)
                    .collect(),
                _ => return Err(unexpected(raw, &format!("a list of {range}"))),
            };
            for item in &items {
                check(item).map_err(|expected| format!("expected {expected}, got {}", quoted(item)))?;
            }
            Ok(items)
        })
    }

    /// An array of tables of strings. In the environment: the same text as in a file.
    pub(super) fn tables<T: Table + Clone>(
        &mut self,
        key: &'static str,
        range: &'static str,
        parse: impl Fn(&[Vec<(String, String)>]) -> Result<Vec<T>, String>,
        help: &'static str,
    ) -> Vec<T> {
        let show = |value: &Vec<T>| match value.is_empty() {
            true => "[]".to_owned(),
            false => shown_tables(value),
        };
        let field = Field { unit: "list", range: range.to_owned(), default: Vec::new(), show: &show };
        self.read(key, help, field, |raw| {
            let tables = match raw {
                Raw::Tables(tables) => Some(tables.clone()),
                Raw::List(items) if items.is_empty() => Some(Vec::new()),
                Raw::Text(text) => parse_tables(text),
                _ => None,
            };
            parse(&tables.ok_or_else(|| unexpected(raw, &format!("a list, {range}")))?)
        })
    }

    /// Networks: an array of strings, or a comma-separated string.
    pub(super) fn networks(
        &mut self,
        key: &'static str,
        default: &[IpNet],
        help: &'static str,
    ) -> Vec<IpNet> {
        let expected = "a list of networks, such as [\"10.1.0.0/16\", \"fd00:1::/32\"]";
        let show = |value: &Vec<IpNet>| {
            let shown: Vec<String> = value.iter().map(quoted).collect();
            format!("[{}]", shown.join(", "))
        };
        let range = "networks as ADDRESS/BITS".to_owned();
        let field = Field { unit: "list", range, default: default.to_vec(), show: &show };
        self.read(key, help, field, |raw| {
            let items: Vec<&str> = match raw {
                Raw::List(items) => items.iter().map(String::as_str).collect(),
                Raw::Text(text) => text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect(),
                _ => return Err(unexpected(raw, expected)),
            };
            let network = |item: &&str| {
                let net: IpNet =
                    item.parse().map_err(|_| format!("expected {expected}, got {}", quoted(item)))?;
                match net == net.trunc() {
                    true => Ok(net),
                    false => Err(format!("{item} has host bits set; did you mean {}?", net.trunc())),
                }
            };
            items.iter().map(network).collect()
        })
    }

    /// The URL of a proxy, or `direct` for none. Never shown with its password.
    pub(super) fn proxy(&mut self, key: &'static str, help: &'static str) -> Option<ProxyChoice> {
        let show = |value: &ProxyChoice| match value {
            ProxyChoice::Direct => quoted(DIRECT),
            ProxyChoice::Through(proxy) => quoted(proxy),
        };
        let range = format!("http, https or socks5://[USER:PASSWORD@]HOST[:PORT], or {DIRECT}");
        self.read_optional(key, help, (redact::URL, range), show, |raw| match raw {
            Raw::Text(text) if text == DIRECT => Ok(ProxyChoice::Direct),
            Raw::Text(text) => {
                ProxyUrl::parse(text).map(ProxyChoice::Through).map_err(|reason| format!("invalid: {reason}"))
            }
            _ => Err("expected a proxy URL".to_owned()),
        })
    }
}

/// An entry of a list of tables.
pub(super) trait Table {
    fn fields(&self) -> Vec<(&'static str, &str)>;
}

fn shown_tables<T: Table>(tables: &[T]) -> String {
    let field = |(name, value): (&str, &str)| format!("{name} = {}", quoted(value));
    let table =
        |table: &T| format!("{{ {} }}", table.fields().into_iter().map(field).collect::<Vec<_>>().join(", "));
    format!("[{}]", tables.iter().map(table).collect::<Vec<_>>().join(", "))
}

/// The URL of PostgreSQL or Redis. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineUrl(pub(super) String);

impl EngineUrl {
    /// With its password.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl Display for EngineUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&redact::url(&self.0))
    }
}

impl std::fmt::Debug for EngineUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Replaces the URL of a proxy.
const DIRECT: &str = "direct";

#[derive(Debug, Clone)]
pub(super) enum ProxyChoice {
    Direct,
    Through(ProxyUrl),
}

const ADDRESS: &str = "IP:PORT; port 0: chosen by the system";

/// Accepts any text.
pub(super) fn any(_: &str) -> Result<(), String> {
    Ok(())
}

/// `port`: for the example in the error.
fn parse_address(raw: &Raw, port: u16) -> Result<SocketAddr, String> {
    let wrong = || {
        unexpected(
            raw,
            &format!("an IP address with a port, such as \"127.0.0.1:{port}\" or \"[::]:{port}\""),
        )
    };
    let Raw::Text(text) = raw else { return Err(wrong()) };
    text.parse().map_err(|_| wrong())
}

fn whole(raw: &Raw, unit: &str) -> Result<u64, String> {
    let wrong = || unexpected(raw, &format!("a whole number ({unit})"));
    match raw {
        Raw::Integer(text) | Raw::Text(text) => text.replace('_', "").parse().map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

fn within<T: PartialOrd>(value: T, range: &RangeInclusive<T>, raw: &Raw, bounds: &str) -> Result<T, String> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(format!("{} is out of range: {bounds}", found(raw))),
    }
}

fn unexpected(raw: &Raw, expected: &str) -> String {
    format!("expected {expected}, got {}", found(raw))
}

/// For a string that may contain a credential: shows neither a credential nor the password of a URL.
fn unexpected_unit(unit: &str, raw: &Raw, expected: &str) -> String {
    match (unit, raw) {
        (redact::SECRET, _) => format!("expected {expected}"),
        (redact::URL, Raw::Text(text)) => format!("expected {expected}, got {}", quoted(redact::url(text))),
        (redact::URL, _) => format!("expected {expected}"),
        _ => unexpected(raw, expected),
    }
}

fn found(raw: &Raw) -> String {
    match raw {
        Raw::Text(text) => quoted(text),
        Raw::Integer(text) => text.clone(),
        Raw::Boolean(value) => value.to_string(),
        Raw::List(items) => format!("[{}]", items.iter().map(quoted).collect::<Vec<_>>().join(", ")),
        Raw::Tables(_) => "a list of tables".to_owned(),
        Raw::Other(kind) => format!("a value of type {kind}"),
    }
}

/// As a TOML basic string.
fn quoted(text: impl Display) -> String {
    toml::Value::String(text.to_string()).to_string()
}

/// Single-character edits between two keys (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substitute = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
