//! Extractors for path and query parameters.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::{Code, Problem};

/// Decoded path parameters.
pub struct Path<T>(pub T);

/// Query parameters. Unknown ones are rejected like unknown fields.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(path)) => Ok(Self(path)),
            Err(_) => Err(Problem::new(Code::InvalidParameter, "the path is not percent-encoded UTF-8")),
        }
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(rejection) => {
                let text = rejection.body_text();
                let rule = text.split_once(": ").map_or(&*text, |(_, rule)| rule);
                Err(Problem::new(Code::InvalidParameter, without_input(rule)))
            }
        }
    }
}

/// The error without the client's own text: it may contain a credential, and responses end up in logs of clients and
/// proxies.
fn without_input(rule: &str) -> String {
    for (error, message) in [
        ("unknown field", "unknown parameter"),
        ("unknown variant", "unknown value of a parameter"),
        ("invalid value", "invalid value of a parameter"),
        ("invalid type", "invalid value of a parameter"),
    ] {
        if !rule.contains(error) {
            continue;
        }
        // The client's text precedes the last ", expected".
        return match rule.rsplit_once(", expected ") {
            Some((_, expected)) => format!("{message}: expected {expected}"),
            None => message.to_owned(),
        };
    }
    rule.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_do_not_repeat_the_query() {
        let check = |rule: &str, expected: &str| assert_eq!(without_input(rule), expected, "{rule}");
        check(
            "nd1.a: unknown field `nd1.a`, expected `after` or `limit`",
            "unknown parameter: expected `after` or `limit`",
        );
        check("x: unknown field `a`, expected ``, expected `after`", "unknown parameter: expected `after`");
        check("x: unknown field `a`, there are no fields", "unknown parameter");
        check("limit: invalid digit found in string", "limit: invalid digit found in string");
        check("duplicate field `after`", "duplicate field `after`");
    }
}
