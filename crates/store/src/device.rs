//! Devices: one installed app each, with its user, attributes, push token and durable
//! subscriptions.

use std::collections::BTreeMap;

use noroshi_types::{AppId, DeviceId, DeviceNum, PushToken, Timestamp, Topic, UserId};

use crate::Error;

/// What a device says of itself. Absent means unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// `ios`, `android`, `web`, `console` or `other`.
    pub platform: Option<String>,
    pub locale: Option<String>,
    pub timezone: Option<String>,
    pub app_version: Option<String>,
    pub tags: BTreeMap<String, String>,
}

/// A device to be made, or to be brought up to date where `device` names one that exists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registration {
    /// Drawn by the caller where the client named none.
    pub device: Option<DeviceId>,
    pub user: Option<UserId>,
    pub attributes: Attributes,
    /// Durable subscriptions; they start at each topic's present position.
    pub topics: Vec<Topic>,
    pub push_token: Option<PushToken>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    pub num: DeviceNum,
    pub app: AppId,
    pub id: DeviceId,
    pub user: Option<UserId>,
    pub attributes: Attributes,
    /// Without `$everyone`, sorted.
    pub topics: Vec<Topic>,
    pub push_token: Option<PushToken>,
    /// Why the push token is set aside; registering it again clears that.
    pub push_suspect: Option<Suspect>,
    /// Device tokens of a lower version are revoked.
    pub token_version: u32,
    pub created_at: Timestamp,
}

/// A push service doubts a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    pub at: Timestamp,
    /// In the push service's word.
    pub reason: String,
}

/// Fields that change; `Some(None)` clears one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(clippy::option_option)] // absent, null and a value are three different wishes of a PATCH
pub struct DeviceChange {
    /// A device that changes its user starts with an empty inbox: what was kept was another's.
    pub user: Option<Option<UserId>>,
    pub platform: Option<Option<String>>,
    pub locale: Option<Option<String>>,
    pub timezone: Option<Option<String>>,
    pub app_version: Option<Option<String>>,
    /// Tags named here change, `None` removes one, the others stay.
    pub tags: BTreeMap<String, Option<String>>,
    pub push_token: Option<Option<PushToken>>,
}

/// Which devices to list, in order of their numbers.
#[derive(Debug, Clone, Default)]
pub struct DeviceFilter {
    pub user: Option<UserId>,
    /// Only those after this one.
    pub after: Option<DeviceNum>,
    pub limit: usize,
}

#[async_trait::async_trait]
pub trait Devices: Send + Sync {
    /// Makes or updates devices, all in one commit, answers in order. An update changes only what
    /// the registration names and adds its tags and topics; one that changes the user empties the
    /// inbox ([`noroshi_types::Outcome::Cancelled`]). A device over the tag or topic limit is
    /// refused alone, with [`Error::Limit`].
    async fn register(
        &self,
        app: AppId,
        devices: Vec<Registration>,
        now: Timestamp,
    ) -> Result<Vec<Result<Device, Error>>, Error>;
    async fn device(&self, app: AppId, device: &DeviceId) -> Result<Option<Device>, Error>;
    async fn devices(&self, app: AppId, filter: DeviceFilter) -> Result<Vec<Device>, Error>;
    async fn update_device(
        &self,
        app: AppId,
        device: &DeviceId,
        change: DeviceChange,
        now: Timestamp,
    ) -> Result<Device, Error>;
    /// Removes the device with its inbox and subscriptions; every token issued so far stops working,
    /// also for a device made later under the same id. [`Error::NotFound`] if there is none.
    async fn delete_device(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<DeviceNum, Error>;
    /// Every token issued so far stops working. Returns the new version.
    async fn revoke_tokens(&self, app: AppId, device: &DeviceId) -> Result<u32, Error>;
    /// Subscribes durably from the topic's present position; a topic already subscribed stays where
    /// it is. True if it is new.
    async fn subscribe(
        &self,
        app: AppId,
        device: &DeviceId,
        topic: &Topic,
        now: Timestamp,
    ) -> Result<bool, Error>;
    /// True if there was a subscription.
    async fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) -> Result<bool, Error>;
}
