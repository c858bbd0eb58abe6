//! Middleware around every request: request id, limit of concurrent requests, log line, metrics, span, and the response after
//! a panic.
//!
//! The response to a client with too many failed log-ins is [`Delayed`] by one second. During the delay the request does not
//! count as in progress, and the pool may evict its connection. Logs and metrics exclude the delay.
//!
//! A line for each request that is refused or fails, except that overload and limits write at most one a second: they refuse
//! many. The log contains the route, never the path, the query or a credential: a path may contain a device id, and a query a
//! token.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State as Shared};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{HeaderValue, Method};
use noroshi_console::Console;
use noroshi_delivery::Delivery;
use noroshi_protocol::device_path::DevicePath;
use noroshi_telemetry::LogThrottle;
use noroshi_types::{NotificationId, limits};
use tracing::{Instrument, Level};

use crate::audit::{Done, Trail};
use crate::connection::{Client, Handle};
use crate::error::{Code, Delayed, Problem};
use crate::load::Quantity;
use crate::metrics::Metrics;
use crate::request::access::Listener;
use crate::request::caller::Caller;
use crate::request::session::{CONSOLE_API, is_change, is_openid_callback};
use crate::request::trace::{self, Traced};
use crate::request_id;

/// What the middleware of a listener needs.
pub(crate) struct Observer {
    pub(crate) listener: Listener,
    /// False on a node without the role `api`: of the public paths, it serves only those of the gateway.
    pub(crate) serves_api: bool,
    /// Refuses requests above the limit of concurrent ones. False for the admin address.
    pub(crate) sheds: bool,
    /// Concurrent requests.
    pub(crate) requests: Quantity,
    pub(crate) metrics: Metrics,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) console: Arc<Console>,
    /// Refusals because of load or limits.
    pub(crate) log_throttle: LogThrottle,
}

pub(crate) async fn observe(
    Shared(observer): Shared<Arc<Observer>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = request_id::of(request.headers());
    let route = route(&request);
    let caller = Caller::default();
    request.extensions_mut().insert(caller.clone());
    let audited = observer.is_audited(&request).then(|| {
        let trail = Trail::default();
        request.extensions_mut().insert(trail.clone());
        (trail, observer.done(&route, &id, &request))
    });
    let client = request.extensions().get::<Client>().map(|client| tracing::field::display(client.0));
    let handle = request.extensions().get::<Handle>().cloned();
    let mut traced = Traced::of(request.uri().path(), request.headers());
    let mut open = match observer.listener {
        Listener::Public => traced.begin(observer.delivery.context.spans(), &route, &request),
        Listener::Admin | Listener::Console => None,
    };
    request.extensions_mut().insert(traced);
    let trace = traced.0.map(|context| tracing::field::display(context.trace));
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), trace, client);
    let mut response = answer(&observer, request, next).instrument(span.clone()).await;

    if let Some((trail, done)) =
        audited.filter(|(trail, _)| response.status().is_success() || trail.is_kept())
    {
        let now = observer.delivery.clock().now();
        let observed = (&observer.delivery.context.outcomes, &observer.metrics);
        trail.record(&observer.console, observed, done, now).instrument(span.clone()).await;
    }
    let took = started.elapsed();
    let status = response.status().as_u16();
    let app = caller.0.get().map(|app| app.0);
    let notification = response.extensions().get::<NotificationId>().copied();
    observer.metrics.answered(&route, status, took);
    trace::end(open.as_mut(), status, app, notification);
    span.in_scope(|| observer.log(&route, status, took.as_micros(), app, notification));
    response.headers_mut().insert(request_id::HEADER, id);
    if response.extensions().get::<Delayed>().is_some() {
        delay(handle.as_ref()).await;
    }
    response
}

/// Ends early if the pool evicts the connection, so that its place is free at once.
async fn delay(handle: Option<&Handle>) {
    let delay = tokio::time::sleep(limits::TOO_MANY_FAILURES_DELAY);
    let Some(handle) = handle else { return delay.await };
    handle.set_delayed(true);
    tokio::select! {
        () = delay => {}
        () = handle.evicted() => {}
    }
    handle.set_delayed(false);
}

