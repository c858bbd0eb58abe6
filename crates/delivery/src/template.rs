//! Texts with placeholders for a recipient's own values: `"Hello {{name}}"`.
//!
//! A template is JSON as the provider wrote it. Placeholders count inside string values, never in keys. A value is
//! inserted with JSON's own escaping, so it cannot break out of its string. The text around placeholders stays byte for
//! byte. A placeholder is `{{name}}`, with optional blanks around the name; a name has letters, digits, `_`, `-`, `.`.
//! Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use noroshi_types::{Invalid, JsonText};

/// Placeholders in one template: each adds a piece to every rendering.
pub const PLACEHOLDERS_MAX: usize = 64;
pub const NAME_BYTES_MAX: usize = 64;
/// Languages that one message may have.
pub const LOCALES_MAX: usize = 100;

/// A recipient's values by name, and their defaults.
#[derive(Debug, Clone, Copy)]
pub struct Variables<'a> {
    pub own: &'a BTreeMap<String, String>,
    pub defaults: &'a BTreeMap<String, String>,
}

/// A placeholder without a value or default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing(pub Box<str>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    source: JsonText,
    /// Empty without placeholders: then the text is the same for all recipients.
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// A part of the source, as a range of bytes.
    Text(usize, usize),
    Variable(Box<str>),
}

impl Template {
    /// `source` is valid JSON. Fails if a `{{` does not begin a placeholder.
    pub fn parse(source: JsonText) -> Result<Self, Invalid> {
        let mut pieces = Vec::new();
        let mut from = 0;
        for (at, end, name) in placeholders(source.as_str())? {
            pieces.extend([Piece::Text(from, at), Piece::Variable(name.into())]);
            from = end;
        }
        if !pieces.is_empty() {
            pieces.push(Piece::Text(from, source.len()));
        }
        match pieces.len() > 2 * PLACEHOLDERS_MAX + 1 {
            true => Err(Invalid::new(format!("a text has at most {PLACEHOLDERS_MAX} placeholders"))),
            false => Ok(Self { source, pieces }),
        }
    }

    /// Whether the text is the same for all recipients.
    pub fn is_constant(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The names of all placeholders, with repetitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable(name) => Some(&**name),
            Piece::Text(..) => None,
        })
    }

    /// Renders the text for one recipient.
    pub fn render(&self, variables: Variables<'_>) -> Result<JsonText, Missing> {
        if self.is_constant() {
            return Ok(self.source.clone());
        }
        let mut text = String::with_capacity(self.source.len() + 64);
        for piece in &self.pieces {
            match piece {
                Piece::Text(from, to) => text.push_str(&self.source.as_str()[*from..*to]),
                Piece::Variable(name) => {
                    let value = variables.own.get(&**name).or_else(|| variables.defaults.get(&**name));
                    text.push_str(&escaped(value.ok_or_else(|| Missing(name.clone()))?));
                }
            }
        }
        Ok(JsonText::from_valid(text))
    }
}

/// Escapes the inside of a JSON string (RFC 8259 §7).
fn escaped(value: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if value.bytes().all(plain) {
        return Cow::Borrowed(value);
    }
    let quoted = serde_json::Value::from(value).to_string();
    Cow::Owned(quoted[1..quoted.len() - 1].to_owned())
}

/// The ranges of placeholders, from the first brace to the last, with their names.
fn placeholders(json: &str) -> Result<Vec<(usize, usize, &str)>, Invalid> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(quote) = json[at..].find('"') {
        let from = at + quote + 1;
        let to = from + string_length(&json[from..]);
        at = (to + 1).min(json.len());
        let is_key = json[at..].trim_start().starts_with(':');
        if !is_key {
            in_string(json, from, to, &mut found)?;
        }
    }
    Ok(found)
}

/// The number of bytes up to the closing quote.
fn string_length(text: &str) -> usize {
    let mut escape = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escape => return at,
            b'\\' => escape = !escape,
            _ => escape = false,
        }
    }
    text.len()
}

