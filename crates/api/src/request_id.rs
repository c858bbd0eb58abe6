//! `X-Request-Id`: the client's own value if it is safe to log, else a new UUID.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use noroshi_protocol::http::is_request_id;

pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Keeps a short, plain value of the client, so that its log and ours can be matched. Never a value that contains a
/// credential of the request.
pub(crate) fn of(headers: &HeaderMap) -> HeaderValue {
    let credentials: Vec<_> = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes).collect();
    let is_plain = |value: &&HeaderValue| is_request_id(value.as_bytes(), &credentials);
    let generate = || HeaderValue::from_str(&uuid::Uuid::now_v7().as_simple().to_string());
    match headers.get(&HEADER).filter(is_plain) {
        Some(value) => value.clone(),
        None => generate().unwrap_or_else(|_| HeaderValue::from_static("unknown")),
    }
}
