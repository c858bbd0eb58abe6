//! An HTTP/1.1 client like a provider's backend: requests are written in one piece, responses parsed without
//! a socket ([`Response::parse`]), and a blocking client serves everything that is not measured. Measured
//! requests use [`crate::sender`], which shares the parser.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustls::StreamOwned;

use crate::Error;
use crate::tls::{Connector, Trust};

/// Limit of a response head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Limit of a response body; a batch of 10,000 results takes about 1 MB.
const BODY_BYTES_MAX: usize = 64 << 20;
const HEADERS_MAX: usize = 64;
/// Sufficient for a batch of registrations, the slowest request.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server's address.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    /// The value of the `Host` header.
    pub(crate) host: String,
    /// `None`: without TLS.
    pub(crate) trust: Option<Trust>,
}

impl Origin {
    /// Parses `http://host:port` or `https://host:port`, with an optional trailing slash.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        use std::net::ToSocketAddrs;
        let (host, port, trust) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(host), _) => (host, 80, None),
            (None, Some(host)) => (host, 443, Some(Trust::Public)),
            (None, None) => {
                return Err(Error::Usage(format!("{url}: expected http://host:port or https://host:port")));
            }
        };
        let host = host.strip_suffix('/').unwrap_or(host);
        let with_port = if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        let mut addresses = with_port
            .to_socket_addrs()
            .map_err(|source| Error::Unreachable { url: url.to_owned(), source })?;
        let address = addresses.next().ok_or_else(|| Error::Usage(format!("{url} has no address")))?;
        Ok(Self { address, host: host.to_owned(), trust })
    }

    /// Another address `host:port` of the same server, with the same TLS settings.
    pub(crate) fn beside(&self, address: &str) -> Result<Self, Error> {
        let other = Self::parse_address(address)?;
        Ok(Self { trust: self.trust.clone(), ..other })
    }

    /// Parses `host:port` of a server without HTTP.
    pub(crate) fn parse_address(address: &str) -> Result<Self, Error> {
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        match port {
            Some(_) => Self::parse(&format!("http://{address}")),
            None => Err(Error::Usage(format!("{address}: expected host:port"))),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.trust.is_some() { "https" } else { "http" }, self.host)
    }

    /// The TLS client for it, if it uses TLS.
    pub(crate) fn connector(&self) -> Result<Option<Connector>, Error> {
        self.trust.as_ref().map(|trust| Connector::new(trust, &self.host)).transpose()
    }
}

/// A request; `key` is the provider's API key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'static str,
    pub(crate) path: &'a str,
    pub(crate) key: &'a str,
    pub(crate) content_type: &'static str,
}

impl<'a> Request<'a> {
    pub(crate) fn json(method: &'static str, path: &'a str, key: &'a str) -> Self {
        Self { method, path, key, content_type: "application/json" }
    }

    /// A batch with one JSON object per line.
    pub(crate) fn lines(path: &'a str, key: &'a str) -> Self {
        Self { method: "POST", path, key, content_type: "application/x-ndjson" }
    }

    pub(crate) fn notification(key: &'a str) -> Self {
        Self::json("POST", "/v1/notifications", key)
    }

    /// Appends the complete request.
    pub(crate) fn push(&self, out: &mut Vec<u8>, host: &str, body: &[u8]) {
        let Request { method, path, key, content_type } = self;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(body);
    }
}

/// A response and its length in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The server closes the connection afterwards.
    pub(crate) close: bool,
    /// The retry delay in seconds, if any (RFC 9110 §10.2.3).
    pub(crate) retry_after_s: Option<u64>,
    pub(crate) len: usize,
    /// `ETag`, if any.
    pub(crate) tag: Option<String>,
}

enum Framing {
    Length(usize),
    Chunked,
    /// Until the connection ends (RFC 9112 §6.3).
    Close,
}

