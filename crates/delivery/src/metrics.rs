//! What the decisions count. An outcome is counted by the call (`telling`) that tells it to the event log: what
//! shards tell in [`crate::Delivery::outcomes`], what happens in inboxes when the store has answered.
//! Left out is what a device takes with it that is deleted or changes its user: only the trace tells.

use noroshi_store::OutcomePart;
use noroshi_telemetry::{Histogram, Registry};
use noroshi_types::{Outcome, Request, Target};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AcceptedLabels {
    target: &'static str,
    when: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone)]
pub struct Metrics {
    accepted: Family<AcceptedLabels, Counter>,
    outcomes: Family<OutcomeLabels, Counter>,
    /// The counters of `outcomes` in the order of [`Outcome::ALL`]: no map on the way of a fan-out.
    by_outcome: Vec<Counter>,
    pub(crate) acked_seconds: Histogram,
    pub(crate) acks_dropped: Counter,
    pub(crate) refused_overloaded: Counter,
    pub(crate) pruned: Counter,
    pub(crate) exposures: Counter,
    pub(crate) push: crate::push::metrics::Metrics,
    pub(crate) cluster: crate::cluster::metrics::Metrics,
    pub(crate) quota: crate::quota::Metrics,
    pub(crate) rules: crate::rules::metrics::Metrics,
    pub(crate) shares: crate::share::metrics::Metrics,
}

/// For a list of all that there is, each with one of its labels.
pub fn describe(registry: &mut Registry) {
    let metrics = Metrics::new(registry);
    metrics.push.describe();
    metrics.quota.describe();
    metrics.rules.describe();
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::unregistered();
        registry.register("notifications_accepted", "Notifications accepted", metrics.accepted.clone());
        registry.register("outcomes", "Devices, by what became of a notification", metrics.outcomes.clone());
        registry.register("acked_seconds", "From accepted to confirmed", metrics.acked_seconds.clone());
        registry.register(
            "acks_dropped",
            "Confirmations that were not written",
            metrics.acks_dropped.clone(),
        );
        registry.register(
            "refused_overloaded",
            "Requests refused for lack of room",
            metrics.refused_overloaded.clone(),
        );
        registry.register("exposures", "Variants that devices say they showed", metrics.exposures.clone());
        registry.register("pruned_rows", "Expired rows removed from the store", metrics.pruned.clone());
        metrics.push.register(registry);
        metrics.cluster.register(registry);
        metrics.quota.register(registry);
        metrics.rules.register(registry);
        metrics.shares.register(registry);
        metrics
    }

    pub(crate) fn unregistered() -> Self {
        let outcomes = Family::<OutcomeLabels, Counter>::default();
        let by_outcome = Outcome::ALL
            .iter()
            .map(|outcome| outcomes.get_or_create_owned(&OutcomeLabels { outcome: outcome.as_str() }))
            .collect();
        Self {
            accepted: Family::default(),
            outcomes,
            by_outcome,
            acked_seconds: Histogram::default(),
            acks_dropped: Counter::default(),
            refused_overloaded: Counter::default(),
            pruned: Counter::default(),
            exposures: Counter::default(),
            push: crate::push::metrics::Metrics::default(),
            cluster: crate::cluster::metrics::Metrics::default(),
            quota: crate::quota::Metrics::default(),
            rules: crate::rules::metrics::Metrics::default(),
            shares: crate::share::metrics::Metrics::default(),
        }
    }

    pub(crate) fn count_accepted(&self, request: &Request) {
        let labels = AcceptedLabels { target: target_name(&request.target), when: request.when.as_str() };
        self.accepted.get_or_create(&labels).inc();
    }

    pub(crate) fn count_outcomes(&self, parts: &[OutcomePart]) {
        for part in parts {
            self.outcome(part.outcome).inc_by(part.count);
        }
    }

    pub(crate) fn outcome(&self, outcome: Outcome) -> &Counter {
        // Codes run from 1 without a gap, in the order of ALL.
        &self.by_outcome[outcome as usize - 1]
    }
}

pub(crate) fn target_name(target: &Target) -> &'static str {
    match target {
        Target::Users(_) => "users",
        Target::Devices(_) => "devices",
        Target::Topic(_) => "topic",
        Target::Condition(_) => "condition",
        Target::Everyone => "everyone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_counter() {
        let metrics = Metrics::unregistered();
        for outcome in Outcome::ALL {
            metrics.outcome(outcome).inc_by(outcome as u64);
        }
        for outcome in Outcome::ALL {
            let labels = OutcomeLabels { outcome: outcome.as_str() };
            assert_eq!(metrics.outcomes.get_or_create(&labels).get(), outcome as u64);
        }
    }
}
