//! Query strings: `name=value` pairs, percent-encoded UTF-8, with `+` for a space as HTML forms and
//! `URLSearchParams` write it. A `%` that does not start an escape is rejected. The head parser validates the
//! whole query once, so later look-ups cannot fail.

use std::borrow::Cow;

use noroshi_types::percent;

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
    let spaced = if text.contains('+') { text.replace('+', " ").into() } else { Cow::Borrowed(text) };
    percent::decode(&spaced).ok().map(Cow::Owned)
}
