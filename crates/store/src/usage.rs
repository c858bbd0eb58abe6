//! How much an app holds, for its quotas.

use std::collections::BTreeSet;

use noroshi_types::{AppId, DeviceId, Quota, Timestamp, Topic};

use crate::Error;

/// The durable subscriptions of a device that wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subscribing {
    pub present: u64,
    /// Of those it wants.
    pub new: u64,
}

#[async_trait::async_trait]
pub trait Usages: Send + Sync {
    /// How much of each the app holds now, in the order asked; what the store does not count ([`Quota::STORED`]) is left
    /// out. It reads every row of the app of these kinds, so it is for now and then, never for a request. Content that has
    /// expired counts until it is removed ([`crate::Maintenance::prune`]); `$everyone` is no topic of the app's.
    async fn usage(&self, app: AppId, of: &[Quota], now: Timestamp) -> Result<Vec<(Quota, u64)>, Error>;
    /// Of these topics those that the store does not know yet, each once.
    async fn unknown_topics(&self, app: AppId, topics: &[Topic]) -> Result<Vec<Topic>, Error>;
    /// Of these devices those that do not exist, each once.
    async fn unknown_devices(&self, app: AppId, devices: &[DeviceId]) -> Result<Vec<DeviceId>, Error>;
    /// Devices with topics that they want, without `$everyone`. Answers in order; a device that does not exist
    /// subscribes to nothing.
    async fn subscribing(
        &self,
        app: AppId,
        wanted: &[(DeviceId, BTreeSet<Topic>)],
    ) -> Result<Vec<Subscribing>, Error>;
}
