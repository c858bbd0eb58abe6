//! Parses a push from its request (grafana.com/docs/pyroscope, "Server API"; RFC 7578).

use std::collections::BTreeMap;

use bytes::Bytes;
use http::request::Parts;

use super::{Expected, Profile, pprof};

/// One day: a profile with a larger difference was not taken now.
const CLOCK_SECONDS_MAX: u64 = 86_400;

#[derive(Debug, Clone, PartialEq)]
pub struct Push {
    pub application: String,
    pub labels: BTreeMap<String, String>,
    pub from: u64,
    pub until: u64,
    pub sample_rate: u32,
    pub profile: Profile,
    /// As received, for other parsers.
    pub pprof: Bytes,
    pub sample_type_config: Option<serde_json::Value>,
}

pub(super) fn read(expected: &Expected, head: &Parts, body: &Bytes) -> Result<Push, String> {
    if head.method != http::Method::POST || head.uri.path() != "/ingest" {
        return Err(format!("{} {}", head.method, head.uri.path()));
    }
    for (name, value) in [("authorization", &expected.authorization), ("x-scope-orgid", &expected.tenant)] {
        let found = head.headers.get(name).and_then(|value| value.to_str().ok());
        if found != value.as_deref() {
            return Err(format!("{name}: {found:?}"));
        }
    }
    let mut query = query(head.uri.query().unwrap_or_default())?;
    let mut take = |name: &str| query.remove(name).ok_or_else(|| format!("{name} is missing"));
    let (application, labels) = name(&take("name")?)?;
    let number = |text: String| text.parse::<u64>().map_err(|_| format!("invalid time {text:?}"));
    let (from, until) = (number(take("from")?)?, number(take("until")?)?);
    let sample_rate = take("sampleRate")?.parse().map_err(|_| "invalid sampleRate".to_owned())?;
    query.remove("spyName");
    // With `format`, the real server would interpret the form as the profile.
    if let Some(unknown) = query.keys().next() {
        return Err(format!("unexpected parameter {unknown}"));
    }
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    if from > until || now.abs_diff(until) > CLOCK_SECONDS_MAX || sample_rate == 0 {
        return Err(format!("implausible from {from}, until {until} or rate {sample_rate}"));
    }
    let mut parts = parts(head, body)?;
    let pprof = parts.remove("profile").ok_or("the part profile is missing")?;
    let sample_type_config = match parts.remove("sample_type_config") {
        Some(text) => Some(serde_json::from_slice(&text).map_err(|error| error.to_string())?),
        None => None,
    };
    if let Some(unknown) = parts.keys().next() {
        return Err(format!("unknown part {unknown}"));
    }
    let profile = pprof::read(&pprof)?;
    Ok(Push { application, labels, from, until, sample_rate, profile, pprof, sample_type_config })
}

fn query(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut query = BTreeMap::new();
    for pair in text.split('&') {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?}"))?;
        if query.insert(name.to_owned(), decoded(value)?).is_some() {
            return Err(format!("repeated parameter {name}"));
        }
    }
    Ok(query)
}

/// Percent-decodes a text (RFC 3986 §2.1).
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        (bytes, rest) = match first {
            b'%' => {
                let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                bytes.push(byte.ok_or_else(|| format!("invalid percent-encoding in {text:?}"))?);
                (bytes, &after[2..])
            }
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) => {
                bytes.push(*byte);
                (bytes, after)
            }
            byte => return Err(format!("{:?} must be percent-encoded", char::from(*byte))),
        };
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// `application{name=value,…}`: names as in Prometheus, values without delimiters.
fn name(text: &str) -> Result<(String, BTreeMap<String, String>), String> {
    let wrong = || format!("invalid name {text:?}");
    let (application, rest) = text.split_once('{').ok_or_else(wrong)?;
    let inside = rest.strip_suffix('}').ok_or_else(wrong)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if application.is_empty() || !application.chars().all(plain) {
        return Err(wrong());
    }
    let mut labels = BTreeMap::new();
    for pair in inside.split(',').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !first || !name.chars().all(word) || value.is_empty() || value.contains(['=', '{', '}']) {
            return Err(format!("invalid label {pair:?}"));
        }
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(format!("repeated label {name}"));
        }
    }
    Ok((application.to_owned(), labels))
}

fn parts(head: &Parts, body: &Bytes) -> Result<BTreeMap<String, Bytes>, String> {
    let content_type = head.headers.get("content-type").and_then(|value| value.to_str().ok());
    let boundary = content_type.and_then(|value| value.strip_prefix("multipart/form-data; boundary="));
    let boundary = boundary.ok_or_else(|| format!("wrong content type {content_type:?}"))?;
    // RFC 2046 §5.1.1
    if boundary.is_empty() || boundary.len() > 70 {
        return Err("the boundary must have 1 to 70 characters".to_owned());
    }
    let (opening, between) = (format!("--{boundary}"), format!("\r\n--{boundary}"));
    let mut rest = strip(body, opening.as_bytes())?;
    let mut parts = BTreeMap::new();
    while rest != b"--\r\n"[..] {
        rest = strip(&rest, b"\r\n")?;
        let end = find(&rest, between.as_bytes()).ok_or("unterminated part")?;
        let (name, content) = part(&rest.slice(..end))?;
        if parts.insert(name, content).is_some() {
            return Err("repeated part".to_owned());
        }
        rest = rest.slice(end + between.len()..);
    }
    Ok(parts)
}

fn part(bytes: &Bytes) -> Result<(String, Bytes), String> {
    let end = find(bytes, b"\r\n\r\n").ok_or("a part without header")?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|error| error.to_string())?;
    let disposition =
        head.lines().find_map(|line| line.strip_prefix("Content-Disposition: form-data; name=\""));
    // Go's parsers treat a part without file name as a value.
    let name = disposition.and_then(|rest| rest.split_once("\"; filename=\"")).map(|(name, _)| name);
    let name = name.ok_or_else(|| format!("invalid header of a part {head:?}"))?;
    Ok((name.to_owned(), bytes.slice(end + 4..)))
}

fn strip(bytes: &Bytes, prefix: &[u8]) -> Result<Bytes, String> {
    match bytes.starts_with(prefix) {
        true => Ok(bytes.slice(prefix.len()..)),
        false => Err(format!("{:?} is missing", String::from_utf8_lossy(prefix))),
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
