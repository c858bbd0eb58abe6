//! Error answers of the connection itself, before any API handler exists: RFC 9457 problem documents with
//! the fields, and in the order, of the API's own, whose page of errors lists these codes too. Each is a
//! whole response that ends the connection; the listener's admission, the head parser and the WebSocket
//! handshake write them.

use serde::Serialize;

/// What a refusal means, by its code.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    /// The stable name.
    pub code: &'static str,
    pub status: u16,
    pub title: &'static str,
    /// What a client's developer should know or do; back-quotes mark code.
    pub advice: &'static str,
}

const fn refusal(code: &'static str, status: u16, title: &'static str, advice: &'static str) -> Refusal {
    Refusal { code, status, title, advice }
}

/// Every code that is answered with [`push_problem`].
pub const REFUSALS: [Refusal; 19] = [
    refusal(
        "bad_handshake",
        400,
        "Not a WebSocket handshake",
        "The detail says what is wrong (RFC 6455 §4.2.1).",
    ),
    refusal(
        "bad_last_event_id",
        400,
        "The position to resume from is not valid",
        "Send the `id:` of the last event as it came, or none.",
    ),
    refusal("bad_topic", 400, "A topic's name is not allowed", "The detail is the rule."),
    refusal(
        "malformed_request",
        400,
        "The request cannot be understood",
        "The detail says what is wrong with its head.",
    ),
    refusal(
        "too_many_topics",
        400,
        "More topics than a device may hear",
        "1,000 at most, durable ones among them.",
    ),
    refusal(
        "unauthorized",
        401,
        "The credential is missing or not valid",
        "Missing, unknown, expired or revoked. Get a new one; the same will not work again.",
    ),
    refusal("expired", 401, "The token has expired", "Get a new one; the same will not work again."),
    refusal("revoked", 401, "The token was revoked", "Get a new one; the same will not work again."),
    refusal(
        "quota_exceeded",
        429,
        "The app has used up its quota",
        "Try again after `Retry-After`, or ask the operator for more. The detail names the quota of the app.",
    ),
    refusal("not_found", 404, "There is no such thing", "Also for what belongs to another app."),
    refusal(
        "method_not_allowed",
        405,
        "The path does not take this method",
        "The header `Allow` lists those it takes.",
    ),
    refusal(
        "request_timeout",
        408,
        "The head of the request did not arrive in time",
        "10 seconds unless the operator chose otherwise. Try again.",
    ),
    refusal(
        "replaced",
        409,
        "A newer connection of the device took over",
        "A device has one connection: the newest.",
    ),
    refusal(
        "upgrade_required",
        426,
        "The address speaks WebSocket",
        "Send `Connection: Upgrade` and `Upgrade: websocket`.",
    ),
    refusal(
        "websocket_version",
        426,
        "The WebSocket version is not 13",
        "`Sec-WebSocket-Version` of the answer names it.",
    ),
    refusal(
        "too_many_requests",
        429,
        "More requests than are allowed",
        "Try again after `Retry-After`. The detail says whose limit it is.",
    ),
    refusal(
        "head_too_large",
        431,
        "The head of the request is too large",
        "16 KiB and 64 headers at most, unless the operator chose otherwise.",
    ),
    refusal(
        "overloaded",
        503,
        "The service has more work than it can take now",
        "Try again after `Retry-After`. Nothing was accepted.",
    ),
    refusal(
        "unavailable",
        503,
        "The service is starting, stopping or drained",
        "Try again after `Retry-After`.",
    ),
];

/// RFC 9457 §3.1, and the stable code.
#[derive(Serialize)]
struct Problem<'a> {
    /// The code's place on the node's own page.
    r#type: String,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: &'a str,
}

/// Appends a whole response that ends the connection. `code` is the stable name, `detail` is public; no
/// header may contain a line break.
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
    let body = serde_json::to_string(&problem).expect("strings and a number always are JSON");
    let head = format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n",
        body.len()
    );
    out.extend_from_slice(head.as_bytes());
    for (name, value) in extra_headers {
        for part in [name, ": ", value, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.as_bytes());
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
    fn every_refusal_has_one_code_and_a_status_with_a_name() {
        for (n, refusal) in REFUSALS.iter().enumerate() {
            assert_ne!(phrase(refusal.status), "Error", "{}", refusal.code);
            assert!(REFUSALS[..n].iter().all(|other| other.code != refusal.code), "{} twice", refusal.code);
        }
    }
}
