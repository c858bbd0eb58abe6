//! Error answers of the connection itself, before any API handler exists: RFC 9457 problem documents with
//! the fields, and in the order, of the API's own. Each is a whole response that ends the connection; the
//! listener's admission, the head parser and the WebSocket handshake write them.

use serde::Serialize;

/// RFC 9457 §3.1, and the stable code.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
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
    let title = title(status);
    let problem = Problem { r#type: "about:blank", title, status, code, detail };
    let body = serde_json::to_string(&problem).expect("strings and a number always are JSON");
    let head = format!(
        "HTTP/1.1 {status} {title}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\
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
fn title(status: u16) -> &'static str {
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
