//! Around every request: its id, its place among those in work, its line in the log, its count, and
//! what is answered if it panics.
//!
//! The response to a client whose log-ins failed too often is [`Delayed`] by one second. During the delay the request
//! does not count as in work, and the pool may evict its connection. Logs and metrics leave the delay out.
//!
//! The log holds the route, never the path or query, and no credential: a path may hold a device's id,
//! and a query a token.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State as Shared};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use noroshi_protocol::device_path::DevicePath;
use noroshi_protocol::http::is_request_id;
use noroshi_types::{NotificationId, limits};
use tracing::{Instrument, Level};

use crate::access::Caller;
use crate::error::{Code, Delayed, Problem};
use crate::link::{Client, Link};
use crate::metrics::Counted;
use crate::state::{Api, Door};
use crate::traced::{self, Traced};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub(crate) async fn observe(Shared(api): Shared<Api>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let route = route(&request);
    let caller = Caller::default();
    request.extensions_mut().insert(caller.clone());
    let client = request.extensions().get::<Client>().map(|client| tracing::field::display(client.0));
    let link = request.extensions().get::<Link>().cloned();
    let mut traced = Traced::of(request.uri().path(), request.headers());
    let mut open = traced.begin(&api, &route, &request);
    request.extensions_mut().insert(traced);
    let trace = traced.0.map(|context| tracing::field::display(context.trace));
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), trace, client);
    let mut response = answer(&api, request, next).instrument(span.clone()).await;

    let took = started.elapsed();
    let status = response.status().as_u16();
    let app = caller.0.get().map(|app| app.0);
    let notification = response.extensions().get::<NotificationId>().copied();
    api.metrics.answered(&route, status, took);
    traced::end(open.as_mut(), status, app, notification);
    span.in_scope(|| log(&route, status, took.as_micros(), app, notification));
    response.headers_mut().insert(REQUEST_ID, id);
    if response.extensions().get::<Delayed>().is_some() {
        delay(link.as_ref()).await;
    }
    response
}

/// Ends early if the pool evicts the connection, which gives its place back at once.
async fn delay(link: Option<&Link>) {
    let delay = tokio::time::sleep(limits::TOO_MANY_FAILURES_DELAY);
    let Some(link) = link else { return delay.await };
    link.set_delayed(true);
    tokio::select! {
        () = delay => {}
        () = link.evicted() => {}
    }
    link.set_delayed(false);
}

/// A label of metrics: one of a closed set, whatever the client sends as its method.
fn route(request: &Request) -> String {
    const METHODS: [Method; 7] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    match request.extensions().get::<MatchedPath>() {
        Some(path) if METHODS.contains(request.method()) => {
            format!("{} {}", request.method(), path.as_str())
        }
        Some(_) | None => "unmatched".to_owned(),
    }
}

/// Probes and metrics are answered however busy the node is.
async fn answer(api: &Api, request: Request, next: Next) -> Response {
    if api.door == Door::Public && !api.config.public && DevicePath::at(request.uri().path()).is_none() {
        let detail = "this node serves no requests: it does not have the role api";
        return Problem::new(Code::Misdirected, detail).into_response();
    }
    for (what, text) in [("path", request.uri().path()), ("query", request.uri().query().unwrap_or_default())]
    {
        if let Err(wrong) = noroshi_types::percent::check(text) {
            // The text itself is not told: it may hold a credential.
            return Problem::new(
                Code::InvalidParameter,
                format!("the {what} is not percent-encoded: {wrong}"),
            )
            .into_response();
        }
    }
    let share = api.enter();
    if share.is_none() && api.door == Door::Public {
        api.metrics.shed.inc();
        return Problem::new(Code::Overloaded, "too many requests are in work; try again").into_response();
    }
    let _in_flight = Counted::by(&api.metrics.in_flight);
    // A handler owns what it was in the middle of, and shared state is behind locks that do not poison.
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answered.unwrap_or_else(|_| {
        api.metrics.panics.inc();
        Problem::internal("a handler panicked").into_response()
    })
}

fn log(route: &str, status: u16, took_us: u128, app: Option<u32>, notification: Option<NotificationId>) {
    let notification = notification.map(tracing::field::display);
    match status {
        500.. => tracing::event!(Level::WARN, route, status, took_us, app, notification, "request failed"),
        400.. => tracing::event!(Level::INFO, route, status, took_us, app, notification, "request refused"),
        _ => tracing::event!(Level::DEBUG, route, status, took_us, app, notification, "request answered"),
    }
}

/// The client's own id where it is short and plain, so that its log and ours can be read together.
pub(crate) fn request_id(headers: &HeaderMap) -> HeaderValue {
    let credentials: Vec<_> = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes).collect();
    let plain = |value: &&HeaderValue| is_request_id(value.as_bytes(), &credentials);
    let drawn = || HeaderValue::from_str(&uuid::Uuid::now_v7().as_simple().to_string());
    match headers.get(&REQUEST_ID).filter(plain) {
        Some(value) => value.clone(),
        None => drawn().unwrap_or_else(|_| HeaderValue::from_static("unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Pool, PoolLimits, PoolMetrics};

    #[tokio::test]
    async fn a_delay_ends_when_its_connection_makes_room() {
        let limits = PoolLimits { connections_max: 1, per_client_max: 0 };
        let pool = Pool::new("public", limits, PoolMetrics::unregistered());
        let link = Link::new(pool.enter(None).ok());
        link.begin_request();
        assert!(pool.enter(None).is_err(), "the request is in work");
        let mut delayed = std::pin::pin!(delay(Some(&link)));
        assert!(delayed.as_mut().now_or_never().is_none());
        assert!(pool.enter(None).is_ok());
        assert!(delayed.now_or_never().is_some());
        assert!(link.evicted().now_or_never().is_some(), "the connection's task sees it too");
    }
}
