//! The HTTP client for cells: pooled connections through [`noroshi_egress`], with a timeout and a size limit for every
//! response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use noroshi_api::Problem;
use noroshi_egress::{Egress, Stream, Tls};
use noroshi_types::TraceContext;
use rustls_pki_types::CertificateDer;

/// A response to 10,000 lines has some MiB, a page of devices less.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Shorter than the servers' own timeout, so that no closing connection is used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const IDLE_PER_CELL_MAX: usize = 64;
const HTTP_1_1: &[u8] = b"http/1.1";
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The headers of a cell's response that the front forwards.
const FORWARDED_HEADERS: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::RETRY_AFTER,
    header::WWW_AUTHENTICATE,
    header::CACHE_CONTROL,
    HeaderName::from_static("idempotent-replayed"),
];

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nothing was sent.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The cell may have processed the request.
    #[error("no answer: {0}")]
    Unanswered(String),
}

#[derive(Debug, Clone)]
pub(crate) struct CellRequest {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    /// Empty until the sender of the request adds its credential.
    pub(crate) bearer: HeaderValue,
    /// The trace of the client's request.
    pub(crate) trace: Option<TraceContext>,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) body: Bytes,
    /// None: that of the configuration.
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Clone)]
pub(crate) struct CellResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl CellRequest {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            bearer: HeaderValue::from_static(""),
            trace: None,
            content_type: None,
            body: Bytes::new(),
            timeout: None,
        }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    /// With a body of JSON.
    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let content_type = Some(HeaderValue::from_static("application/json"));
        Self { method: Method::POST, content_type, body: body.into(), ..Self::get(path) }
    }

    /// With a body of newline-delimited JSON.
    pub(crate) fn post_lines(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let content_type = Some(HeaderValue::from_static("application/x-ndjson"));
        Self { content_type, ..Self::post(path, body) }
    }

    pub(crate) fn with(self, bearer: HeaderValue) -> Self {
        Self { bearer, ..self }
    }
}

/// The value of `Authorization`.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, Problem> {
    HeaderValue::from_str(&format!("Bearer {token}")).map_err(Problem::internal)
}

impl CellResponse {
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Problem::internal(format!("invalid answer of a cell: {error}")))
    }
}

impl IntoResponse for CellResponse {
    fn into_response(self) -> Response {
        let CellResponse { status, mut headers, body } = self;
        if body.is_empty() {
            headers.remove(header::CONTENT_TYPE);
        }
        (status, headers, body).into_response()
    }
}

/// Escapes a segment of a path.
pub(crate) fn escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[derive(Clone)]
pub(crate) struct Client {
    http: legacy::Client<Connector, Full<Bytes>>,
    timeout: Duration,
}

impl Client {
    /// `timeout`: of a request without its own.
    pub(crate) fn new(
        ca: Vec<CertificateDer<'static>>,
        timeout: Duration,
    ) -> Result<Self, noroshi_egress::ConfigError> {
        let connect_timeout = Duration::from_secs(5);
        let config = noroshi_egress::Config { ca, connect_timeout, ..noroshi_egress::Config::anywhere() };
        let egress = Egress::new(config)?;
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_PER_CELL_MAX)
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(Connector(Arc::new(egress)));
        Ok(Self { http, timeout })
    }

    /// Returns the response whatever its status. Cancel-safe, but the cell may have processed the request.
    pub(crate) async fn send(&self, base: &str, request: CellRequest) -> Result<CellResponse, Error> {
        let CellRequest { method, path, bearer, trace, content_type, body, timeout } = request;
        let uri = format!("{}{path}", base.trim_end_matches('/'));
        let mut request = Request::builder().method(method).uri(uri).header(header::AUTHORIZATION, bearer);
        if let Some(trace) = trace {
            request = request.header(TRACEPARENT, trace.to_string());
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Full::new(body)).map_err(|error| Error::Unreachable(error.to_string()))?;
        let timeout = timeout.unwrap_or(self.timeout);
        match tokio::time::timeout(timeout, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Unanswered(format!("timeout after {} s", timeout.as_secs_f32()))),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<CellResponse, Error> {
        let response = self.http.request(request).await.map_err(|error| match error.is_connect() {
            true => Error::Unreachable(error_chain(&error)),
            false => Error::Unanswered(error_chain(&error)),
        })?;
        let (mut parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Error::Unanswered(error.to_string()))?.to_bytes();
        let mut headers = HeaderMap::with_capacity(FORWARDED_HEADERS.len());
        for name in FORWARDED_HEADERS {
            if let Some(value) = parts.headers.remove(&name) {
                headers.insert(name, value);
            }
        }
        Ok(CellResponse { status: parts.status, headers, body })
    }
}

/// hyper's own text omits the cause.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(error) = inner {
        text = format!("{text}: {error}");
        inner = error.source();
    }
    text
}

/// Opens connections for the pool.
#[derive(Clone)]
struct Connector(Arc<Egress>);

impl tower::Service<Uri> for Connector {
    type Response = Opened;
    type Error = noroshi_egress::Error;
    type Future = BoxFuture<'static, Result<Opened, noroshi_egress::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let egress = self.0.clone();
        Box::pin(async move {
            let https = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
            let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
            let host = uri.host().unwrap_or_default();
            let connected = egress.connect(https, host, port, Tls::alpn(&[HTTP_1_1])).await?;
            Ok(Opened(TokioIo::new(connected.stream)))
        })
    }
}

/// A connection in the form that the pool expects.
struct Opened(TokioIo<Stream>);

impl Connection for Opened {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Opened {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Opened {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
