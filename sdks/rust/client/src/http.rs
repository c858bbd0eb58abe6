//! Addresses, and the HTTP client of requests, streams and WebSockets.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderMap, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderValue, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::{BoxError, Code, Error};
use crate::protocol::{Request, Response};
use crate::retry_after;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A larger answer is not from the service.
const ANSWER_MAX: usize = 64 << 20;
/// RFC 3986 §2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[cfg(not(test))]
pub(crate) type Connector = HttpsConnector<HttpConnector>;
#[cfg(test)]
pub(crate) type Connector = crate::tests::probe::Probe<HttpsConnector<HttpConnector>>;

/// A segment of a path, or a value of a query.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The public address of the service.
#[derive(Debug, Clone)]
pub(crate) struct Base {
    is_tls: bool,
    authority: String,
    /// Without a slash at its end.
    path: String,
}

impl Base {
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let wrong = || format!("{url:?} is not an http or https address such as https://push.example.com");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        if authority.is_empty() || authority.contains('@') || uri.query().is_some() {
            return Err(wrong());
        }
        Ok(Self { is_tls, authority, path: uri.path().trim_end_matches('/').to_owned() })
    }

    pub(crate) fn http(&self, path: &str, query: &[(&str, &str)]) -> String {
        self.address(if self.is_tls { "https" } else { "http" }, path, query)
    }

    pub(crate) fn web_socket(&self, path: &str, query: &[(&str, &str)]) -> String {
        self.address(if self.is_tls { "wss" } else { "ws" }, path, query)
    }

    fn address(&self, scheme: &str, path: &str, query: &[(&str, &str)]) -> String {
        let mut address = format!("{scheme}://{}{}{path}", self.authority, self.path);
        for (n, (name, value)) in query.iter().enumerate() {
            let _ = write!(address, "{}{name}={}", if n == 0 { '?' } else { '&' }, escape(value));
        }
        address
    }
}

#[derive(Clone)]
pub(crate) struct Http {
    pool: Pool<Connector, Full<Bytes>>,
    pub(crate) connector: Connector,
}

impl Http {
    pub(crate) fn new(tls: Option<rustls::ClientConfig>) -> Result<Self, Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let builder = HttpsConnectorBuilder::new().with_tls_config(match tls {
            Some(config) => config,
            None => default_tls()?,
        });
        let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
        #[cfg(test)]
        let connector = crate::tests::probe::Probe::new(connector);
        let pool = Pool::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector.clone());
        Ok(Self { pool, connector })
    }

    pub(crate) async fn send(
        &self,
        request: http::Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, BoxError> {
        self.pool.request(request).await.map_err(Into::into)
    }

    /// Sends a request of the machine. Its query has `app` unless it is empty.
    pub(crate) async fn round_trip(
        &self,
        base: &Base,
        app: Option<&str>,
        request: &Request,
        unix: Duration,
    ) -> Result<Response, Error> {
        let failed = |code, cause: BoxError| {
            let text = format!("{} {}: {}", request.method, request.path, innermost(&*cause));
            Err(Error::new(code, text).caused_by(cause))
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, self.try_round_trip(base, app, request, unix)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(cause)) => failed(Code::Network, cause),
            Err(elapsed) => failed(Code::Timeout, elapsed.into()),
        }
    }

    async fn try_round_trip(
        &self,
        base: &Base,
        app: Option<&str>,
        request: &Request,
        unix: Duration,
    ) -> Result<Response, BoxError> {
        let mut query: Vec<(&str, &str)> = app.map(|app| ("app", app)).into_iter().collect();
        query.extend(request.query.iter().map(|(name, value)| (*name, value.as_str())));
        let mut head = http::Request::builder()
            .method(request.method.clone())
            .uri(base.http(&request.path, &query))
            .header(AUTHORIZATION, bearer(&request.token)?);
        if let Some(etag) = &request.if_none_match {
            head = head.header(IF_NONE_MATCH, etag);
        }
        let body = match &request.body {
            Some(json) => {
                head = head.header(CONTENT_TYPE, "application/json");
                Full::from(json.clone())
            }
            None => Full::default(),
        };
        let (head, body) = self.send(head.body(body)?).await?.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
        Ok(Response {
            status: head.status.as_u16(),
            etag: text(&head.headers, ETAG.as_str()),
            request_id: text(&head.headers, "x-request-id"),
            retry_after: retry_after_of(&head.headers, unix),
            body: body.into(),
        })
    }
}

/// The value must not appear in logs.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, http::header::InvalidHeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

pub(crate) fn retry_after_of(headers: &HeaderMap, unix: Duration) -> Option<Duration> {
    let now: SystemTime = UNIX_EPOCH + unix;
    retry_after::parse(headers.get(RETRY_AFTER)?.to_str().ok()?, now)
}

/// The outer errors only add context.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(any(feature = "webpki-roots", feature = "native-roots"))]
fn default_tls() -> Result<rustls::ClientConfig, Error> {
    use hyper_rustls::ConfigBuilderExt;
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.map_err(|error| Error::new(Code::Network, error.to_string()).caused_by(error.into()))?;
    #[cfg(feature = "native-roots")]
    let config = config
        .with_native_roots()
        .map_err(|error| Error::new(Code::Network, error.to_string()).caused_by(error.into()))?;
    #[cfg(not(feature = "native-roots"))]
    let config = config.with_webpki_roots();
    Ok(config.with_no_client_auth())
}

#[cfg(not(any(feature = "webpki-roots", feature = "native-roots")))]
fn default_tls() -> Result<rustls::ClientConfig, Error> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.map_err(|error| Error::new(Code::Network, error.to_string()).caused_by(error.into()))?;
    Ok(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let base = Base::parse("https://push.example.com:8443/noroshi/").expect("an address");
        let app = [("app", "a b&c")];
        assert_eq!(base.http("/v1/me", &app), "https://push.example.com:8443/noroshi/v1/me?app=a%20b%26c");
        assert_eq!(base.web_socket("/v1/connect", &[]), "wss://push.example.com:8443/noroshi/v1/connect");
        for wrong in [
            "push.example.com",
            "ftp://push.example.com",
            "https://",
            "https://u:p@push.example.com",
            "https://a/?b",
            "",
        ] {
            assert!(Base::parse(wrong).is_err(), "{wrong}");
        }
    }
}
