//! Metrics of denials by topic rules, and of questions to webhooks.

use noroshi_telemetry::{Histogram, Registry};
use noroshi_types::rule::{Action, Denied};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::Reason;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeniedLabels {
    action: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AskLabels {
    result: &'static str,
}

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskResult {
    Allowed,
    Denied,
    /// No valid answer in time.
    Failed,
    /// Not asked: too many questions of the app are pending.
    Refused,
}

impl AskResult {
    const ALL: [AskResult; 4] =
        [AskResult::Allowed, AskResult::Denied, AskResult::Failed, AskResult::Refused];

    fn as_str(self) -> &'static str {
        match self {
            AskResult::Allowed => "allowed",
            AskResult::Denied => "denied",
            AskResult::Failed => "failed",
            AskResult::Refused => "refused",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    denied: Family<DeniedLabels, Counter>,
    asks: Family<AskLabels, Counter>,
    pub(super) ask_seconds: Histogram,
    pub(super) cache_hits: Counter,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "topic_denied",
            "Subscriptions and publications that topic rules denied",
            self.denied.clone(),
        );
        registry.register("topic_asks", "Questions to webhooks of topic rules, by result", self.asks.clone());
        registry.register(
            "topic_ask_seconds",
            "Time until webhooks of topic rules answered",
            self.ask_seconds.clone(),
        );
        registry.register(
            "topic_ask_cache_hits",
            "Decisions of webhooks answered from the cache",
            self.cache_hits.clone(),
        );
    }

    /// Creates every series.
    pub(crate) fn describe(&self) {
        let rules = [
            Denied::NoRule,
            Denied::Server { rule: 0 },
            Denied::NotInToken { rule: 0 },
            Denied::Overlap { rule: 0 },
        ];
        let reasons = rules.map(Reason::Rule).into_iter().chain([Reason::Webhook, Reason::Unanswered]);
        for reason in reasons {
            for action in Action::ALL {
                let labels = DeniedLabels { action: action.as_str(), reason: reason.code() };
                drop(self.denied.get_or_create(&labels));
            }
        }
        for result in AskResult::ALL {
            drop(self.asks.get_or_create(&AskLabels { result: result.as_str() }));
        }
    }

    pub(super) fn denied(&self, action: Action, reason: Reason) {
        self.denied.get_or_create(&DeniedLabels { action: action.as_str(), reason: reason.code() }).inc();
    }

    pub(super) fn asked(&self, result: AskResult) {
        self.asks.get_or_create(&AskLabels { result: result.as_str() }).inc();
    }
}
