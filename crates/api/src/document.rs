//! The OpenAPI documents, and the page rendered from the public one. The documents are written by hand; tests compare them
//! with the routes, error codes and parsers.

mod page;

use std::borrow::Cow;
use std::sync::LazyLock;

use noroshi_types::{limits, topic};
use serde_json::Value;

/// The document of the public listener, with default limits.
pub const PUBLIC: &str = include_str!("../openapi.json");

/// The document of the admin listener, with default limits.
pub const ADMIN: &str = include_str!("../openapi-admin.json");

/// The document of the console: the routes that no other listener has.
pub const CONSOLE: &str = include_str!("../openapi-console.json");

/// Forbids loading, scripts and frames. The style is inline.
pub(crate) const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) use page::page;

/// Marks schemas whose `maxLength` is this setting.
const LIMIT: (&str, &str) = ("x-limit", "limits.topic");

/// The public document, with this node's limits.
pub(crate) fn public() -> &'static str {
    static SERVED: LazyLock<Cow<'static, str>> = LazyLock::new(|| with_limit(PUBLIC, topic::bytes_max()));
    &SERVED
}

/// The admin document, with this node's limits.
pub(crate) fn admin() -> &'static str {
    static SERVED: LazyLock<Cow<'static, str>> = LazyLock::new(|| with_limit(ADMIN, topic::bytes_max()));
    &SERVED
}

fn with_limit(document: &'static str, topic_bytes_max: usize) -> Cow<'static, str> {
    if topic_bytes_max == limits::TOPIC_BYTES_MAX {
        return document.into();
    }
    // A built-in document, which a test parses.
    let mut parsed: Value = serde_json::from_str(document).unwrap_or_default();
    limit_topics(&mut parsed, topic_bytes_max);
    format!("{parsed:#}").into()
}

fn limit_topics(value: &mut Value, bytes_max: usize) {
    match value {
        Value::Object(fields) => {
            if fields.get(LIMIT.0).is_some_and(|limit| limit == LIMIT.1) {
                fields.insert("maxLength".to_owned(), bytes_max.into());
                if let Some(Value::String(description)) = fields.get_mut("description") {
                    let default = format!("1 to {} bytes", limits::TOPIC_BYTES_MAX);
                    *description = description.replace(&default, &format!("1 to {bytes_max} bytes"));
                }
            }
            fields.values_mut().for_each(|field| limit_topics(field, bytes_max));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| limit_topics(item, bytes_max)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All schemas that `limits.topic` bounds.
    fn limited<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
        if value.get(LIMIT.0).is_some() {
            found.push(value);
        }
        match value {
            Value::Object(fields) => fields.values().for_each(|field| limited(field, found)),
            Value::Array(items) => items.iter().for_each(|item| limited(item, found)),
            _ => {}
        }
    }

    #[test]
    fn a_raised_limit_appears_in_the_documents() {
        for (document, least) in [(PUBLIC, 10), (ADMIN, 1)] {
            assert_eq!(with_limit(document, 255), document);
            let raised = with_limit(document, 2_600);
            let parsed: Value = serde_json::from_str(&raised).expect("JSON");
            let mut found = Vec::new();
            limited(&parsed, &mut found);
            assert!(found.len() >= least, "{}", found.len());
            for schema in found {
                assert_eq!(schema["maxLength"], 2_600);
                assert!(!schema["description"].as_str().is_some_and(|text| text.contains("255")), "{schema}");
            }
            assert!(
                raised.contains("A user id, chosen by the app: 1 to 255 bytes") || document == ADMIN,
                "users"
            );
        }
    }
}
