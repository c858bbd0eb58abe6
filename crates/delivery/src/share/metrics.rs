//! What is counted of shared subscriptions.

use noroshi_telemetry::Registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    pub(super) groups: Gauge,
    pub(super) assigned: Counter,
    pub(super) moved: Counter,
    pub(super) dropped: Counter,
    pub(super) waiting: Gauge,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "share_groups",
            "Groups of shared subscriptions, at the node that leads them",
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
            "Groups with messages to assign whose connected members all have too many unconfirmed ones",
            self.waiting.clone(),
        );
    }
}
