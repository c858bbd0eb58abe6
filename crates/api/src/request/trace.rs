//! The trace of a request (W3C Trace Context): [`crate::observe`] reads it from the headers once; handlers extract it.
//!
//! Ignores an invalid header, as the specification requires. Trusts only requests with an API key: otherwise devices and
//! senders of Web Push could make a node record anything ("Denial of service" in the specification's security
//! considerations).

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Request};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use noroshi_auth::is_device_credential;
use noroshi_protocol::device_path::DevicePath;
use noroshi_telemetry::span::{Kind, Open, Spans};
use noroshi_types::trace::TraceState;
use noroshi_types::{NotificationId, TraceContext};

use super::access::bearer;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Paths of untrusted clients: devices, and senders of Web Push.
const UNTRUSTED: [&str; 5] = ["/v1/me", "/push/", "/v1/connect", "/v1/events", "/socket.io/"];

/// The parent of the spans of this request; none if it is not traced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traced(pub Option<TraceContext>);

impl Traced {
    /// Starts the span of an API request if it is sampled; later spans of the request become its children.
    pub(crate) fn begin(&mut self, spans: &Spans, route: &str, request: &Request) -> Option<Open> {
        if !spans.is_on() || DevicePath::at(request.uri().path()).is_some() {
            return None;
        }
        let mut span = spans.begin(route.to_owned(), Kind::Server, self.0.as_ref())?;
        if self.0.is_some() {
            let values = request.headers().get_all(TRACESTATE).iter().map(|value| value.as_bytes());
            span.parent_was_remote(TraceState::of_headers(values));
        }
        if let Some((method, path)) = route.split_once(' ') {
            span.set("http.request.method", method.to_owned());
            span.set("http.route", path.to_owned());
        }
        self.0 = span.context();
        Some(span)
    }

    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        let values = headers.get_all(TRACEPARENT).iter().map(|value| value.as_bytes());
        let is_untrusted = UNTRUSTED.iter().any(|prefix| path.starts_with(prefix));
        // Devices and providers register devices at the same path.
        let is_trusted = || !is_untrusted && !bearer(headers).is_ok_and(is_device_credential);
        Self(TraceContext::of_headers(values).filter(|_| is_trusted()))
    }
}

/// Records the result of the request. The span ends when it is dropped.
pub(crate) fn end(
    span: Option<&mut Open>,
    status: u16,
    app: Option<u32>,
    notification: Option<NotificationId>,
) {
    let Some(span) = span else { return };
    // The client named the trace but brought no credential.
    if app.is_none() && span.is_of_another() {
        return span.forget();
    }
    span.set("http.response.status_code", u64::from(status));
    if let Some(app) = app {
        span.set("noroshi.app", u64::from(app));
    }
    if let Some(id) = notification {
        span.set("noroshi.notification", id.to_string());
    }
    // A client error is not a failure of the server (semantic conventions for HTTP servers).
    if status >= 500 {
        span.fail(status.to_string());
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Traced {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}
