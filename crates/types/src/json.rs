//! A piece of JSON that is carried, not looked into.

use std::fmt;

use bytes::Bytes;

/// Valid JSON text, checked by whoever parsed the request it came in. It is copied once when it
/// is accepted and shared from then on: a fan-out to a million devices holds it once.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Bytes);

impl JsonText {
    /// `text` must be one valid JSON value: it is spliced into frames as it is.
    pub fn from_valid(text: impl Into<String>) -> Self {
        Self(Bytes::from(text.into()))
    }

    pub fn as_str(&self) -> &str {
        // Only built from a String and never cut.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The offset of an escape that is half of a surrogate pair, such as `"\ud800"`, in valid JSON. Such a text is no Unicode
/// (RFC 7493 §2.1): most clients refuse to parse it or lose it. Text without a `\` costs one look at each byte.
pub fn lone_surrogate(json: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = json.get(at..)?.iter().position(|byte| *byte == b'\\') {
        let escape = at + found;
        at = match unit(json, escape) {
            // A high surrogate and the low one that belongs to it.
            Some(0xD800..=0xDBFF) => match unit(json, escape + 6) {
                Some(0xDC00..=0xDFFF) => escape + 12,
                _ => return Some(escape),
            },
            Some(0xDC00..=0xDFFF) => return Some(escape),
            Some(_) => escape + 6,
            // Another escape, of one character.
            None => escape + 2,
        };
    }
    None
}

/// The UTF-16 unit that the escape at this offset stands for, if it is `\u` and four digits.
fn unit(json: &[u8], at: usize) -> Option<u32> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?))
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_surrogate_pair_is_found() {
        for whole in [
            "",
            "1",
            r#""a""#,
            r#""\ud83d\ude00""#,
            r#""\uD83D\uDE00\u0041\n""#,
            // Not an escape: the backslash before it is one.
            r#""\\ud800""#,
            r#"["\ud7ff","\ue000"]"#,
        ] {
            assert_eq!(lone_surrogate(whole.as_bytes()), None, "{whole}");
        }
        for (half, at) in [
            (r#""\ud800""#, 1),
            (r#""a\udc00""#, 2),
            (r#"{"a":["x",{"\uDBFF":1}]}"#, 12),
            (r#""\ud83d\ud83d\ude00""#, 1),
            (r#""\ud83dx\ude00""#, 1),
            (r#""\ud83d\n""#, 1),
            (r#""\\\ud800""#, 3),
            (r#""\ude00\ud83d""#, 1),
            (r#""\ud83d""#, 1),
        ] {
            assert_eq!(lone_surrogate(half.as_bytes()), Some(at), "{half}");
        }
    }
}
