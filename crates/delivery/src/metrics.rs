//! The metrics of all components, registered together so that their order is the same at every start.
//!
//! Each component gets its own part of them; nothing is counted here.

use noroshi_telemetry::Registry;
use prometheus_client::metrics::counter::Counter;

use crate::{
    ack, backpressure, cluster, first_call, items, outcomes, preferences, publish, push, quota, rules, share,
};

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub(crate) outcomes: outcomes::Metrics,
    pub(crate) acks: ack::Metrics,
    pub(crate) backpressure: backpressure::Metrics,
    pub(crate) publish: publish::Metrics,
    pub(crate) first_calls: first_call::Metrics,
    pub(crate) items: items::Metrics,
    pub(crate) preferences: preferences::Metrics,
    pub(crate) pruned: Counter,
    pub(crate) push: push::Metrics,
    pub(crate) cluster: cluster::Metrics,
    pub(crate) quota: quota::Metrics,
    pub(crate) rules: rules::Metrics,
    pub(crate) shares: share::Metrics,
}

/// Creates a series of every metric, each with one of its labels, for the list of metrics in the documentation.
pub fn describe(registry: &mut Registry) {
    let metrics = Metrics::new(registry);
    metrics.push.describe();
    metrics.quota.describe();
    metrics.rules.describe();
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.outcomes.register(registry);
        metrics.acks.register(registry);
        metrics.backpressure.register(registry);
        metrics.publish.register(registry);
        metrics.first_calls.register(registry);
        metrics.items.register(registry);
        metrics.preferences.register(registry);
        registry.register("pruned_rows", "Expired rows removed from the store", metrics.pruned.clone());
        metrics.push.register(registry.sub_registry_with_prefix("push"));
        metrics.cluster.register(registry.sub_registry_with_prefix("delivery_cluster"));
        metrics.quota.register(registry);
        metrics.rules.register(registry);
        metrics.shares.register(registry);
        metrics
    }
}
