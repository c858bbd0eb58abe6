//! Of which trace a request is a part: read from its headers once, by [`crate::observe`], and found by handlers here.
//!
//! A header that breaks a rule is ignored, as the specification wants it: nobody's notification is refused for its trace. And
//! only who holds an API key is believed: devices, and whoever posts to a Web Push endpoint, could else make a node record
//! what they like ("Denial of service" among the specification's security considerations).

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use noroshi_types::TraceContext;

use crate::state::Api;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Where strangers ask: devices, and senders of Web Push.
const OUTSIDE: [&str; 5] = ["/v1/me", "/push/", "/v1/connect", "/v1/events", "/socket.io/"];

/// What is done for this request is a child of that; none where nobody traces it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traced(pub(crate) Option<TraceContext>);

impl Traced {
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        let values = headers.get_all(TRACEPARENT).iter().map(|value| value.as_bytes());
        let believed = !OUTSIDE.iter().any(|outside| path.starts_with(outside));
        Self(TraceContext::of_headers(values).filter(|_| believed))
    }
}

impl FromRequestParts<Api> for Traced {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}
