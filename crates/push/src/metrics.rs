//! The metrics of the pools, by push service and environment. Apps are not a label, because their number is unbounded.
//! Reasons come from closed tables (of the services' folders and the pools), so they are a bounded label.
//!
//! The counters of a label pair are looked up once per credential (`Metrics::of`), those by reason at each answer other
//! than `Accepted`.

use noroshi_telemetry::{Histogram, Registry};
use noroshi_types::{Lane, PushEnvironment, PushService};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::Answer;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabels {
    service: &'static str,
    environment: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    service: &'static str,
    environment: &'static str,
    lane: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    service: &'static str,
    environment: &'static str,
    answer: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    service: &'static str,
    environment: &'static str,
    reason: &'static str,
}

/// All metrics, registered.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    sent: Family<ServiceLabels, Counter>,
    resent: Family<ReasonLabels, Counter>,
    answers: Family<AnswerLabels, Counter>,
    answer_seconds: Family<ServiceLabels, Histogram>,
    in_flight: Family<ServiceLabels, Gauge>,
    queued: Family<LaneLabels, Gauge>,
    connections: Family<ServiceLabels, Gauge>,
    connects: Family<ServiceLabels, Counter>,
    connect_failures: Family<ReasonLabels, Counter>,
    connections_closed: Family<ReasonLabels, Counter>,
    quota_waits: Family<ServiceLabels, Counter>,
    device_quota_waits: Family<ServiceLabels, Counter>,
    overloads: Family<ReasonLabels, Counter>,
    breaker_open: Family<ServiceLabels, Gauge>,
    renewals: Family<ReasonLabels, Counter>,
}

/// Registers one series of each metric, for the documentation.
pub fn describe(registry: &mut Registry) {
    let counters = Metrics::new(registry).of(PushService::Apns, PushEnvironment::Production);
    let labels = counters.with_reason("");
    let all = &counters.all;
    for family in [&all.resent, &all.connect_failures, &all.connections_closed, &all.overloads, &all.renewals]
    {
        family.get_or_create(&labels).inc_by(0);
    }
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let m = Self::default();
        registry.register("push_sent", "Pushes written to a push service", m.sent.clone());
        registry.register(
            "push_resent",
            "Pushes resent at once because the push service had not processed them",
            m.resent.clone(),
        );
        registry.register("push_answers", "Answers to pushes, by outcome and reason", m.answers.clone());
        registry.register(
            "push_answer_seconds",
            "Time from a push leaving its queue to its answer",
            m.answer_seconds.clone(),
        );
        registry.register("push_in_flight", "Pushes without an answer yet", m.in_flight.clone());
        registry.register("push_queued", "Pushes waiting for a connection", m.queued.clone());
        registry.register("push_connections", "Connections to push services", m.connections.clone());
        registry.register("push_connects", "Connections opened", m.connects.clone());
        registry.register(
            "push_connect_failures",
            "Connections that failed to open",
            m.connect_failures.clone(),
        );
        registry.register(
            "push_connections_closed",
            "Connections to push services that closed, by reason",
            m.connections_closed.clone(),
        );
        registry.register(
            "push_quota_waits",
            "Times that a queue waited for its quota",
            m.quota_waits.clone(),
        );
        registry.register(
            "push_device_quota_waits",
            "Pushes delayed because their device reached its quota",
            m.device_quota_waits.clone(),
        );
        registry.register("push_overloads", "Answers that request a slower rate", m.overloads.clone());
        registry.register(
            "push_breaker_open",
            "Credentials that a push service rejects: an operator must act",
            m.breaker_open.clone(),
        );
        registry.register("push_token_renewals", "Authorizations fetched or renewed", m.renewals.clone());
        m
    }

    /// The counters of one credential.
    pub(crate) fn of(&self, service: PushService, environment: PushEnvironment) -> Counters {
        let (service, environment) = (service.as_str(), environment.as_str());
        let labels = ServiceLabels { service, environment };
        let accepted = AnswerLabels { service, environment, answer: "accepted", reason: "" };
        let queued = |lane: Lane| {
            self.queued.get_or_create_owned(&LaneLabels { service, environment, lane: lane.as_str() })
        };
        Counters {
            sent: self.sent.get_or_create_owned(&labels),
            accepted: self.answers.get_or_create_owned(&accepted),
            answer_seconds: self.answer_seconds.get_or_create_owned(&labels),
            in_flight: self.in_flight.get_or_create_owned(&labels),
            queued: Lane::ALL.map(queued),
            connections: self.connections.get_or_create_owned(&labels),
            connects: self.connects.get_or_create_owned(&labels),
            quota_waits: self.quota_waits.get_or_create_owned(&labels),
            device_quota_waits: self.device_quota_waits.get_or_create_owned(&labels),
            breaker_open: self.breaker_open.get_or_create_owned(&labels),
            all: self.clone(),
            service,
            environment,
        }
    }
}

