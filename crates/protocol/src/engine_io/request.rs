//! Parses an HTTP request on the Engine.IO path (EIO "Request path", "Query parameters") and defines the
//! errors for rejected requests. Error numbers and texts equal those of the JavaScript server, since clients
//! show them.
//!
//! The caller matches the path. A request with a body must state its length, which is checked before any of
//! the body is read.

use crate::http::Head;

use super::handshake::{Config, Sid};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Polling,
    WebSocket,
}

/// The operation that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Open a new session.
    Open(Transport),
    /// Receive the packets queued for the client.
    Poll(Sid),
    /// Send packets: a body of `body_bytes`, at most `Config::payload_bytes_max`.
    Post { sid: Sid, body_bytes: usize },
    /// Open a WebSocket for a polling session.
    Probe(Sid),
}

/// Why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("Transport unknown")]
    UnknownTransport,
    #[error("Session ID unknown")]
    UnknownSid,
    #[error("Bad handshake method")]
    BadHandshakeMethod,
    #[error("Bad request")]
    BadRequest,
    #[error("Forbidden")]
    Forbidden,
    #[error("Unsupported protocol version")]
    UnsupportedProtocolVersion,
    #[error("Bad request")]
    LengthRequired,
    #[error("Bad request")]
    TooBig,
}

impl RequestError {
    /// The `code` of the response.
    pub fn code(self) -> u8 {
        match self {
            RequestError::UnknownTransport => 0,
            RequestError::UnknownSid => 1,
            RequestError::BadHandshakeMethod => 2,
            RequestError::BadRequest | RequestError::LengthRequired | RequestError::TooBig => 3,
            RequestError::Forbidden => 4,
            RequestError::UnsupportedProtocolVersion => 5,
        }
    }

    pub fn status(self) -> u16 {
        match self {
            RequestError::Forbidden => 403,
            RequestError::LengthRequired => 411, // RFC 9110 §15.5.12
            RequestError::TooBig => 413,         // RFC 9110 §15.5.14
            // EIO "Query parameters", "Sending data", "Receiving data": always 400.
            RequestError::UnknownTransport
            | RequestError::UnknownSid
            | RequestError::BadHandshakeMethod
            | RequestError::BadRequest
            | RequestError::UnsupportedProtocolVersion => 400,
        }
    }
}

/// Parses a request head. The caller handles `OPTIONS` (CORS).
pub fn request(head: &Head<'_>, config: &Config) -> Result<Request, RequestError> {
    let transport = match head.query_value("transport").as_deref() {
        Some("polling") => Transport::Polling,
        Some("websocket") => Transport::WebSocket,
        _ => return Err(RequestError::UnknownTransport),
    };
    let sid =
        head.query_value("sid").map(|sid| Sid::parse(&sid).ok_or(RequestError::UnknownSid)).transpose()?;
    if sid.is_none() && head.method != "GET" {
        return Err(RequestError::BadHandshakeMethod);
    }
    if head.query_value("EIO").as_deref() != Some("4") {
        return Err(RequestError::UnsupportedProtocolVersion);
    }
    let upgrades = head.has_token("upgrade", "websocket");
    match (transport, sid, head.method) {
        (Transport::Polling, _, _) if upgrades => Err(RequestError::BadRequest),
        (Transport::WebSocket, _, _) if !upgrades || head.method != "GET" => Err(RequestError::BadRequest),
        (transport, None, _) => Ok(Request::Open(transport)),
        (Transport::WebSocket, Some(sid), _) => Ok(Request::Probe(sid)),
        (Transport::Polling, Some(sid), "GET") => Ok(Request::Poll(sid)),
        (Transport::Polling, Some(sid), "POST") => {
            Ok(Request::Post { sid, body_bytes: body_bytes(head, config.payload_bytes_max)? })
        }
        (Transport::Polling, Some(_), _) => Err(RequestError::BadRequest),
    }
}

