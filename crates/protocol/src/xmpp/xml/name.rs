//! The characters that XML 1.0 (fifth edition) permits in names and documents.

/// §2.2: characters permitted in a document.
pub(super) fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// §2.3 NameStartChar without the colon, which separates prefixes (Namespaces in XML §4).
fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z'
        | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}' | '\u{370}'..='\u{37D}'
        | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}'
        | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}'
        | '\u{FDF0}'..='\u{FFFD}' | '\u{10000}'..='\u{EFFFF}')
}

/// §2.3 NameChar without the colon.
fn is_name_part(c: char) -> bool {
    is_name_start(c)
        || matches!(c,
            '-' | '.' | '0'..='9' | '\u{B7}' | '\u{300}'..='\u{36F}' | '\u{203F}'..='\u{2040}')
}

fn is_local_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(is_name_start) && chars.all(is_name_part)
}

/// Splits a qualified name into prefix (or `""`) and local name; `None` if it is invalid.
pub(super) fn split(name: &str) -> Option<(&str, &str)> {
    match name.split_once(':') {
        None => is_local_name(name).then_some(("", name)),
        Some((prefix, local)) => (is_local_name(prefix) && is_local_name(local)).then_some((prefix, local)),
    }
}

/// The length of the longest prefix of `text` without token separators.
pub(super) fn length(text: &str) -> usize {
    let ends = |byte: u8| is_space(byte) || matches!(byte, b'<' | b'>' | b'/' | b'=' | b'\'' | b'"' | b'&');
    text.bytes().position(ends).unwrap_or(text.len())
}
