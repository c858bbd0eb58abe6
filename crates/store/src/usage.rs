//! How much an app holds, compared with its quotas.

use std::collections::BTreeSet;

use noroshi_types::{AppId, DeviceId, Quota, Timestamp, Topic};

use crate::Error;

/// The durable subscriptions of a device that asks for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subscribing {
    pub present: u64,
    /// Requested topics without a subscription.
    pub new: u64,
}

#[async_trait::async_trait]
pub trait Usages: Send + Sync {
    /// How much of each kind the app holds now, in the order asked, without kinds that the store does not count
    /// ([`Quota::STORED`]). It reads every row of these kinds, so call it rarely, never per request. Expired content
    /// counts until it is removed ([`crate::Maintenance::prune`]); `$everyone` does not count as a topic.
    async fn usage(&self, app: AppId, of: &[Quota], now: Timestamp) -> Result<Vec<(Quota, u64)>, Error>;
    /// Those of the topics that the store does not have, each once.
    async fn unknown_topics(&self, app: AppId, topics: &[Topic]) -> Result<Vec<Topic>, Error>;
    /// Those of the devices that do not exist, each once.
    async fn unknown_devices(&self, app: AppId, devices: &[DeviceId]) -> Result<Vec<DeviceId>, Error>;
    /// For devices with the topics they request, without `$everyone`. Answers in order; a device that does not exist
    /// subscribes to nothing.
    async fn subscribing(
        &self,
        app: AppId,
        wanted: &[(DeviceId, BTreeSet<Topic>)],
    ) -> Result<Vec<Subscribing>, Error>;
}
