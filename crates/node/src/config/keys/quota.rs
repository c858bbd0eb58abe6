//! `quotas.*`: default limits of apps (docs/quotas.md). Unset means unlimited.

use noroshi_types::quota::{Limits, Quota};

use crate::config::reader::Reader;

macro_rules! quotas {
    ($($(#[doc = $help:literal])+ $quota:ident = $key:literal in $unit:literal,)+) => {
        /// Key, quota, unit and description, in the order of [`Quota::ALL`].
        const KEYS: [(&str, Quota, &str, &str); Quota::COUNT] =
            [$(($key, Quota::$quota, $unit, concat!($($help),+).trim_ascii_start())),+];
    };
}

quotas! {
    /// Open connections of one app's devices at this node.
    Connections = "quotas.connections" in "connections",
    /// Log-ins of one app's devices at this node, with a burst of one second.
    ConnectsPerSecond = "quotas.connects_per_second" in "log-ins a second",
    /// Devices of one app.
    Devices = "quotas.devices" in "devices",
    /// Topics that one device may subscribe to, at most 1,000.
    SubscriptionsPerDevice = "quotas.subscriptions_per_device" in "topics",
    /// Topics of one app in the store.
    Topics = "quotas.topics" in "topics",
    /// Notifications that one app may publish at this node, with a burst of one second.
    PublishesPerSecond = "quotas.publishes_per_second" in "notifications a second",
    /// Messages that this node writes to connections of one app, on average. Above it, new publishes are
    /// rejected until the average is met.
    DeliveriesPerSecond = "quotas.deliveries_per_second" in "messages a second",
    /// Pending messages in all inboxes of one app; a message to three devices counts three times.
    InboxRows = "quotas.inbox_rows" in "messages",
    /// Payload bytes of the pending messages in all inboxes of one app, counted per device.
    InboxBytes = "quotas.inbox_bytes" in "bytes",
    /// Content size of one app's retained messages.
    RetainedBytes = "quotas.retained_bytes" in "bytes",
    /// Campaigns of one app that are scheduled, running or paused.
    Campaigns = "quotas.campaigns" in "campaigns",
    /// Recipients of one app that this node sends to push services, on average. Further ones wait in the
    /// store.
    PushesPerSecond = "quotas.pushes_per_second" in "recipients a second",
    /// Web Push endpoints of one app's devices.
    Endpoints = "quotas.endpoints" in "endpoints",
    /// Experiments of one app that are not archived.
    Experiments = "quotas.experiments" in "experiments",
    /// API keys of one app.
    Keys = "quotas.keys" in "keys",
}

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
