//! The head of an HTTP/1.1 request, as far as the gateway needs it: to route a connection to WebSocket, SSE
//! or the API, and to read a token. The owner of the connection handles bodies and the rest of HTTP. The head
//! borrows the caller's bytes.
//!
//! Invariants: at most `Limits::head_bytes` are read; an accepted query decodes to UTF-8; `Debug` shows
//! neither headers nor query, which may hold tokens.

use std::borrow::Cow;
use std::fmt;

mod problem;
mod query;
mod request_id;

pub(crate) use problem::push_headers;
pub use problem::{REFUSALS, Refusal, push_problem, title};
pub use request_id::is_request_id;

/// Limits of a request head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size of request line, headers and the empty line.
    pub head_bytes: usize,
    /// Number of header lines.
    pub headers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes: noroshi_types::limits::HEAD_BYTES, headers: noroshi_types::limits::HEADERS }
    }
}

/// A complete request head.
#[derive(Clone)]
pub struct Head<'a> {
    pub method: &'a str,
    /// Without the query, percent-encoded as received.
    pub path: &'a str,
    /// The part after `?`, as received; [`Head::query_value`] decodes it.
    pub query: Option<&'a str>,
    /// 0 or 1, of HTTP/1.x.
    pub minor_version: u8,
    headers: Vec<httparse::Header<'a>>,
}

/// Why bytes are not an acceptable request head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("the request line and headers are too long")]
    TooLong,
    #[error("too many headers")]
    TooManyHeaders,
    #[error("{0}")]
    Malformed(&'static str),
}

impl HeadError {
    pub fn status(&self) -> u16 {
        match self {
            HeadError::TooLong | HeadError::TooManyHeaders => 431, // RFC 6585 §5
            HeadError::Malformed(_) => 400,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            HeadError::TooLong | HeadError::TooManyHeaders => "head_too_large",
            HeadError::Malformed(_) => "malformed_request",
        }
    }
}

/// Parses the head at the start of `bytes`. Returns the head and its length, or `None` while it is
/// incomplete.
pub fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<(Head<'a>, usize)>, HeadError> {
    let window = &bytes[..bytes.len().min(limits.head_bytes)];
    let mut headers = vec![httparse::EMPTY_HEADER; limits.headers];
    let mut request = httparse::Request::new(&mut headers);
    let head_len = match request.parse(window) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if window.len() < limits.head_bytes => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(HeadError::TooLong),
        Err(error) => return Err(malformed(error)),
    };
    let (Some(method), Some(target), Some(minor_version)) = (request.method, request.path, request.version)
    else {
        return Err(HeadError::Malformed("the request line is incomplete"));
    };
    let header_count = request.headers.len();
    headers.truncate(header_count);
    let target = origin_form(target).ok_or(HeadError::Malformed("the request target is not a path"))?;
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    if query.is_some_and(|query| noroshi_types::percent::check(query).is_err()) {
        return Err(HeadError::Malformed("the query is not percent-encoded UTF-8"));
    }
    Ok(Some((Head { method, path, query, minor_version, headers }, head_len)))
}

/// RFC 9112 §3.2: `/path?query`, `*`, or an absolute URI, which a server must accept too.
fn origin_form(target: &str) -> Option<&str> {
    if target.starts_with('/') || target == "*" {
        return Some(target);
    }
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    rest.find('/').map(|at| &rest[at..])
}

fn malformed(error: httparse::Error) -> HeadError {
    HeadError::Malformed(match error {
        httparse::Error::TooManyHeaders => return HeadError::TooManyHeaders,
        httparse::Error::HeaderName => "a header name has characters that are not allowed",
        httparse::Error::HeaderValue => "a header value has characters that are not allowed",
        httparse::Error::NewLine => "a line does not end with CRLF",
        httparse::Error::Token => "the request line has characters that are not allowed",
        httparse::Error::Version => "the HTTP version is not 1.0 or 1.1",
        httparse::Error::Status => "this is a response",
    })
}

impl<'a> Head<'a> {
    /// The first header with this name; `None` if its value is not UTF-8.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.header_values(name).next()
    }

    /// Every header with this name, in order, as bytes.
    pub fn header_bytes(&self, name: &str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    }

    /// Every header with this name whose value is UTF-8, in order.
    pub fn header_values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .filter_map(|header| std::str::from_utf8(header.value).ok())
    }

    /// Whether a comma-separated header lists `token`, ignoring case.
    pub fn has_token(&self, header: &str, token: &str) -> bool {
        self.header_values(header)
            .flat_map(|value| value.split(','))
            .any(|listed| listed.trim().eq_ignore_ascii_case(token))
    }

    /// The first value of this name in the query, decoded.
    pub fn query_value(&self, name: &str) -> Option<Cow<'a, str>> {
        query::value(self.query?, name)
    }

    /// The token of `Authorization: Bearer <token>` (RFC 6750 §2.1).
    pub fn bearer_token(&self) -> Option<&'a str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
    }
}

impl fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

#[cfg(test)]
mod tests;
