//! A JSON value that is passed through without interpretation.

use std::fmt;

use bytes::Bytes;

/// Valid JSON text, validated when its request was parsed. It is copied once and shared afterwards: a fan-out
/// to a million devices holds one copy.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonText(Bytes);

impl JsonText {
    /// `text` must be exactly one valid JSON value: it is inserted into frames verbatim.
    pub fn from_valid(text: impl Into<String>) -> Self {
        Self(Bytes::from(text.into()))
    }

    pub fn as_str(&self) -> &str {
        // Always created from a `String` and never sliced.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The offset of an unpaired surrogate escape, such as `"\ud800"`, in valid JSON. Such a text is invalid
/// Unicode (RFC 7493 §2.1): most clients reject or corrupt it. Text without `\` costs one scan.
pub fn lone_surrogate(json: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = json.get(at..)?.iter().position(|byte| *byte == b'\\') {
        let escape = at + found;
        at = match unit(json, escape) {
            // A high surrogate must be followed by its low surrogate.
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

/// The UTF-16 unit of the escape at this offset, if it is `\u` with four digits.
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
    fn unpaired_surrogates_are_found() {
        for whole in [
            "",
            "1",
            r#""a""#,
            r#""\ud83d\ude00""#,
            r#""\uD83D\uDE00\u0041\n""#,
            // Not an escape: the backslash itself is escaped.
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
