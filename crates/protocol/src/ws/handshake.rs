//! The opening handshake (RFC 6455 §4) of both ends. The server side checks a head that [`crate::http`]
//! parsed. Authorization happens elsewhere, and origins are not checked: tokens are never sent in cookies, so
//! a foreign page gains nothing. The caller generates the client's key.

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use ring::digest;

use super::error::UpgradeError;
use super::extension::{self, Deflate};
use crate::http::{Head, push_headers};

/// The header with which a client offers permessage-deflate, for [`push_upgrade_request`]. Check the response
/// with [`check_upgrade_response_to`].
pub const OFFER_DEFLATE: (&str, &str) = ("Sec-WebSocket-Extensions", extension::OFFER);

/// The subprotocol of the native protocol.
pub const SUBPROTOCOL: &str = "noroshi.v1";

/// RFC 6455 §1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// §4.2.1 only requires that the key decodes to 16 bytes: trailing bits of the last character are ignored.
const KEY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A request that may be upgraded to a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upgrade {
    /// `Sec-WebSocket-Accept`.
    pub key_accept: [u8; 28],
    /// The subprotocol: `noroshi.v1` if the client offered it, `None` if it offered no known one.
    pub protocol: Option<&'static str>,
    /// Set if messages may be compressed.
    pub deflate: Option<Deflate>,
}

impl Upgrade {
    /// Accepts permessage-deflate if the client's offer is acceptable.
    pub fn with_deflate(self, head: &Head<'_>) -> Result<Self, UpgradeError> {
        let deflate = Deflate::negotiate(head.header_values("sec-websocket-extensions"))?;
        Ok(Self { deflate, ..self })
    }
}

/// Validates a request according to RFC 6455 §4.2.1.
pub fn upgrade(head: &Head<'_>) -> Result<Upgrade, UpgradeError> {
    upgrade_to(head, SUBPROTOCOL)
}

/// [`upgrade`] with another subprotocol, if the client offers it.
pub fn upgrade_to(head: &Head<'_>, subprotocol: &'static str) -> Result<Upgrade, UpgradeError> {
    if head.method != "GET" {
        return Err(UpgradeError::NotGet);
    }
    if !head.has_token("upgrade", "websocket") || !head.has_token("connection", "upgrade") {
        return Err(UpgradeError::NotUpgrade);
    }
    if head.minor_version < 1 {
        return Err(UpgradeError::Malformed("a WebSocket handshake requires HTTP/1.1"));
    }
    if head.header("host").is_none() {
        return Err(UpgradeError::Malformed("the Host header is missing"));
    }
    if head.header("sec-websocket-version").map(str::trim) != Some("13") {
        return Err(UpgradeError::Version);
    }
    let mut keys = head.header_values("sec-websocket-key");
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return Err(UpgradeError::Malformed("exactly one Sec-WebSocket-Key is required"));
    };
    let mut nonce = [0; 18]; // the maximum decoded size of 24 characters
    if key.len() != 24 || !KEY_BASE64.decode_slice(key, &mut nonce).is_ok_and(|len| len == 16) {
        return Err(UpgradeError::Malformed("Sec-WebSocket-Key is not 16 bytes in base64"));
    }
    Ok(Upgrade {
        key_accept: accept_key(key),
        protocol: head.has_token("sec-websocket-protocol", subprotocol).then_some(subprotocol),
        deflate: None,
    })
}

/// RFC 6455 §4.2.2: base64 of the SHA-1 of the key and a fixed text. Not a secret.
pub fn accept_key(key: impl AsRef<[u8]>) -> [u8; 28] {
    let mut sha1 = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    sha1.update(key.as_ref());
    sha1.update(GUID);
    let mut accept = [0; 28];
    STANDARD.encode_slice(sha1.finish(), &mut accept).expect("20 bytes encode to 28 characters of base64");
    accept
}

