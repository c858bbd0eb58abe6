//! Of which trace a request is a part: read from its headers once, by [`crate::observe`], and found by handlers here.
//!
//! A header that breaks a rule is ignored, as the specification wants it: nobody's notification is refused for its trace. And
//! only who holds an API key is believed: devices, and whoever posts to a Web Push endpoint, could else make a node record
//! what they like ("Denial of service" among the specification's security considerations).

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Request};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use noroshi_auth::is_of_a_device;
use noroshi_protocol::device_path::DevicePath;
use noroshi_telemetry::span::{Kind, Open};
use noroshi_types::trace::TraceState;
use noroshi_types::{NotificationId, TraceContext};

use crate::access::bearer;
use crate::state::{Api, Door};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Where strangers ask: devices, and senders of Web Push.
const OUTSIDE: [&str; 5] = ["/v1/me", "/push/", "/v1/connect", "/v1/events", "/socket.io/"];

/// What is done for this request is a child of that; none where nobody traces it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traced(pub Option<TraceContext>);

impl Traced {
    /// The span of a request on the public address, where it is to be recorded; what is done for it is its child then.
    pub(crate) fn begin(&mut self, api: &Api, route: &str, request: &Request) -> Option<Open> {
        let spans = api.delivery.spans();
        if !spans.is_on() || api.door != Door::Public || DevicePath::at(request.uri().path()).is_some() {
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
        let is_outside = OUTSIDE.iter().any(|outside| path.starts_with(outside));
        // Devices register where providers register them.
        let believed = || !is_outside && !bearer(headers).is_ok_and(is_of_a_device);
        Self(TraceContext::of_headers(values).filter(|_| believed()))
    }
}

/// What became of the request; the span ends when it is dropped.
pub(crate) fn end(
    span: Option<&mut Open>,
    status: u16,
    app: Option<u32>,
    notification: Option<NotificationId>,
) {
    let Some(span) = span else { return };
    // Who named the trace showed no credential.
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
    // What a client did wrong is no failure of the server's (semantic conventions for HTTP servers).
    if status >= 500 {
        span.fail(status.to_string());
    }
}

impl FromRequestParts<Api> for Traced {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}