impl Response {
    /// `None` until the response is complete. `ended`: no more bytes will arrive.
    pub(crate) fn parse(bytes: &[u8], ended: bool) -> Result<Option<Self>, &'static str> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let head_len = match head.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if bytes.len() > HEAD_BYTES_MAX => {
                return Err("its head is too long");
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("its head is malformed"),
        };
        let status = head.code.unwrap_or_default();
        if status < 200 {
            // RFC 9110 §15.2: interim responses precede the final one.
            let rest = Self::parse(&bytes[head_len..], ended)?;
            return Ok(rest.map(|response| Self { len: response.len + head_len, ..response }));
        }
        let close = has(head.headers, "connection", "close") || head.version == Some(0);
        let retry_after_s = text_of(head.headers, "retry-after").and_then(|text| text.parse().ok());
        let tag = text_of(head.headers, "etag").map(str::to_owned);
        let rest = &bytes[head_len..];
        let body = match framing(status, head.headers)? {
            Framing::Length(len) => rest.get(..len).map(|body| (body.to_vec(), len)),
            Framing::Chunked => dechunk(rest)?,
            Framing::Close => ended.then(|| (rest.to_vec(), rest.len())),
        };
        Ok(body.map(|(body, len)| Self { status, body, close, retry_after_s, len: head_len + len, tag }))
    }

    fn expect_success(self, method: &str, path: &str) -> Result<Self, Error> {
        match self.status {
            200..=299 => Ok(self),
            status => Err(Error::Refused { request: format!("{method} {path}"), status, body: self.text() }),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(500).collect()
    }

    /// The stable `code` of a problem document, to count rejections by cause.
    pub(crate) fn problem_code(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Problem {
            code: String,
        }
        let code = serde_json::from_slice(&self.body).map(|Problem { code }| code).unwrap_or_default();
        format!("HTTP {} {code}", self.status).trim_end().to_owned()
    }
}

fn has(headers: &[httparse::Header<'_>], name: &str, token: &str) -> bool {
    headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).any(|header| {
        let value = std::str::from_utf8(header.value).unwrap_or_default();
        value.split(',').any(|part| part.trim().eq_ignore_ascii_case(token))
    })
}

fn text_of<'h>(headers: &[httparse::Header<'h>], name: &str) -> Option<&'h str> {
    let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    Some(std::str::from_utf8(header.value).ok()?.trim())
}

