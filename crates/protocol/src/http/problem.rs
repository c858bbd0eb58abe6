//! Error responses of the connection itself, before any API handler exists: RFC 9457 problem documents with
//! the fields, in the order, of the API's own; the API's error page lists these codes too. Each is a complete
//! response that ends the connection. The listener's admission, the head parser and the WebSocket handshake
//! write them.

use serde::Serialize;

/// The description of an error code.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    /// Stable.
    pub code: &'static str,
    pub status: u16,
    pub title: &'static str,
    /// What a client developer should know or do; backquotes mark code.
    pub advice: &'static str,
}

/// The titles of codes that the API uses as well.
pub mod title {
    pub const UNAUTHORIZED: &str = "The credential is missing or invalid";
    pub const NOT_FOUND: &str = "Not found";
    pub const METHOD_NOT_ALLOWED: &str = "The path does not support this method";
    pub const TOO_MANY_REQUESTS: &str = "Too many requests";
    pub const QUOTA_EXCEEDED: &str = "The app has exhausted its quota";
    pub const OVERLOADED: &str = "The service is overloaded";
    pub const UNAVAILABLE: &str = "The service is starting, stopping or drained";
}

/// Declares [`REFUSALS`]. The comment of a code is its advice.
macro_rules! refusals {
    ($($(#[doc = $advice:literal])+ $code:literal, $status:literal, $title:expr;)*) => {
        /// Every code that [`push_problem`] is called with.
        pub const REFUSALS: [Refusal; [$($status),*].len()] = [$(Refusal {
            code: $code,
            status: $status,
            title: $title,
            advice: concat!($($advice),+).trim_ascii_start(),
        }),*];
    };
}

refusals! {
    /// The detail names the violated rule (RFC 6455 §4.2.1).
    "bad_handshake", 400, "Not a WebSocket handshake";
    /// Send the `id:` of the last event unchanged, or none.
    "bad_last_event_id", 400, "The position to resume from is not valid";
    /// The detail states the rule.
    "bad_topic", 400, "The topic name is not allowed";
    /// The detail names the error in its head.
    "malformed_request", 400, "The request is malformed";
    /// At most 1,000, including durable ones.
    "too_many_topics", 400, "Too many topics for one device";
    /// Missing, unknown, expired or revoked. Obtain a new one; a retry with the same one fails.
    "unauthorized", 401, title::UNAUTHORIZED;
    /// Obtain a new one; a retry with the same one fails.
    "expired", 401, "The token has expired";
    /// Obtain a new one; a retry with the same one fails.
    "revoked", 401, "The token was revoked";
    /// Retry after `Retry-After`, or ask the operator for a higher quota. The detail names the quota.
    "quota_exceeded", 429, title::QUOTA_EXCEEDED;
    /// Also returned for resources of another app.
    "not_found", 404, title::NOT_FOUND;
    /// The `Allow` header lists the supported methods.
    "method_not_allowed", 405, title::METHOD_NOT_ALLOWED;
    /// The default timeout is 10 seconds. Retry.
    "request_timeout", 408, "The request head did not arrive in time";
    /// A device has one connection: the newest.
    "replaced", 409, "A newer connection of the device replaced this one";
    /// Send `Connection: Upgrade` and `Upgrade: websocket`.
    "upgrade_required", 426, "The address requires WebSocket";
    /// The `Sec-WebSocket-Version` header of the response states it.
    "websocket_version", 426, "The WebSocket version is not 13";
    /// Retry after `Retry-After`. The detail names the limit.
    "too_many_requests", 429, title::TOO_MANY_REQUESTS;
    /// The default limits are 16 KiB and 64 headers.
    "head_too_large", 431, "The request head is too large";
    /// Retry after `Retry-After`. Nothing was accepted.
    "overloaded", 503, title::OVERLOADED;
    /// Retry after `Retry-After`.
    "unavailable", 503, title::UNAVAILABLE;
}

/// RFC 9457 §3.1, and the stable code.
#[derive(Serialize)]
struct Problem<'a> {
    /// A link to the code on the node's error page.
    r#type: String,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: &'a str,
}

/// Appends a complete response that ends the connection. `code` is the stable name, `detail` is public;
/// headers must not contain line breaks.
pub fn push_problem(
    out: &mut Vec<u8>,
    status: u16,
    code: &str,
    detail: &str,
    extra_headers: &[(&str, &str)],
) {
    let phrase = phrase(status);
    let known = REFUSALS.iter().find(|refusal| refusal.code == code);
    let title = known.map_or(phrase, |refusal| refusal.title);
    let problem = Problem { r#type: format!("/docs#{code}"), title, status, code, detail };
    let body = serde_json::to_string(&problem).expect("strings and a number always serialize to JSON");
    let head = format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n",
        body.len()
    );
    out.extend_from_slice(head.as_bytes());
    push_headers(out, extra_headers);
    out.extend_from_slice(body.as_bytes());
}

/// Appends the last headers and ends the head. Values must not contain line breaks.
pub(crate) fn push_headers(out: &mut Vec<u8>, headers: &[(&str, &str)]) {
    for (name, value) in headers {
        for part in [name, ": ", value, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// RFC 9110 §15, RFC 6585.
fn phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_codes_are_unique_and_statuses_have_phrases() {
        for (n, refusal) in REFUSALS.iter().enumerate() {
            assert_ne!(phrase(refusal.status), "Error", "{}", refusal.code);
            assert!(REFUSALS[..n].iter().all(|other| other.code != refusal.code), "{} twice", refusal.code);
        }
    }
}
