//! One small HTTP/1.1 exchange on its own connection: JWK sets, OAuth2 tokens, webhooks. No connection is reused, no
//! redirect is followed, nothing is decompressed, and size and time are limited.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::target::Target;
use crate::{Egress, Error, Tls};

/// The limit of a response head, within a factor of two; hyper's default is 400 KiB.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HTTP_1_1: &[u8] = b"http/1.1";
const AGENT: &str = concat!("noroshi/", env!("CARGO_PKG_VERSION"));

/// The limits of one exchange.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub body_bytes_max: usize,
    /// The timeout of everything: connecting, the request, the whole response.
    pub timeout: Duration,
}

/// The body of a POST and its type.
#[derive(Debug, Clone)]
pub struct Post<'a> {
    pub content_type: &'static str,
    /// Further headers; names in lower case.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: Bytes,
}

/// A response, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// From `Retry-After`.
    pub retry_after: Option<Duration>,
    pub body: Bytes,
}

impl Egress {
    /// Fetches the body of a URL; any status but 2xx is [`Error::Status`]. Cancel-safe.
    pub async fn get(&self, url: &str, limits: Limits) -> Result<Bytes, Error> {
        let response = self.get_with(url, &[], limits).await?;
        match response.status {
            200..=299 => Ok(response.body),
            status => Err(Error::Status(status)),
        }
    }

    /// As [`Self::get`] with further headers, whose names are in lower case; every status is a response.
    pub async fn get_with(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        limits: Limits,
    ) -> Result<Response, Error> {
        self.exchange(Method::GET, url, headers, None, limits).await
    }

    /// Posts `application/x-www-form-urlencoded` text. An OAuth2 server reports errors in the body (RFC 6749 §5.2), so
    /// every status is a response. Cancel-safe, but the server may have processed the request.
    pub async fn post_form(&self, url: &str, form: Bytes, limits: Limits) -> Result<Response, Error> {
        let content_type = "application/x-www-form-urlencoded";
        self.post(url, Post { content_type, headers: &[], body: form }, limits).await
    }

    /// Posts a body; every status is a response. Cancel-safe, but the server may have processed the request.
    pub async fn post(&self, url: &str, post: Post<'_>, limits: Limits) -> Result<Response, Error> {
        let Post { content_type, headers, body } = post;
        self.exchange(Method::POST, url, headers, Some((content_type, body)), limits).await
    }

    async fn exchange(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Option<(&'static str, Bytes)>,
        limits: Limits,
    ) -> Result<Response, Error> {
        let (target, path) = Target::of_url(url)?;
        let request = request(method, &target, &path, headers, body)?;
        match tokio::time::timeout(limits.timeout, self.ask(&target, request, limits.body_bytes_max)).await {
            Ok(result) => result,
            Err(_) => Err(Error::Timeout { host: target.host.to_string(), limit: limits.timeout }),
        }
    }

    async fn ask(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<Response, Error> {
        let broken = |reason: String| Error::Exchange { host: target.host.to_string(), reason };
        let connected = self.connect_to(target, Tls::alpn(&[HTTP_1_1])).await?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(connected.stream))
            .await
            .map_err(|error| broken(error.to_string()))?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(|error| broken(describe(&error)))?;
            let status = response.status().as_u16();
            let after = response.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.as_bytes()));
            let body = Limited::new(response.into_body(), bytes_max).collect().await.map_err(|error| {
                match error.is::<LengthLimitError>() {
                    true => Error::TooLarge { bytes_max },
                    false => broken(error.to_string()),
                }
            })?;
            Ok(Response { status, retry_after: after, body: body.to_bytes() })
        };
        // Drives the connection; the response reports its errors.
        let driven = async {
            let _ = connection.await;
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            result = answer => result,
            never = driven => match never {},
        }
    }
}

fn request(
    method: Method,
    target: &Target,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<(&'static str, Bytes)>,
) -> Result<Request<Full<Bytes>>, Error> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, target.authority())
        .header(USER_AGENT, AGENT)
        .header(ACCEPT, "application/json");
    if let Some((content_type, _)) = &body {
        request = request.header(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
        .body(Full::new(body.map(|(_, body)| body).unwrap_or_default()))
        .map_err(|_| Error::Invalid("its path or a header is not allowed in a request"))
}

/// hyper's own text omits the cause.
fn describe(error: &hyper::Error) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// `Retry-After`: seconds, or a date (RFC 9110 §10.2.3).
pub fn retry_after(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?;
            Some(at.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after(b"120"), Some(Duration::from_secs(120)));
        assert_eq!(retry_after(b"Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3_600));
        let after = retry_after(soon.as_bytes()).expect("a date");
        assert!((3_000..=3_600).contains(&after.as_secs()), "{after:?}");
        for bad in [&b"-1"[..], b"soon", b"\xff", b""] {
            assert_eq!(retry_after(bad), None);
        }
    }
}
