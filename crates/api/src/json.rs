//! Strict parsing of request bodies: the depth is bounded before parsing, nothing may follow the value, and every error
//! names the path of the field or the position in the text.
//!
//! Bodies are composed of [`Text`], [`Bounded`], [`TextMap`] and [`Span`]. Each checks while it parses, so an oversized value
//! is rejected before it is collected.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use noroshi_types::json::lone_surrogate;
use noroshi_types::{Invalid, Role, TraceContext, time};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use crate::error::{Code, Problem};

/// Deeper than any real payload, and than many parsers of clients allow.
const DEPTH_MAX: usize = 64;

/// Parses one value. Nothing may follow it.
pub(crate) fn parse<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, Problem> {
    let scan = Scan::of(text, DEPTH_MAX);
    if scan.is_too_deep {
        return Err(Problem::new(
            Code::InvalidJson,
            format!("the JSON is nested more than {DEPTH_MAX} levels deep"),
        ));
    }
    // serde detects it only in strings that it decodes, not in raw values.
    if let Some(at) = scan.has_escapes.then(|| lone_surrogate(text)).flatten() {
        let detail = format!(
            "the escape at byte {at} of the JSON is half of a surrogate pair; text must be valid Unicode (RFC 7493 §2.1)"
        );
        return Err(Problem::new(Code::InvalidJson, detail));
    }
    // Tracking the path costs time, so only an invalid body is parsed again with it.
    if let Ok(value) = serde_json::from_slice(text) {
        return Ok(value);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = read(&mut deserializer, "")?;
    deserializer.end().map_err(|error| refused("", &error))?;
    Ok(value)
}

/// Parses a part that was kept as raw text. `field`: its path.
pub(crate) fn parse_part<'de, T: Deserialize<'de>>(text: &'de str, field: &str) -> Result<T, Problem> {
    read(&mut serde_json::Deserializer::from_str(text), field)
}

fn read<'de, R: serde_json::de::Read<'de>, T: Deserialize<'de>>(
    deserializer: &mut serde_json::Deserializer<R>,
    field: &str,
) -> Result<T, Problem> {
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = match error.path().to_string() {
            path if path == "." => field.to_owned(),
            path if field.is_empty() => path,
            path => format!("{field}.{path}"),
        };
        refused(&path, error.inner())
    })
}

fn refused(path: &str, error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    match error.classify() {
        Category::Data => {
            let place = format!(" at line {} column {}", error.line(), error.column());
            let rule = without_rust(text.strip_suffix(&place).unwrap_or(&text));
            let code = match rule.starts_with("unknown field") {
                true => Code::UnknownField,
                false => Code::InvalidField,
            };
            let field = match named_in(&rule) {
                // The path already ends with an unknown field, but not inside a tagged object.
                Some(name) if path.is_empty() || path == name => name.to_owned(),
                Some(name) if path.ends_with(&format!(".{name}")) => path.to_owned(),
                Some(name) => format!("{path}.{name}"),
                None => path.to_owned(),
            };
            Problem::new(code, rule).at(field)
        }
        // The message contains line and column.
        Category::Syntax | Category::Eof | Category::Io => Problem::new(Code::InvalidJson, text),
    }
}

/// The rule in words of JSON: serde's own words are names of Rust types.
fn without_rust(rule: &str) -> String {
    const OBJECTS: [&str; 4] = ["struct ", "internally tagged enum ", "a map", "an object"];
    let is_mismatch = ["invalid type: ", "invalid value: ", "invalid length "];
    // The client's text precedes the last ", expected".
    let parts =
        rule.rsplit_once(", expected ").filter(|_| is_mismatch.iter().any(|kind| rule.starts_with(kind)));
    let Some((found, expected)) = parts else { return rule.to_owned() };
    if OBJECTS.iter().any(|kind| expected.starts_with(kind)) {
        return "must be an object".to_owned();
    }
    let expected = match expected {
        "a sequence" => "an array",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        expected => expected,
    };
    let found = match found {
        "invalid type: map" => "invalid type: object",
        "invalid type: sequence" => "invalid type: array",
        found => found,
    };
    format!("{found}, expected {expected}")
}

/// The missing, duplicate or unknown field. The path ends at the object that contains it.
fn named_in(rule: &str) -> Option<&str> {
    let (kind, rest) = rule.split_once(" field `")?;
    matches!(kind, "missing" | "duplicate" | "unknown").then(|| rest.split('`').next())?
}

/// The result of one pass over the text before it is parsed. Does not validate the JSON.
struct Scan {
    /// Brackets outside strings exceed the allowed depth.
    is_too_deep: bool,
    has_escapes: bool,
}

impl Scan {
    fn of(text: &[u8], depth_max: usize) -> Self {
        let mut has_escapes = false;
        let is_too_deep = deeper_than(text, depth_max, &mut has_escapes);
        Self { is_too_deep, has_escapes }
    }
}

fn deeper_than(text: &[u8], max: usize, has_escapes: &mut bool) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => {
                *has_escapes = true;
                escaped = true;
            }
            (true, b'"') => in_string = false,
            (true, _) => {}
            (false, b'"') => in_string = true,
            (false, b'{' | b'[') => {
                depth += 1;
                if depth > max {
                    return true;
                }
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            (false, _) => {}
        }
    }
    false
}

/// A value that is written as a JSON string and checked while parsing.
pub(crate) trait FromText: Sized {
    /// A description, for "invalid type: integer, expected …".
    const WHAT: &'static str;
    fn from_text(text: &str) -> Result<Self, Invalid>;
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Text<T>(pub(crate) T);

impl<'de, T: FromText> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor<T>(PhantomData<T>);
        impl<T: FromText> Visitor<'_> for TextVisitor<T> {
            type Value = Text<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::WHAT)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<T>, E> {
                T::from_text(text).map(Text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }
}