/// Appends the response that completes the upgrade.
pub fn push_upgrade_response(out: &mut Vec<u8>, upgrade: &Upgrade) {
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ",
    );
    out.extend_from_slice(&upgrade.key_accept);
    if let Some(protocol) = upgrade.protocol {
        out.extend_from_slice(b"\r\nSec-WebSocket-Protocol: ");
        out.extend_from_slice(protocol.as_bytes());
    }
    if let Some(deflate) = upgrade.deflate {
        deflate.push_answer(out);
    }
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends a client's request that offers `noroshi.v1`. `key` is 16 random bytes in base64; arguments must
/// not contain line breaks.
pub fn push_upgrade_request(
    out: &mut Vec<u8>,
    host: &str,
    path_and_query: &str,
    key: &str,
    extra_headers: &[(&str, &str)],
) {
    for part in ["GET ", path_and_query, " HTTP/1.1\r\nHost: ", host, "\r\nUpgrade: websocket\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    for part in ["Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ", key] {
        out.extend_from_slice(part.as_bytes());
    }
    for part in ["\r\nSec-WebSocket-Protocol: ", SUBPROTOCOL, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    push_headers(out, extra_headers);
}

/// Why the server's response does not open a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The status is not 101; the body (a problem document) starts after `head_len` bytes.
    #[error("the server answered with status {status}")]
    Status { status: u16, head_len: usize },
    #[error("{0}")]
    Malformed(&'static str),
}

/// Validates the server's response according to RFC 6455 §4.1. Returns the head's length once it is complete;
/// frames may follow in the same read.
pub fn check_upgrade_response(bytes: &[u8], key: &str) -> Result<Option<usize>, Refusal> {
    check_upgrade_response_to(bytes, key, false)
}

/// [`check_upgrade_response`] for a request that may contain [`OFFER_DEFLATE`].
pub fn check_upgrade_response_to(
    bytes: &[u8],
    key: &str,
    offered_deflate: bool,
) -> Result<Option<usize>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let head_len = match response.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Refusal::Malformed("the response is not HTTP/1.1")),
    };
    let status = response.code.unwrap_or_default();
    if status != 101 {
        return Err(Refusal::Status { status, head_len });
    }
    let value = |name: &str| {
        response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    if !value("upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket")) {
        return Err(Refusal::Malformed("the response does not upgrade to a WebSocket"));
    }
    if !value("connection").is_some_and(|value| value.eq_ignore_ascii_case(b"upgrade")) {
        return Err(Refusal::Malformed("the response's Connection header is not \"Upgrade\""));
    }
    if value("sec-websocket-accept") != Some(accept_key(key).as_slice()) {
        return Err(Refusal::Malformed("Sec-WebSocket-Accept does not match the key"));
    }
    if value("sec-websocket-protocol").is_some_and(|value| value != SUBPROTOCOL.as_bytes()) {
        return Err(Refusal::Malformed("the server chose a subprotocol that was not offered"));
    }
    if value("sec-websocket-extensions")
        .is_some_and(|value| !offered_deflate || !extension::accepts_offer(value))
    {
        return Err(Refusal::Malformed("the server chose an extension that was not offered"));
    }
    Ok(Some(head_len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    const REQUEST: &str = "GET /v1/connect?token=x HTTP/1.1\r\nHost: push.example\r\nUpgrade: websocket\r\n\
        Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: other, noroshi.v1\r\n\r\n";

    fn check(request: &str) -> Result<Upgrade, UpgradeError> {
        let (head, _) = http::parse(request.as_bytes(), &http::Limits::default()).unwrap().unwrap();
        upgrade(&head)
    }

    #[test]
    fn accept_key_matches_rfc_6455_section_1_3() {
        assert_eq!(&accept_key("dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn browser_handshake_is_accepted() {
        let upgrade = check(REQUEST).unwrap();
        let mut out = Vec::new();
        push_upgrade_response(&mut out, &upgrade);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: noroshi.v1\r\n\r\n"
        );
        let plain = check(&REQUEST.replace("Sec-WebSocket-Protocol: other, noroshi.v1\r\n", "")).unwrap();
        assert_eq!(plain.protocol, None);
        let shouting =
            REQUEST.replace("Upgrade: websocket", "UPGRADE: WebSocket").replace(", Upgrade", ", UPGRADE");
        assert!(check(&shouting).is_ok());
    }

    #[test]
    fn compression_is_negotiated_if_offered() {
        const OFFER: &str =
            "Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=10\r\n";
        let negotiated = |request: &str| {
            let (head, _) = http::parse(request.as_bytes(), &http::Limits::default()).unwrap().unwrap();
            upgrade(&head).unwrap().with_deflate(&head)
        };
        let request = REQUEST.replace("Version: 13\r\n", OFFER);
        assert_eq!(check(&request).unwrap().deflate, None, "nobody asked for it");
        let agreed = negotiated(&request).unwrap();
        assert_eq!(agreed.deflate.map(Deflate::server_window_bits), Some(10));
        let mut out = Vec::new();
        push_upgrade_response(&mut out, &agreed);
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        assert_eq!(check_upgrade_response_to(&out, key, true), Ok(Some(out.len())));
        assert!(check_upgrade_response(&out, key).is_err(), "it was not offered");
        assert_eq!(negotiated(REQUEST).unwrap().deflate, None);
        let malformed = negotiated(&request.replace("bits=10", "bits=\""));
        assert_eq!(malformed.map_err(|error| error.status()), Err(400));
    }

    #[test]
    fn every_requirement_is_checked() {
        let check_error = |from: &str, to: &str, error: UpgradeError| {
            let request = REQUEST.replace(from, to);
            assert_ne!(request, REQUEST);
            assert_eq!(check(&request), Err(error), "{to:?}");
        };
        let key = |key: &str| format!("Key: {key}\r\n");
        let good_key = key("dGhlIHNhbXBsZSBub25jZQ==");
        let bad_key = UpgradeError::Malformed("Sec-WebSocket-Key is not 16 bytes in base64");
        let one_key = UpgradeError::Malformed("exactly one Sec-WebSocket-Key is required");
        check_error("GET", "POST", UpgradeError::NotGet);
        check_error("Upgrade: websocket", "Upgrade: h2c", UpgradeError::NotUpgrade);
        check_error("keep-alive, Upgrade", "keep-alive", UpgradeError::NotUpgrade);
        check_error(
            "HTTP/1.1",
            "HTTP/1.0",
            UpgradeError::Malformed("a WebSocket handshake requires HTTP/1.1"),
        );
        check_error("Host: push.example\r\n", "", UpgradeError::Malformed("the Host header is missing"));
        check_error("Version: 13", "Version: 8", UpgradeError::Version);
        check_error("Sec-WebSocket-Version: 13\r\n", "", UpgradeError::Version);
        check_error(&format!("Sec-WebSocket-{good_key}"), "", one_key);
        check_error(&good_key, &format!("{good_key}Sec-WebSocket-{good_key}"), one_key);
        for bad in [
            "",
            "c2hvcnQ=",
            "dGhlIHNhbXBsZSBub25jZSE=",
            "dGhlIHNhbXBsZSBub25jZQ!=",
            "dGhlIHNhbXBsZSBub25jZQAAAAAA",
        ] {
            check_error(&good_key, &key(bad), bad_key);
        }
    }

    /// The whole response.
    fn refused(error: UpgradeError) -> Vec<u8> {
        let mut out = Vec::new();
        http::push_problem(&mut out, error.status(), error.code(), &error.to_string(), error.headers());
        out
    }

    #[test]
    fn rejection_states_the_supported_protocol() {
        let check = |error: UpgradeError, status: &str, header: &str| {
            let answer = String::from_utf8(refused(error)).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            assert!(answer.contains(&format!("\r\n{header}\r\n")), "{answer}");
        };
        check(UpgradeError::NotGet, "405 Method Not Allowed", "Allow: GET");
        check(UpgradeError::NotUpgrade, "426 Upgrade Required", "Upgrade: websocket");
        check(UpgradeError::Version, "426 Upgrade Required", "Sec-WebSocket-Version: 13");
        check(UpgradeError::Malformed("why"), "400 Bad Request", "Connection: close");
    }

    #[test]
    fn both_ends_interoperate() {
        let key = "AQIDBAUGBwgJCgsMDQ4PEC==";
        let mut request = Vec::new();
        let extra = [("Authorization", "Bearer t")];
        push_upgrade_request(&mut request, "localhost:8080", "/v1/connect?a=b", key, &extra);
        let (head, head_len) = http::parse(&request, &http::Limits::default()).unwrap().unwrap();
        assert_eq!((head_len, head.path, head.bearer_token()), (request.len(), "/v1/connect", Some("t")));
        let mut response = Vec::new();
        push_upgrade_response(&mut response, &upgrade(&head).unwrap());
        let response_len = response.len();
        response.extend_from_slice(b"\x81\x00");
        assert_eq!(check_upgrade_response(&response, key), Ok(Some(response_len)));
        for len in 0..response_len {
            assert_eq!(check_upgrade_response(&response[..len], key), Ok(None), "{len}");
        }
        let other = check_upgrade_response(&response, "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(other, Err(Refusal::Malformed("Sec-WebSocket-Accept does not match the key")));
    }

    #[test]
    fn client_reports_the_status_of_a_rejection() {
        let out = refused(UpgradeError::NotUpgrade);
        let Err(Refusal::Status { status: 426, head_len }) = check_upgrade_response(&out, "") else {
            panic!("a refusal with its status")
        };
        assert_eq!(out[head_len], b'{');
        assert!(matches!(check_upgrade_response(b"SSH-2.0\r\n", ""), Err(Refusal::Malformed(_))));
    }
}