/// A metric label. The set is closed: unknown methods count as `unmatched`.
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

/// The admin listener answers at any load, so that health checks and metrics always work.
async fn answer(observer: &Observer, request: Request, next: Next) -> Response {
    let is_public = observer.listener == Listener::Public;
    if is_public && !observer.serves_api && DevicePath::at(request.uri().path()).is_none() {
        let detail = "this node does not have the role api";
        return Problem::new(Code::Misdirected, detail).into_response();
    }
    for (what, text) in [("path", request.uri().path()), ("query", request.uri().query().unwrap_or_default())]
    {
        if let Err(wrong) = noroshi_types::percent::check(text) {
            // Without the text itself, which may contain a credential.
            return Problem::new(
                Code::InvalidParameter,
                format!("the {what} is not percent-encoded: {wrong}"),
            )
            .into_response();
        }
    }
    let mut share = observer.requests.share();
    if !share.grow(1) && observer.sheds {
        observer.metrics.shed();
        return Problem::new(Code::Overloaded, "too many requests are in progress; try again")
            .into_response();
    }
    let _in_flight = observer.metrics.in_flight();
    // A handler owns its unfinished work, and locks of shared state do not poison.
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answered.unwrap_or_else(|_| {
        observer.metrics.panicked();
        Problem::internal("a handler panicked").into_response()
    })
}

impl Observer {
    /// Whether the request may leave an entry in the audit log. Those of providers and devices do not.
    fn is_audited(&self, request: &Request) -> bool {
        let is_managed = self.listener != Listener::Public || request.uri().path().starts_with("/v1/apps/");
        is_managed && (is_change(request.method()) || is_openid_callback(request.uri().path()))
    }

    /// The entry of a request that changes something.
    fn done(&self, route: &str, id: &HeaderValue, request: &Request) -> Done {
        let client = request.extensions().get::<Client>();
        // The console has the routes of the other listeners below its own path.
        let target = request.uri().path();
        Done {
            action: route.replacen(CONSOLE_API, "", 1),
            target: target.strip_prefix(CONSOLE_API).unwrap_or(target).to_owned(),
            address: client.map(|client| client.0.to_string()).unwrap_or_default(),
            request: id.to_str().unwrap_or_default().to_owned(),
        }
    }

    fn log(
        &self,
        route: &str,
        status: u16,
        took_us: u128,
        app: Option<u32>,
        notification: Option<NotificationId>,
    ) {
        let notification = notification.map(tracing::field::display);
        let mut suppressed = None;
        if matches!(status, 429 | 503) {
            match self.log_throttle.take(self.delivery.clock().now()) {
                Some(count) => suppressed = (count > 0).then_some(count),
                None => return,
            }
        }
        macro_rules! line {
            ($level:ident, $text:literal) => {
                tracing::event!(Level::$level, route, status, took_us, app, notification, suppressed, $text)
            };
        }
        match status {
            500.. => line!(WARN, "request failed"),
            // An answer like others: searches ask whether something exists.
            404 => line!(DEBUG, "not found"),
            400.. => line!(INFO, "request refused"),
            _ => line!(DEBUG, "request answered"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{Pool, PoolLimits, PoolMetrics};

    #[tokio::test]
    async fn a_delay_ends_when_its_connection_is_evicted() {
        let limits = PoolLimits { connections_max: 1, per_client_max: 0 };
        let pool = Pool::new("public", limits, PoolMetrics::unregistered());
        let handle = Handle::new(pool.enter(None).ok());
        handle.begin_request();
        assert!(pool.enter(None).is_err(), "the request is in progress");
        let mut delayed = std::pin::pin!(delay(Some(&handle)));
        assert!(delayed.as_mut().now_or_never().is_none());
        assert!(pool.enter(None).is_ok());
        assert!(delayed.now_or_never().is_some());
        assert!(handle.evicted().now_or_never().is_some(), "the connection's task sees it too");
    }
}