/// RFC 9112 §6: exactly one length, in digits. A body without one would need transfer decoding, and no client
/// sends one.
fn body_bytes(head: &Head<'_>, max: usize) -> Result<usize, RequestError> {
    if head.header("transfer-encoding").is_some() {
        return Err(RequestError::LengthRequired);
    }
    let mut lengths = head.header_values("content-length");
    let length = lengths.next().ok_or(RequestError::LengthRequired)?;
    // §6.3: two different lengths are an attack; two equal ones are rejected as well.
    if lengths.next().is_some() || length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RequestError::BadRequest);
    }
    // Only digits, so a number that does not fit is too large.
    length.parse().ok().filter(|length| *length <= max).ok_or(RequestError::TooBig)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    const SID: &str = "AAEAAAAAAAAAAAAAAAAA";

    #[track_caller]
    fn check(method: &str, query: &str, headers: &str, expected: Result<Request, RequestError>) {
        let text = format!("{method} /socket.io/{query} HTTP/1.1\r\n{headers}\r\n");
        let (head, _) = http::parse(text.as_bytes(), &http::Limits::default()).unwrap().unwrap();
        let config = Config { payload_bytes_max: 1000, ..Config::default() };
        assert_eq!(request(&head, &config), expected, "{text}");
    }

    const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";

    #[test]
    fn requests_open_and_continue_sessions() {
        let sid = Sid::parse(SID).unwrap();
        check("GET", "?EIO=4&transport=polling&t=N8hyd6w", "", Ok(Request::Open(Transport::Polling)));
        check("GET", "?EIO=4&transport=websocket", UPGRADE, Ok(Request::Open(Transport::WebSocket)));
        let polling = format!("?EIO=4&transport=polling&sid={SID}");
        check("GET", &polling, "", Ok(Request::Poll(sid)));
        check("POST", &polling, "Content-Length: 0\r\n", Ok(Request::Post { sid, body_bytes: 0 }));
        check("POST", &polling, "content-length: 1000\r\n", Ok(Request::Post { sid, body_bytes: 1000 }));
        check("GET", &format!("?transport=websocket&EIO=4&sid={SID}"), UPGRADE, Ok(Request::Probe(sid)));
    }

    #[test]
    fn rejections_have_the_codes_of_the_javascript_server() {
        use RequestError::*;
        check("GET", "", "", Err(UnknownTransport));
        check("GET", "?EIO=4", "", Err(UnknownTransport));
        check("GET", "?EIO=4&transport=abc", "", Err(UnknownTransport));
        check("GET", "?EIO=4&transport=POLLING", "", Err(UnknownTransport));
        check("GET", "?transport=polling", "", Err(UnsupportedProtocolVersion));
        for version in ["abc", "3", "5", "", "04"] {
            check("GET", &format!("?EIO={version}&transport=polling"), "", Err(UnsupportedProtocolVersion));
        }
        check("POST", "?EIO=4&transport=polling", "Content-Length: 1\r\n", Err(BadHandshakeMethod));
        check("PUT", "?EIO=4&transport=polling", "", Err(BadHandshakeMethod));
        check("GET", "?EIO=4&transport=polling&sid=abc", "", Err(UnknownSid));
        check("GET", "?EIO=4&transport=polling&sid=", "", Err(UnknownSid));
        let polling = format!("?EIO=4&transport=polling&sid={SID}");
        check("PUT", &polling, "", Err(BadRequest));
        check("GET", "?EIO=4&transport=websocket", "", Err(BadRequest));
        check("GET", "?EIO=4&transport=polling", UPGRADE, Err(BadRequest));
        check("GET", &polling, UPGRADE, Err(BadRequest));
        check("POST", &format!("?EIO=4&transport=websocket&sid={SID}"), UPGRADE, Err(BadRequest));
        for code in [UnknownTransport, UnknownSid, BadHandshakeMethod, BadRequest, UnsupportedProtocolVersion]
        {
            assert_eq!(code.status(), 400);
        }
    }

    #[test]
    fn body_length_is_checked_before_reading() {
        use RequestError::*;
        let polling = format!("?EIO=4&transport=polling&sid={SID}");
        let length = |headers: &str, error| check("POST", &polling, headers, Err(error));
        length("", LengthRequired);
        length("Transfer-Encoding: chunked\r\n", LengthRequired);
        length("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", LengthRequired);
        length("Content-Length: 1001\r\n", TooBig);
        length("Content-Length: 99999999999999999999999999\r\n", TooBig);
        length("Content-Length: +5\r\n", BadRequest);
        length("Content-Length: 5, 5\r\n", BadRequest);
        length("Content-Length: 5\r\nContent-Length: 6\r\n", BadRequest);
        length("Content-Length: -1\r\n", BadRequest);
    }
}
