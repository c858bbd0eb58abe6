//! Rewrites a JSON object with some fields removed or added; the text of the other values stays unchanged. Only for
//! bodies that were validated before. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// `object` without the fields named in `out`, and with those of `new` in front. None if it is not an object.
pub(crate) fn splice(object: &[u8], out: &[&str], new: &[(&str, &str)]) -> Option<String> {
    let object = if object.is_empty() { b"{}" } else { object };
    let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(object).ok()?;
    let mut text = String::with_capacity(object.len() + 64);
    let mut push = |name: &str, value: &str| {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(&serde_json::to_string(name).ok()?);
        text.push(':');
        text.push_str(value);
        Some(())
    };
    for (name, value) in new {
        push(name, value)?;
    }
    for (name, value) in &fields {
        if !out.contains(&&**name) && !new.iter().any(|(new, _)| new == name) {
            push(name, value.get())?;
        }
    }
    text.push_str(if text.is_empty() { "{}" } else { "}" });
    Some(text)
}

/// The text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_fields_keep_their_text() {
        let check = |object: &str, out: &[&str], new: &[(&str, &str)], expected: Option<&str>| {
            assert_eq!(splice(object.as_bytes(), out, new).as_deref(), expected, "{object}");
        };
        check(
            r#"{"to": {"users":["a"]}, "data": { "n" : 1.0e2 }}"#,
            &["to"],
            &[],
            Some(r#"{"data":{ "n" : 1.0e2 }}"#),
        );
        check(r#"{"a": 1}"#, &[], &[("device", "\"d\"")], Some(r#"{"device":"d","a":1}"#));
        check(r#"{"device": 1}"#, &[], &[("device", "2")], Some(r#"{"device":2}"#));
        check(r#"{"\u0061": 1}"#, &["a"], &[], Some("{}"));
        check("", &[], &[], Some("{}"));
        check("[1]", &[], &[], None);
    }

    #[test]
    fn a_text_is_quoted() {
        assert_eq!(quoted("a\"b\u{1}"), r#""a\"b\u0001""#);
    }
}