/// An array of which at most `MAX` elements are kept. `count` is its full length.
#[derive(Debug)]
pub(crate) struct Bounded<T, const MAX: usize> {
    pub(crate) items: Vec<T>,
    pub(crate) count: usize,
}

impl<T, const MAX: usize> Bounded<T, MAX> {
    /// All elements, or [`Code::InvalidField`] if there are too many.
    pub(crate) fn all(self, field: &str) -> Result<Vec<T>, Problem> {
        match self.count <= MAX {
            true => Ok(self.items),
            false => Err(Problem::field(field, format!("at most {MAX} are allowed, got {}", self.count))),
        }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
            type Value = Bounded<T, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while items.len() < MAX {
                    match seq.next_element()? {
                        Some(item) => items.push(item),
                        None => return Ok(Bounded { count: items.len(), items }),
                    }
                }
                let mut count = MAX;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Bounded { items, count })
            }
        }
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// An object of at most `MAX` entries with checked, distinct keys.
#[derive(Debug)]
pub(crate) struct TextMap<K, V, const MAX: usize>(pub(crate) BTreeMap<K, V>);

impl<'de, K: FromText + Ord, V: Deserialize<'de>, const MAX: usize> Deserialize<'de> for TextMap<K, V, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor<K, V, const MAX: usize>(PhantomData<(K, V)>);
        impl<'de, K: FromText + Ord, V: Deserialize<'de>, const MAX: usize> Visitor<'de> for MapVisitor<K, V, MAX> {
            type Value = TextMap<K, V, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some(Text(key)) = map.next_key::<Text<K>>()? {
                    if entries.len() == MAX {
                        return Err(de::Error::custom(format_args!("at most {MAX} entries are allowed")));
                    }
                    if entries.insert(key, map.next_value()?).is_some() {
                        return Err(de::Error::custom("duplicate key"));
                    }
                }
                Ok(TextMap(entries))
            }
        }
        deserializer.deserialize_map(MapVisitor(PhantomData))
    }
}

/// A duration: `"90s"`, `"24h"` or whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpanVisitor;
        impl Visitor<'_> for SpanVisitor {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"90s\" or \"24h\", or whole seconds")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                time::parse_duration(text).map(Span).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Span, E> {
                Ok(Span(Duration::from_secs(seconds)))
            }
        }
        deserializer.deserialize_any(SpanVisitor)
    }
}

/// A field of a PATCH: absent keeps the value, `null` clears it. For use with `#[serde(default)]`.
#[derive(Debug, Default)]
pub(crate) enum Change<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<T> Change<T> {
    /// Converts the new value, if it is valid.
    pub(crate) fn check<U, E>(self, value: impl FnOnce(T) -> Result<U, E>) -> Result<Change<U>, E> {
        Ok(match self {
            Change::Keep => Change::Keep,
            Change::Clear => Change::Clear,
            Change::Set(set) => Change::Set(value(set)?),
        })
    }

    /// Converts the new value, in the form that the store expects.
    #[allow(clippy::option_option)] // absent, null and a value are three different requests
    pub(crate) fn into_update<U>(self, value: impl FnOnce(T) -> U) -> Option<Option<U>> {
        match self {
            Change::Keep => None,
            Change::Clear => Some(None),
            Change::Set(set) => Some(Some(value(set))),
        }
    }

    pub(crate) fn apply(self, to: &mut Option<T>) {
        match self {
            Change::Keep => {}
            Change::Clear => *to = None,
            Change::Set(set) => *to = Some(set),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Change<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

/// A string of at most `MAX` bytes without control characters, for attributes without their own type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line<const MAX: usize>(pub(crate) String);

impl<const MAX: usize> FromText for Line<MAX> {
    const WHAT: &'static str = "a string";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() || text.len() > MAX {
            return Err(Invalid::new(format!("must be 1 to {MAX} bytes long, got {}", text.len())));
        }
        match text.chars().any(char::is_control) {
            true => Err(Invalid(Cow::Borrowed("must not contain control characters"))),
            false => Ok(Self(text.to_owned())),
        }
    }
}

/// In the format of the header `traceparent`.
impl FromText for Role {
    const WHAT: &'static str = "the name of a role (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let rule = "must be one of viewer, support, author, operator, owner";
        Self::named(text).ok_or(Invalid(Cow::Borrowed(rule)))
    }
}

impl FromText for TraceContext {
    const WHAT: &'static str = "a trace context (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let rule = "must be a `traceparent` of W3C Trace Context, such as \
                    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        Self::parse(text.as_bytes()).ok_or(Invalid(Cow::Borrowed(rule)))
    }
}

macro_rules! from_text {
    ($($type:ty, $what:literal;)*) => {
        $(impl FromText for $type {
            const WHAT: &'static str = $what;
            fn from_text(text: &str) -> Result<Self, Invalid> {
                Self::parse(text)
            }
        })*
    };
}

from_text! {
    noroshi_types::UserId, "a user id (a string)";
    noroshi_types::DeviceId, "a device id (a string)";
    noroshi_types::AppName, "an app name (a string)";
    noroshi_types::Topic, "a topic (a string)";
    noroshi_types::Condition, "a condition (a string)";
    noroshi_types::NotificationId, "a notification id (a string)";
    noroshi_types::Scope, "a scope (a string)";
    noroshi_types::Label, "a name (a string)";
    noroshi_types::TokenKey, "a push token's kind, or kind/name (a string)";
    noroshi_types::TokenKind, "the kind of a push token (a string)";
}

#[cfg(test)]
mod tests;