/// The counters of one push service and environment.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    pub(crate) sent: Counter,
    accepted: Counter,
    pub(crate) answer_seconds: Histogram,
    pub(crate) in_flight: Gauge,
    queued: [Gauge; Lane::ALL.len()],
    pub(crate) connections: Gauge,
    pub(crate) connects: Counter,
    pub(crate) quota_waits: Counter,
    pub(crate) device_quota_waits: Counter,
    pub(crate) breaker_open: Gauge,
    all: Metrics,
    service: &'static str,
    environment: &'static str,
}

impl Counters {
    pub(crate) fn queued(&self, lane: Lane) -> &Gauge {
        // Codes start at 1 without gaps, in the order of ALL.
        &self.queued[lane as usize - 1]
    }

    pub(crate) fn answer(&self, answer: &Answer) {
        let (answer, reason) = match answer {
            Answer::Accepted => {
                self.accepted.inc();
                return;
            }
            Answer::Gone { reason, .. } => ("gone", *reason),
            Answer::Suspect { reason } => ("suspect", *reason),
            Answer::Refused { reason } => ("refused", *reason),
            Answer::Later { reason, .. } => ("later", *reason),
            Answer::Unconfigured => ("unconfigured", ""),
            Answer::Expired => ("expired", ""),
        };
        let labels = AnswerLabels { service: self.service, environment: self.environment, answer, reason };
        self.all.answers.get_or_create(&labels).inc();
    }

    pub(crate) fn resent(&self, reason: &'static str) {
        self.all.resent.get_or_create(&self.with_reason(reason)).inc();
    }

    pub(crate) fn connect_failed(&self, reason: &'static str) {
        self.all.connect_failures.get_or_create(&self.with_reason(reason)).inc();
    }

    pub(crate) fn connection_closed(&self, reason: &'static str) {
        self.all.connections_closed.get_or_create(&self.with_reason(reason)).inc();
    }

    pub(crate) fn overloaded(&self, reason: &'static str) {
        self.all.overloads.get_or_create(&self.with_reason(reason)).inc();
    }

    /// `result` is `fetched`, `refused` (renewed because the old one was rejected) or the reason of a failed fetch.
    pub(crate) fn renewed(&self, result: &'static str) {
        self.all.renewals.get_or_create(&self.with_reason(result)).inc();
    }

    fn with_reason(&self, reason: &'static str) -> ReasonLabels {
        ReasonLabels { service: self.service, environment: self.environment, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_and_answer_has_its_own_counter() {
        let mut registry = noroshi_telemetry::registry();
        let counters = Metrics::new(&mut registry).of(PushService::Apns, PushEnvironment::Sandbox);
        for (lane, count) in Lane::ALL.into_iter().zip(1..) {
            counters.queued(lane).inc_by(count);
        }
        counters.answer(&Answer::Accepted);
        counters.answer(&Answer::Suspect { reason: "BadDeviceToken" });
        let text = noroshi_telemetry::encode(&registry).expect("text");
        let labels = "service=\"apns\",environment=\"sandbox\"";
        for line in [
            format!("noroshi_push_queued{{{labels},lane=\"extra\"}} 1\n"),
            format!("noroshi_push_queued{{{labels},lane=\"campaign\"}} 3\n"),
            format!("noroshi_push_answers_total{{{labels},answer=\"accepted\",reason=\"\"}} 1\n"),
            format!(
                "noroshi_push_answers_total{{{labels},answer=\"suspect\",reason=\"BadDeviceToken\"}} 1\n"
            ),
            format!("noroshi_push_breaker_open{{{labels}}} 0\n"),
        ] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }
}
