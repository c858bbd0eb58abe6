//! Cross-origin requests (WHATWG Fetch §3.2): web pages of any origin may use the paths of devices. This is safe because
//! these paths take no credential from a cookie; only the console does, below its own path. Paths of providers and
//! operators are not open to web pages, since an API key does not belong in one.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

/// Adds CORS headers to responses, and answers preflight requests.
pub(crate) async fn allow(request: Request, next: Next) -> Response {
    if !is_for_devices(request.uri().path()) {
        return next.run(request).await;
    }
    let preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match preflight {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    let headers = response.headers_mut();
    set(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
    if preflight {
        set(headers, header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE");
        set(
            headers,
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Authorization, Content-Encoding, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, Noroshi-App, \
             traceparent, tracestate, X-Request-Id",
        );
        // Two hours: the maximum of Chromium.
        set(headers, header::ACCESS_CONTROL_MAX_AGE, "7200");
    } else {
        set(
            headers,
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            "Date, ETag, Retry-After, WWW-Authenticate, X-Request-Id",
        );
    }
    response
}

fn is_for_devices(path: &str) -> bool {
    matches!(path, "/v1/me" | "/v1/devices" | "/v1/connect" | "/v1/events" | "/socket.io/" | "/openapi.json")
        || path.starts_with("/v1/me/")
}

fn set(headers: &mut HeaderMap, name: header::HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}
