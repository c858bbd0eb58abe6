//! Query strings: `name=value` pairs, percent-encoded UTF-8, with `+` for a space as HTML forms and
//! `URLSearchParams` write it. A `%` that does not start an escape is rejected. The head parser validates the
//! whole query once, so later look-ups cannot fail.

use std::borrow::Cow;

/// The first value of `name`; empty if `name` occurs without `=`.
pub(super) fn value<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .find(|(key, _)| decode(key).is_some_and(|key| key == name))
        .and_then(|(_, value)| decode(value))
}

/// Returns `None` if an escape is not two hexadecimal digits, or the result is not UTF-8.
pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let (digits, after) = after.split_first_chunk::<2>()?;
            decoded.push(escaped(digits)?);
            rest = after;
        } else {
            decoded.push(if first == b'+' { b' ' } else { first });
            rest = after;
        }
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

fn escaped(digits: &[u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? * 16 + low?).ok()
}
