//! Metrics of shared subscriptions.

use noroshi_telemetry::Registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    pub(super) groups: Gauge,
    pub(super) assigned: Counter,
    pub(super) moved: Counter,
    pub(crate) dropped: Counter,
    pub(super) waiting: Gauge,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "share_groups",
            "Groups of shared subscriptions, on the leader",
            self.groups.clone(),
        );
        registry.register(
            "share_messages_assigned",
            "Messages assigned to a member of a shared subscription",
            self.assigned.clone(),
        );
        registry.register(
            "share_messages_moved",
            "Messages assigned to another member because the first one disconnected",
            self.moved.clone(),
        );
        registry.register(
            "share_messages_dropped",
            "Messages that are not stored and found no connected member, or a full queue",
            self.dropped.clone(),
        );
        registry.register(
            "share_groups_waiting",
            "Groups whose messages wait because all connected members have too many unconfirmed copies",
            self.waiting.clone(),
        );
    }
}
