//! HTTP to cells: connections that are kept and used again, over the one way out ([`noroshi_egress`]), with a limit
//! on every answer's time and size.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use noroshi_egress::{Egress, Stream, Tls};
use noroshi_types::TraceContext;
use rustls_pki_types::CertificateDer;

/// An answer to 10,000 lines is some MiB; a page of devices less.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Shorter than servers keep a connection, so that none is used while it is being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const IDLE_PER_CELL_MAX: usize = 64;
const HTTP_1_1: &[u8] = b"http/1.1";
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Of a cell's answer, these are handed on.
const HANDED_ON: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::RETRY_AFTER,
    header::WWW_AUTHENTICATE,
    header::CACHE_CONTROL,
    HeaderName::from_static("idempotent-replayed"),
];

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nothing was sent.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// It may have been heard.
    #[error("it did not answer: {0}")]
    Unanswered(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    pub(crate) bearer: HeaderValue,
    /// Of the request that is asked for.
    pub(crate) trace: Option<TraceContext>,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) body: Bytes,
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

#[derive(Clone)]
pub(crate) struct Client {
    http: legacy::Client<Connector, Full<Bytes>>,
}

impl Client {
    pub(crate) fn new(ca: Vec<CertificateDer<'static>>) -> Result<Self, noroshi_egress::ConfigError> {
        let connect_timeout = Duration::from_secs(5);
        let config = noroshi_egress::Config { ca, connect_timeout, ..noroshi_egress::Config::anywhere() };
        let egress = Egress::new(config)?;
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_PER_CELL_MAX)
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(Connector(Arc::new(egress)));
        Ok(Self { http })
    }

    /// Whatever the status. Cancel-safe, but what was sent may have been heard.
    pub(crate) async fn ask(&self, base: &str, ask: Ask) -> Result<Answer, Error> {
        let Ask { method, path, bearer, trace, content_type, body, timeout } = ask;
        let uri = format!("{}{path}", base.trim_end_matches('/'));
        let mut request = Request::builder().method(method).uri(uri).header(header::AUTHORIZATION, bearer);
        if let Some(trace) = trace {
            request = request.header(TRACEPARENT, trace.to_string());
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Full::new(body)).map_err(|error| Error::Unreachable(error.to_string()))?;
        match tokio::time::timeout(timeout, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Unanswered(format!("nothing within {} s", timeout.as_secs_f32()))),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, Error> {
        let response = self.http.request(request).await.map_err(|error| match error.is_connect() {
            true => Error::Unreachable(whole(&error)),
            false => Error::Unanswered(whole(&error)),
        })?;
        let (mut parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Error::Unanswered(error.to_string()))?.to_bytes();
        let mut headers = HeaderMap::with_capacity(HANDED_ON.len());
        for name in HANDED_ON {
            if let Some(value) = parts.headers.remove(&name) {
                headers.insert(name, value);
            }
        }
        Ok(Answer { status: parts.status, headers, body })
    }
}

/// hyper's text alone does not say why.
fn whole(error: &dyn std::error::Error) -> String {
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

/// A connection as the pool wants it.
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
