//! Serializes elements. Characters that XML excludes become U+FFFD, since a provider's text must not end a
//! stream; quotes are escaped in attribute values only, since JSON contains many quotes.

use bytes::Bytes;

use super::element::{Child, Element};
use super::name;

/// Appends text.
pub(crate) fn push_escaped(out: &mut Vec<u8>, text: &str) {
    escape::<false>(out, text);
}

/// Appends an attribute value without quotes.
fn push_value(out: &mut Vec<u8>, text: &str) {
    escape::<true>(out, text);
}

fn escape<const VALUE: bool>(out: &mut Vec<u8>, text: &str) {
    let mut rest = text;
    loop {
        let is_special = |byte: u8| match byte {
            b'&' | b'<' | b'>' => true,
            b'\'' | b'"' => VALUE,
            // First byte of U+FFFE and U+FFFF; other characters with this byte are written unchanged.
            0xEF => true,
            byte => byte < b' ',
        };
        let plain = rest.bytes().position(is_special).unwrap_or(rest.len());
        out.extend_from_slice(&rest.as_bytes()[..plain]);
        rest = &rest[plain..];
        let Some(c) = rest.chars().next() else { return };
        rest = &rest[c.len_utf8()..];
        match c {
            '&' => out.extend_from_slice(b"&amp;"),
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '\'' => out.extend_from_slice(b"&apos;"),
            '"' => out.extend_from_slice(b"&quot;"),
            // Would be normalized to a space in a value, and a carriage return to a line feed anywhere.
            '\t' if VALUE => out.extend_from_slice(b"&#9;"),
            '\n' if VALUE => out.extend_from_slice(b"&#10;"),
            '\r' => out.extend_from_slice(b"&#13;"),
            c if name::is_char(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => out.extend_from_slice("\u{FFFD}".as_bytes()),
        }
    }
}

/// Appends a start tag. Attributes with empty values are omitted.
pub(crate) fn push_start(out: &mut Vec<u8>, name: &str, attributes: &[(&str, &str)]) {
    out.push(b'<');
    out.extend_from_slice(name.as_bytes());
    for (name, value) in attributes.iter().filter(|(_, value)| !value.is_empty()) {
        out.push(b' ');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"='");
        push_value(out, value);
        out.push(b'\'');
    }
    out.push(b'>');
}

pub(crate) fn push_end(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b"</");
    out.extend_from_slice(name.as_bytes());
    out.push(b'>');
}

/// Appends an element without content.
pub(crate) fn push_empty(out: &mut Vec<u8>, name: &str, attributes: &[(&str, &str)]) {
    push_start(out, name, attributes);
    out.pop();
    out.extend_from_slice(b"/>");
}

/// Appends an element with text.
pub(crate) fn push_text(out: &mut Vec<u8>, name: &str, attributes: &[(&str, &str)], text: &str) {
    push_start(out, name, attributes);
    push_escaped(out, text);
    push_end(out, name);
}

/// Appends an element with content.
pub(crate) fn push_with(
    out: &mut Vec<u8>,
    name: &str,
    attributes: &[(&str, &str)],
    build: impl FnOnce(&mut Vec<u8>),
) {
    push_start(out, name, attributes);
    build(out);
    push_end(out, name);
}

/// An element with content.
pub(crate) fn element(name: &str, attributes: &[(&str, &str)], build: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    push_with(&mut out, name, attributes, build);
    out.into()
}

/// The length of text escaped for an attribute; escaped elsewhere it is at most as long.
pub(crate) fn written_len(text: &str) -> usize {
    let mut out = Vec::new();
    push_value(&mut out, text);
    out.len()
}

/// Serializes the content of a parsed element for a parent with the default namespace `namespace`, or for any
/// parent if `None`, without the children for which `is_left_out` returns true. `None` if it exceeds
/// `bytes_max`: it may be much longer than the original, since a namespace that was declared once is written
/// at each element that uses it.
pub(crate) fn content_of(
    element: Element<'_>,
    namespace: Option<&str>,
    bytes_max: usize,
    is_left_out: impl Fn(Element<'_>) -> bool,
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    push_content(&mut out, element, namespace, bytes_max, is_left_out)?;
    Some(out)
}

/// `None` if it exceeds `bytes_max`.
fn push_content(
    out: &mut Vec<u8>,
    element: Element<'_>,
    namespace: Option<&str>,
    bytes_max: usize,
    is_left_out: impl Fn(Element<'_>) -> bool,
) -> Option<()> {
    for node in element.nodes() {
        match node {
            Child::Text(text) => push_escaped(out, text),
            Child::Element(child) if is_left_out(child) => {}
            // The parser limited the depth.
            Child::Element(child) => push_element(out, child, namespace, bytes_max)?,
        }
    }
    (out.len() <= bytes_max).then_some(())
}

fn push_element(
    out: &mut Vec<u8>,
    element: Element<'_>,
    namespace: Option<&str>,
    bytes_max: usize,
) -> Option<()> {
    let own = element.namespace();
    out.push(b'<');
    out.extend_from_slice(element.name().as_bytes());
    let attribute = |out: &mut Vec<u8>, parts: [&str; 2], value: &str| {
        out.push(b' ');
        out.extend_from_slice(parts[0].as_bytes());
        out.extend_from_slice(parts[1].as_bytes());
        out.extend_from_slice(b"='");
        push_value(out, value);
        out.push(b'\'');
    };
    if Some(own) != namespace {
        attribute(out, ["xmlns", ""], own);
    }
    for (count, (namespace, name, value)) in element.attributes().enumerate() {
        match namespace {
            "" => attribute(out, [name, ""], value),
            crate::xmpp::namespace::XML => attribute(out, ["xml:", name], value),
            _ => {
                let prefix = format!("a{count}");
                attribute(out, ["xmlns:", &prefix], namespace);
                attribute(out, [&format!("{prefix}:"), name], value);
            }
        }
        if out.len() > bytes_max {
            return None;
        }
    }
    out.push(b'>');
    push_content(out, element, Some(own), bytes_max, |_| false)?;
    push_end(out, element.name());
    Some(())
}
