//! Complete HTTP responses for long polling: queued packets, `ok` for a POST, and errors in the JSON that
//! Engine.IO clients expect. The owner of the connection supplies the headers for CORS and the connection
//! (`Access-Control-Allow-Origin`, `Connection`).

use super::payload::Payload;
use super::request::RequestError;
use crate::http::push_headers;

/// `(name, value)`: values must not contain line breaks.
pub type Header<'a> = (&'a str, &'a str);

const TEXT: &str = "text/plain; charset=UTF-8";

/// The response to a poll.
pub fn push_payload(out: &mut Vec<u8>, payload: &Payload, headers: &[Header<'_>]) {
    push_head(out, "200 OK", TEXT, payload.body_bytes(), headers);
    payload.write(out);
}

/// The response to the poll that opens a session; `open` is the output of [`super::push_open`].
pub fn push_text(out: &mut Vec<u8>, open: &[u8], headers: &[Header<'_>]) {
    push_head(out, "200 OK", TEXT, open.len(), headers);
    out.extend_from_slice(open);
}

/// EIO "Sending data": the string `ok`.
pub fn push_ok(out: &mut Vec<u8>, headers: &[Header<'_>]) {
    push_text(out, b"ok", headers);
}

pub fn push_error(out: &mut Vec<u8>, error: RequestError, headers: &[Header<'_>]) {
    let body = format!(r#"{{"code":{},"message":"{error}"}}"#, error.code());
    let status = match error.status() {
        403 => "403 Forbidden",
        411 => "411 Length Required",
        413 => "413 Content Too Large",
        _ => "400 Bad Request",
    };
    push_head(out, status, "application/json", body.len(), headers);
    out.extend_from_slice(body.as_bytes());
}

fn push_head(out: &mut Vec<u8>, status: &str, content_type: &str, body_bytes: usize, headers: &[Header<'_>]) {
    // The response to a poll is private; some proxies cache a GET by its URL.
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {body_bytes}\r\n\
         Cache-Control: no-store\r\n"
    );
    out.extend_from_slice(head.as_bytes());
    push_headers(out, headers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine_io::packet::Outgoing;

    #[track_caller]
    fn check(write: impl FnOnce(&mut Vec<u8>), status: &str, content_type: &str, body: &str) {
        let mut out = Vec::new();
        write(&mut out);
        let expected = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nA: b\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn responses_are_complete() {
        let headers = [("A", "b")];
        let mut payload = Payload::of(Outgoing::PING);
        payload.push(Outgoing::Binary(vec![1, 2, 3, 4].into()));
        check(|out| push_payload(out, &payload, &headers), "200 OK", TEXT, "2\x1ebAQIDBA==");
        check(|out| push_ok(out, &headers), "200 OK", TEXT, "ok");
        let error = |error, status: &str, body: &str| {
            check(|out| push_error(out, error, &headers), status, "application/json", body);
        };
        error(
            RequestError::UnknownTransport,
            "400 Bad Request",
            r#"{"code":0,"message":"Transport unknown"}"#,
        );
        error(RequestError::UnknownSid, "400 Bad Request", r#"{"code":1,"message":"Session ID unknown"}"#);
        error(RequestError::Forbidden, "403 Forbidden", r#"{"code":4,"message":"Forbidden"}"#);
        error(RequestError::TooBig, "413 Content Too Large", r#"{"code":3,"message":"Bad request"}"#);
        error(RequestError::LengthRequired, "411 Length Required", r#"{"code":3,"message":"Bad request"}"#);
        error(
            RequestError::UnsupportedProtocolVersion,
            "400 Bad Request",
            r#"{"code":5,"message":"Unsupported protocol version"}"#,
        );
    }
}