fn in_string<'a>(
    json: &'a str,
    from: usize,
    to: usize,
    found: &mut Vec<(usize, usize, &'a str)>,
) -> Result<(), Invalid> {
    let mut at = from;
    while let Some(open) = json[at..to].find("{{").map(|open| at + open) {
        let rest = &json[open + 2..to];
        let name = rest.split_once("}}").map(|(name, _)| name);
        let Some(name) = name.filter(|name| is_name(name.trim_matches(' '))) else {
            return Err(Invalid::new(format!(
                "\"{{{{\" begins a placeholder such as {{{{name}}}}: letters, digits, '_', '-', '.', at most {NAME_BYTES_MAX}"
            )));
        };
        at = open + 4 + name.len();
        found.push((open, at, name.trim_matches(' ')));
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

/// The variant for a device's locale: RFC 4647 §3.4 (lookup): the tag is cut from its end, subtag by
/// subtag, until a variant has that name. `None`: the message without a variant.
pub fn lookup<'a, V>(variants: &'a BTreeMap<String, V>, locale: Option<&str>) -> Option<(&'a str, &'a V)> {
    let normal = locale?.replace('_', "-").to_ascii_lowercase();
    let mut tag = normal.as_str();
    loop {
        let found = variants.iter().find(|(name, _)| name.eq_ignore_ascii_case(tag));
        if let Some((name, variant)) = found {
            return Some((name, variant));
        }
        tag = tag.rsplit_once('-')?.0;
        // A single letter or digit introduces the next subtag, and is removed with it.
        while let Some((shorter, single)) = tag.rsplit_once('-')
            && single.len() == 1
        {
            tag = shorter;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, word)| ((*name).to_owned(), (*word).to_owned())).collect()
    }

    fn template(source: &str) -> Template {
        Template::parse(JsonText::from_valid(source)).expect(source)
    }

    #[test]
    fn values_are_inserted() {
        let defaults = words(&[("team", "your team")]);
        let check = |source: &str, own: &[(&str, &str)], expected: &str| {
            let own = words(own);
            let rendered = template(source).render(Variables { own: &own, defaults: &defaults });
            let rendered = rendered.expect(source);
            assert_eq!(rendered.as_str(), expected, "{source}");
            serde_json::from_str::<serde_json::Value>(rendered.as_str()).expect("valid JSON");
        };
        check(r#"{"title": "Hello {{name}}!"}"#, &[("name", "Ana")], r#"{"title": "Hello Ana!"}"#);
        check(r#"{"a":"{{ team }}","b":["{{team}}x"]}"#, &[], r#"{"a":"your team","b":["your teamx"]}"#);
        check(r#"{"a":"{{team}}"}"#, &[("team", "A\"b\\\n\u{1}")], r#"{"a":"A\"b\\\n\u0001"}"#);
        check(r#"{"a":"{{team}}"}"#, &[("team", "\",\"admin\":\"true")], r#"{"a":"\",\"admin\":\"true"}"#);
        check(r#"{"a":"\"{{team}}\\","b":1}"#, &[], r#"{"a":"\"your team\\","b":1}"#);
        check(
            r#"{"{{team}}" : "x", "n": {"k": "{{a}}{{b}}"}}"#,
            &[("a", "1"), ("b", "{{team}}")],
            r#"{"{{team}}" : "x", "n": {"k": "1{{team}}"}}"#,
        );
        check(r#""{{a}}""#, &[("a", "日本")], r#""日本""#);
        check("[1,true,null]", &[], "[1,true,null]");
    }

    #[test]
    fn a_text_without_placeholders_is_shared() {
        let source = JsonText::from_valid(r#"{"title":"to {everyone}}"}"#);
        let template = Template::parse(source.clone()).expect("no placeholder");
        assert!(template.is_constant());
        let none = BTreeMap::new();
        assert_eq!(template.render(Variables { own: &none, defaults: &none }), Ok(source));
    }

    #[test]
    fn a_missing_value_is_named() {
        let none = BTreeMap::new();
        let variables = Variables { own: &none, defaults: &none };
        assert_eq!(template(r#""{{who}}""#).render(variables), Err(Missing("who".into())));
        assert_eq!(template(r#"["{{a}}","{{b.c}}"]"#).names().collect::<Vec<_>>(), ["a", "b.c"]);
    }

    #[test]
    fn invalid_placeholders_are_refused() {
        for bad in [r#""{{""#, r#""{{a""#, r#""{{}}""#, r#""{{a b}}""#, r#""{{a}""#, r#"["{{a","}}"]"#] {
            assert!(Template::parse(JsonText::from_valid(bad)).is_err(), "{bad}");
        }
        let many = format!("\"{}\"", "{{a}}".repeat(PLACEHOLDERS_MAX));
        assert!(Template::parse(JsonText::from_valid(many.clone())).is_ok());
        let more = format!("[{many},\"{{{{a}}}}\"]");
        assert!(Template::parse(JsonText::from_valid(more)).is_err());
    }

    #[test]
    fn the_nearest_variant_is_chosen() {
        let variants: BTreeMap<String, u8> =
            [("ja", 1), ("zh-Hant", 2), ("zh", 3), ("en-GB", 4)].map(|(name, n)| (name.to_owned(), n)).into();
        let check = |locale: Option<&str>, expected: Option<&str>| {
            assert_eq!(lookup(&variants, locale).map(|(name, _)| name), expected, "{locale:?}");
        };
        check(Some("ja-JP"), Some("ja"));
        check(Some("JA_jp"), Some("ja"));
        check(Some("zh-Hant-TW"), Some("zh-Hant"));
        check(Some("zh-hans-CN"), Some("zh"));
        check(Some("zh-Hant-x-private"), Some("zh-Hant"));
        check(Some("en-US"), None);
        check(Some("en"), None);
        check(Some(""), None);
        check(None, None);
    }
}
