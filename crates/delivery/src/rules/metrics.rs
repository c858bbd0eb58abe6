//! Metrics of denials by topic rules, and of questions to webhooks.

use noroshi_telemetry::{Histogram, Labels, metrics};
use noroshi_types::rule::{Action, Denied};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::Reason;

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

metrics! {
    pub(crate) struct Metrics {
        /// By action and reason.
        topic_denied: Family<Labels<2>, Counter> = "Subscriptions and publications that topic rules denied",
        topic_asks: Family<Labels<1>, Counter> = "Calls to webhooks of topic rules, by result",
        pub(super) topic_ask_seconds: Histogram = "Time until webhooks of topic rules answered",
        pub(super) topic_ask_cache_hits: Counter = "Decisions of webhooks answered from the cache",
    }
}

impl Metrics {
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
                drop(self.topic_denied.get_or_create(&denied(action, reason)));
            }
        }
        for result in AskResult::ALL {
            drop(self.topic_asks.get_or_create(&[("result", result.as_str())]));
        }
    }

    pub(super) fn denied(&self, action: Action, reason: Reason) {
        self.topic_denied.get_or_create(&denied(action, reason)).inc();
    }

    pub(super) fn asked(&self, result: AskResult) {
        self.topic_asks.get_or_create(&[("result", result.as_str())]).inc();
    }
}

fn denied(action: Action, reason: Reason) -> Labels<2> {
    [("action", action.as_str()), ("reason", reason.code())]
}