fn framing(status: u16, headers: &[httparse::Header<'_>]) -> Result<Framing, &'static str> {
    if status == 204 || status == 304 {
        return Ok(Framing::Length(0)); // RFC 9112 §6.3
    }
    if has(headers, "transfer-encoding", "chunked") {
        return Ok(Framing::Chunked);
    }
    let Some(header) = headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"))
    else {
        return Ok(Framing::Close);
    };
    let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
    match value.parse() {
        Ok(len) if len <= BODY_BYTES_MAX => Ok(Framing::Length(len)),
        Ok(_) => Err("its body is too long"),
        Err(_) => Err("its Content-Length is not a number"),
    }
}

/// The body and its encoded length (RFC 9112 §7.1), once the last chunk and its trailers have arrived.
fn dechunk(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, &'static str> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let (line_len, size) = match httparse::parse_chunk_size(&bytes[at..]) {
            Ok(httparse::Status::Complete((line_len, size))) => (line_len, size),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("a chunk size is malformed"),
        };
        at += line_len;
        if size == 0 {
            // Trailers are lines; an empty one ends them.
            while let Some(end) = memchr::memmem::find(&bytes[at..], b"\r\n") {
                at += end + 2;
                if end == 0 {
                    return Ok(Some((body, at)));
                }
            }
            return Ok(None);
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size.saturating_add(body.len()) > BODY_BYTES_MAX {
            return Err("its body is too long");
        }
        let Some(chunk) = bytes.get(at..at + size + 2) else { return Ok(None) };
        if &chunk[size..] != b"\r\n" {
            return Err("a chunk has the wrong length");
        }
        body.extend_from_slice(&chunk[..size]);
        at += size + 2;
    }
}

/// A keep-alive connection that waits for every response.
pub(crate) struct Client {
    origin: Origin,
    stream: Option<Box<dyn Wire>>,
    connector: Option<Connector>,
}

trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

impl Client {
    pub(crate) fn new(origin: Origin) -> Result<Self, Error> {
        Ok(Self { connector: origin.connector()?, origin, stream: None })
    }

    pub(crate) fn request(&mut self, request: Request<'_>, body: &[u8]) -> Result<Response, Error> {
        let mut bytes = Vec::with_capacity(512 + body.len());
        request.push(&mut bytes, &self.origin.host, body);
        self.send(&bytes, request.path)
    }

    /// [`Client::request`] for responses that must be a success.
    pub(crate) fn expect_success(&mut self, request: Request<'_>, body: &[u8]) -> Result<Response, Error> {
        let response = self.request(request, body)?;
        response.expect_success(request.method, request.path)
    }

    /// POST with custom headers, for foreign servers; the response must be a success.
    pub(crate) fn post(
        &mut self,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
    ) -> Result<Response, Error> {
        let lines: String =
            headers.iter().map(|(name, value)| format!("{}: {}\r\n", name.trim(), value.trim())).collect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n{lines}\r\n",
            self.origin.host,
            body.len()
        );
        self.send(&[head.as_bytes(), body].concat(), path)?.expect_success("POST", path)
    }

    fn send(&mut self, request: &[u8], path: &str) -> Result<Response, Error> {
        let reused = self.stream.is_some();
        let exchanged = match self.exchange(request) {
            // A kept connection may have been closed while idle: retries once on a new one.
            Err(_) if reused => self.exchange(request),
            result => result,
        };
        exchanged
            .map_err(|source| Error::Unreachable { url: self.origin.url(), source })?
            .map_err(|what| Error::Malformed { request: path.to_owned(), what })
    }

    /// The response, or why it is malformed.
    fn exchange(&mut self, request: &[u8]) -> io::Result<Result<Response, &'static str>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        stream.write_all(request)?;
        stream.flush()?;
        let (mut received, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let len = match stream.read(&mut chunk) {
                // RFC 8446 §6.1 requires close_notify, which is unnecessary for responses with a length.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
                read => read?,
            };
            received.extend_from_slice(&chunk[..len]);
            match Response::parse(&received, len == 0) {
                Ok(Some(response)) => {
                    self.stream = (!response.close && len > 0).then_some(stream);
                    return Ok(Ok(response));
                }
                Ok(None) if len == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(None) => {}
                Err(what) => return Ok(Err(what)),
            }
        }
    }

    fn connect(&self) -> io::Result<Box<dyn Wire>> {
        let stream = TcpStream::connect_timeout(&self.origin.address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(match &self.connector {
            Some(connector) => Box::new(StreamOwned::new(connector.session()?, stream)),
            None => Box::new(stream),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], status: u16, body: &[u8], close: bool) {
        let response = Response::parse(bytes, false).unwrap().unwrap();
        assert_eq!((response.status, response.body.as_slice(), response.close), (status, body, close));
        assert_eq!(response.len, bytes.len());
        for cut in 0..bytes.len() {
            assert_eq!(Response::parse(&bytes[..cut], false), Ok(None), "cut at {cut}");
        }
        let mut two = bytes.to_vec();
        two.extend_from_slice(bytes);
        assert_eq!(
            Response::parse(&two, false).unwrap().unwrap().len,
            bytes.len(),
            "a second answer is left alone"
        );
    }

    #[test]
    fn responses_end_according_to_their_framing() {
        check(
            b"HTTP/1.1 202 Accepted\r\nContent-Length: 12\r\n\r\n{\"id\":\"abc\"}",
            202,
            b"{\"id\":\"abc\"}",
            false,
        );
        check(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", 204, b"", true);
        check(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n4\r\nabcd\r\n2;x=1\r\nef\r\n0\r\nT: 1\r\n\r\n",
            200,
            b"abcdef",
            false,
        );
        check(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", false);
    }

    #[test]
    fn response_without_length_ends_with_the_connection() {
        let bytes = b"HTTP/1.1 500 Internal Server Error\r\n\r\noops";
        assert_eq!(Response::parse(bytes, false), Ok(None));
        assert_eq!(Response::parse(bytes, true).unwrap().unwrap().body, b"oops");
    }

    #[test]
    fn malformed_responses_are_reported() {
        for bytes in [
            &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        ] {
            assert!(Response::parse(bytes, false).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn rejection_is_named_by_its_code() {
        let response = |body: &str| {
            let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\n";
            let text = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
            Response::parse(text.as_bytes(), false).unwrap().unwrap()
        };
        assert_eq!(response(r#"{"code":"busy","status":429}"#).problem_code(), "HTTP 429 busy");
        assert_eq!(response("<html>").problem_code(), "HTTP 429");
        assert_eq!(response("").retry_after_s, Some(7));
    }

    #[test]
    fn origin_is_the_address_of_a_server() {
        let origin = Origin::parse("http://127.0.0.1:8080/").unwrap();
        assert_eq!(
            (origin.address, origin.url()),
            ("127.0.0.1:8080".parse().unwrap(), "http://127.0.0.1:8080".into())
        );
        assert_eq!(origin.trust, None);
        let origin = Origin::parse("https://127.0.0.1:8443").unwrap();
        assert_eq!(
            (origin.trust.as_ref(), origin.url()),
            (Some(&Trust::Public), "https://127.0.0.1:8443".into())
        );
        assert!(matches!(Origin::parse("ws://127.0.0.1:8080"), Err(Error::Usage(_))));
        assert!(Origin::parse("http://127.0.0.1:8080/path").is_err());
    }
}
