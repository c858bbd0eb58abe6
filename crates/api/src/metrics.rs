//! The metrics of the API. One method per event, so that log lines and counters come from the same place.

use std::sync::Arc;
use std::time::Duration;

use noroshi_telemetry::{Histogram, Registry, register};
use noroshi_types::Urgency;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::error::Code;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    /// A route, such as `GET /v1/me`, or `unmatched`.
    route: String,
    /// `2xx`
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BodyLabels {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UrgencyLabels {
    urgency: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FromLabels {
    /// `memory` or `store`
    from: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LogInLabels {
    /// `password`, `code`, `link`, `invitation` or `openid`
    method: &'static str,
    /// `ok`, or why it failed.
    result: &'static str,
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    requests: Family<RequestLabels, Counter>,
    duration_seconds: Histogram,
    in_flight: Gauge,
    shed: Counter,
    panics: Counter,
    bodies_refused: Family<BodyLabels, Counter>,
    web_push_accepted: Family<UrgencyLabels, Counter>,
    web_push_refused: Family<BodyLabels, Counter>,
    receipts_waiting: Gauge,
    first_calls: Family<FromLabels, Counter>,
    audit_failures: Counter,
    log_ins: Family<LogInLabels, Counter>,
}

/// Counts in a gauge until dropped, also if the client disconnects.
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let http = registry.sub_registry_with_prefix("http");
        let requests = register(http, "requests", "HTTP requests, by route and status class");
        let duration_seconds = register(http, "request_seconds", "Time from request head to response head");
        let in_flight = register(http, "requests_in_flight", "HTTP requests in progress");
        let help = "HTTP requests rejected with 503 because too many are in progress";
        let shed = register(http, "requests_shed", help);
        let panics = register(http, "panics", "HTTP requests that panicked");
        let bodies_refused = register(http, "bodies_refused", "Rejected request bodies, by error code");
        let help = "First calls (GET /v1/me), by source of the device: memory or store";
        let first_calls: Family<FromLabels, Counter> = register(http, "first_calls", help);
        let help = "Changes that could not be written to the audit log";
        let audit_failures = register(http, "audit_failures", help);
        let console = registry.sub_registry_with_prefix("console");
        let help = "Log-ins of people, by method and result";
        let log_ins: Family<LogInLabels, Counter> = register(console, "log_ins", help);
        let web_push = registry.sub_registry_with_prefix("web_push");
        let help = "Messages accepted at Web Push endpoints, by urgency";
        let web_push_accepted: Family<UrgencyLabels, Counter> = register(web_push, "accepted", help);
        let help = "Messages rejected at Web Push endpoints, by error code";
        let web_push_refused: Family<BodyLabels, Counter> = register(web_push, "refused", help);
        let help = "Requests that wait for a Web Push receipt";
        let receipts_waiting = register(web_push, "receipts_waiting", help);
        // All series exist from the first scrape, at 0.
        for urgency in Urgency::ALL {
            let labels = UrgencyLabels { urgency: urgency.as_str() };
            drop(web_push_accepted.get_or_create_owned(&labels));
        }
        for code in [Code::EndpointGone, Code::TooManyRequests] {
            drop(web_push_refused.get_or_create_owned(&BodyLabels { code: code.as_str() }));
        }
        for method in ["password", "code", "link", "invitation", "openid"] {
            drop(log_ins.get_or_create_owned(&LogInLabels { method, result: "ok" }));
        }
        for from in ["memory", "store"] {
            drop(first_calls.get_or_create_owned(&FromLabels { from }));
        }
        Self(Arc::new(Families {
            requests,
            duration_seconds,
            in_flight,
            shed,
            panics,
            bodies_refused,
            web_push_accepted,
            web_push_refused,
            receipts_waiting,
            first_calls,
            audit_failures,
            log_ins,
        }))
    }

    pub(crate) fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.in_flight)
    }

    pub(crate) fn shed(&self) {
        self.0.shed.inc();
    }

    pub(crate) fn audit_failed(&self) {
        self.0.audit_failures.inc();
    }

    /// `result`: `ok`, or why it failed.
    pub(crate) fn log_in(&self, method: &'static str, result: &'static str) {
        self.0.log_ins.get_or_create_owned(&LogInLabels { method, result }).inc();
    }

    pub(crate) fn panicked(&self) {
        self.0.panics.inc();
    }

    pub(crate) fn receipt_waits(&self) -> GaugeGuard {
        GaugeGuard::new(&self.0.receipts_waiting)
    }

    pub(crate) fn first_call(&self, from_memory: bool) {
        let from = if from_memory { "memory" } else { "store" };
        self.0.first_calls.get_or_create(&FromLabels { from }).inc();
    }

    pub(crate) fn answered(&self, route: &str, status: u16, took: Duration) {
        let status = match status {
            100..200 => "1xx",
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
        self.0.requests.get_or_create(&RequestLabels { route: route.to_owned(), status }).inc();
        self.0.duration_seconds.observe(took);
    }

    pub(crate) fn web_push_accepted(&self, urgency: Urgency) {
        self.0.web_push_accepted.get_or_create(&UrgencyLabels { urgency: urgency.as_str() }).inc();
    }

    pub(crate) fn web_push_refused(&self, code: Code) {
        self.0.web_push_refused.get_or_create(&BodyLabels { code: code.as_str() }).inc();
    }

    pub(crate) fn body_refused(&self, code: Code) {
        self.0.bodies_refused.get_or_create(&BodyLabels { code: code.as_str() }).inc();
    }
}
