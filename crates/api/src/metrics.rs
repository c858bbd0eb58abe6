//! What the API counts. One call per event: the log line and the counters come from the same place.

use std::time::Duration;

use noroshi_telemetry::{Histogram, Registry};
use noroshi_types::Urgency;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::error::Code;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    /// `GET /v1/me`: one of the routes, or `unmatched`.
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

#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    duration_seconds: Histogram,
    pub(crate) in_flight: Gauge,
    pub(crate) shed: Counter,
    pub(crate) panics: Counter,
    bodies_refused: Family<BodyLabels, Counter>,
    web_push_accepted: Family<UrgencyLabels, Counter>,
    web_push_refused: Family<BodyLabels, Counter>,
    pub(crate) receipts_waiting: Gauge,
    first_calls: Family<FromLabels, Counter>,
}

/// One of those that a gauge counts, until it is dropped: also where a client leaves amid.
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn by(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration_seconds: Histogram::default(),
            in_flight: Gauge::default(),
            shed: Counter::default(),
            panics: Counter::default(),
            bodies_refused: Family::default(),
            web_push_accepted: Family::default(),
            web_push_refused: Family::default(),
            receipts_waiting: Gauge::default(),
            first_calls: Family::default(),
        };
        let http = registry.sub_registry_with_prefix("http");
        http.register("requests", "HTTP requests answered", metrics.requests.clone());
        http.register("request_seconds", "From head to answer", metrics.duration_seconds.clone());
        http.register("requests_in_flight", "HTTP requests in work", metrics.in_flight.clone());
        http.register("requests_shed", "HTTP requests refused for lack of room", metrics.shed.clone());
        http.register("panics", "Requests that ended in a panic", metrics.panics.clone());
        http.register(
            "bodies_refused",
            "Request bodies not read to their end",
            metrics.bodies_refused.clone(),
        );
        http.register(
            "first_calls",
            "First calls, by where the device was read",
            metrics.first_calls.clone(),
        );
        let web_push = registry.sub_registry_with_prefix("web_push");
        web_push.register(
            "accepted",
            "Messages taken at Web Push endpoints",
            metrics.web_push_accepted.clone(),
        );
        web_push.register(
            "refused",
            "Messages refused at Web Push endpoints",
            metrics.web_push_refused.clone(),
        );
        web_push.register(
            "receipts_waiting",
            "Senders that wait for a receipt",
            metrics.receipts_waiting.clone(),
        );
        // From the first scrape on: what was never refused is 0.
        for urgency in [Urgency::VeryLow, Urgency::Low, Urgency::Normal, Urgency::High] {
            let labels = UrgencyLabels { urgency: urgency.as_str() };
            drop(metrics.web_push_accepted.get_or_create_owned(&labels));
        }
        for code in [Code::EndpointGone, Code::TooManyRequests] {
            drop(metrics.web_push_refused.get_or_create_owned(&BodyLabels { code: code.as_str() }));
        }
        for from in ["memory", "store"] {
            drop(metrics.first_calls.get_or_create_owned(&FromLabels { from }));
        }
        metrics
    }

    pub(crate) fn first_call(&self, from_memory: bool) {
        let from = if from_memory { "memory" } else { "store" };
        self.first_calls.get_or_create(&FromLabels { from }).inc();
    }

    pub(crate) fn answered(&self, route: &str, status: u16, took: Duration) {
        let status = match status {
            100..200 => "1xx",
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
        self.requests.get_or_create(&RequestLabels { route: route.to_owned(), status }).inc();
        self.duration_seconds.observe(took);
    }

    pub(crate) fn web_push_accepted(&self, urgency: Urgency) {
        self.web_push_accepted.get_or_create(&UrgencyLabels { urgency: urgency.as_str() }).inc();
    }

    pub(crate) fn web_push_refused(&self, code: Code) {
        self.web_push_refused.get_or_create(&BodyLabels { code: code.as_str() }).inc();
    }

    pub(crate) fn body_refused(&self, code: Code) {
        self.bodies_refused.get_or_create(&BodyLabels { code: code.as_str() }).inc();
    }
}
