//! `quotas.*`: default limits of apps (docs/quotas.md). Unset means unlimited.

use noroshi_types::quota::{Limits, Quota};

use super::Reader;

/// Key, quota, unit and description, in the order of [`Quota::ALL`].
const KEYS: [(&str, Quota, &str, &str); Quota::COUNT] = [
    (
        "quotas.connections",
        Quota::Connections,
        "connections",
        "Open connections of one app's devices at this node.",
    ),
    (
        "quotas.connects_per_second",
        Quota::ConnectsPerSecond,
        "log-ins a second",
        "Log-ins of one app's devices at this node, with a burst of one second.",
    ),
    ("quotas.devices", Quota::Devices, "devices", "Devices of one app."),
    (
        "quotas.subscriptions_per_device",
        Quota::SubscriptionsPerDevice,
        "topics",
        "Topics that one device may subscribe to, at most 1,000.",
    ),
    ("quotas.topics", Quota::Topics, "topics", "Topics of one app in the store."),
    (
        "quotas.publishes_per_second",
        Quota::PublishesPerSecond,
        "notifications a second",
        "Notifications that one app may publish at this node, with a burst of one second.",
    ),
    (
        "quotas.deliveries_per_second",
        Quota::DeliveriesPerSecond,
        "messages a second",
        "Messages that this node writes to connections of one app, on average. Above it, new publishes are rejected until the average is met.",
    ),
    (
        "quotas.inbox_rows",
        Quota::InboxRows,
        "messages",
        "Pending messages in all inboxes of one app; a message to three devices counts three times.",
    ),
    (
        "quotas.inbox_bytes",
        Quota::InboxBytes,
        "bytes",
        "Payload bytes of the pending messages in all inboxes of one app, counted per device.",
    ),
    ("quotas.retained_bytes", Quota::RetainedBytes, "bytes", "Content size of one app's retained messages."),
    (
        "quotas.campaigns",
        Quota::Campaigns,
        "campaigns",
        "Campaigns of one app that are scheduled, running or paused.",
    ),
    (
        "quotas.pushes_per_second",
        Quota::PushesPerSecond,
        "recipients a second",
        "Recipients of one app that this node sends to push services, on average. Further ones wait in the store.",
    ),
    ("quotas.endpoints", Quota::Endpoints, "endpoints", "Web Push endpoints of one app's devices."),
    (
        "quotas.experiments",
        Quota::Experiments,
        "experiments",
        "Experiments of one app that are not archived.",
    ),
    ("quotas.keys", Quota::Keys, "keys", "API keys of one app."),
];

pub(super) fn read(reader: &mut Reader) -> Limits {
    let mut limits = Limits::default();
    for (key, quota, unit, help) in KEYS {
        limits.set(quota, reader.optional_count(key, 0..=quota.limit_max(), unit, help));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quota_has_its_key() {
        for ((key, quota, ..), known) in KEYS.into_iter().zip(Quota::ALL) {
            assert_eq!((key, quota), (format!("quotas.{}", known.as_str()).as_str(), known));
        }
    }
}
