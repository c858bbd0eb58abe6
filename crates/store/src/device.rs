//! Devices: one installed app each, with its user, attributes, push token and durable subscriptions.

use std::collections::BTreeMap;

use noroshi_types::{AppId, DeviceId, DeviceNum, PushToken, Timestamp, Topic, UserId};

use crate::{Error, Issued, Revocation};

/// What a device reports about itself. `None`: unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// `ios`, `android`, `web`, `console` or `other`.
    pub platform: Option<String>,
    pub locale: Option<String>,
    pub timezone: Option<String>,
    pub app_version: Option<String>,
    pub tags: BTreeMap<String, String>,
}

/// Creates a device, or updates the existing one that `device` names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registration {
    /// The caller draws an id if the client named none.
    pub device: Option<DeviceId>,
    pub user: Option<UserId>,
    pub attributes: Attributes,
    /// Durable subscriptions, from each topic's current position.
    pub topics: Vec<Topic>,
    pub push_token: Option<PushToken>,
    /// When the request's app JWT was issued; [`Error::Revoked`] if it was revoked since.
    pub issued: Issued,
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
    /// Why the push token is suspended; registering it again clears this.
    pub push_suspect: Option<Suspect>,
    /// Device tokens of a lower version are revoked.
    pub token_version: u32,
    /// The revocations of app JWTs of the device and its user when it was read; not set by a registration.
    pub revoked: Revocation,
    pub created_at: Timestamp,
}

/// A push service reported the token as suspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    pub at: Timestamp,
    /// The push service's own reason.
    pub reason: String,
}

/// Fields to change; `Some(None)` clears one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(clippy::option_option)] // absent, null and a value are three different wishes of a PATCH
pub struct DeviceChange {
    /// A device that changes its user starts with an empty inbox, because the old messages belong to the previous
    /// user.
    pub user: Option<Option<UserId>>,
    pub platform: Option<Option<String>>,
    pub locale: Option<Option<String>>,
    pub timezone: Option<Option<String>>,
    pub app_version: Option<Option<String>>,
    /// Sets or (`None`) removes the named tags; other tags stay.
    pub tags: BTreeMap<String, Option<String>>,
    pub push_token: Option<Option<PushToken>>,
}

/// Which devices to list, in order of their numbers.
#[derive(Debug, Clone, Default)]
pub struct DeviceFilter {
    pub user: Option<UserId>,
    /// Only devices after this one.
    pub after: Option<DeviceNum>,
    pub limit: usize,
}

#[async_trait::async_trait]
pub trait Devices: Send + Sync {
    /// Creates or updates devices in one commit; answers in order. An update changes only what the registration
    /// names, and adds its tags and topics; one that changes the user empties the inbox
    /// ([`noroshi_types::Outcome::Cancelled`]). Only a device over the tag or topic limit is refused, with
    /// [`Error::Limit`].
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
    /// Removes the device with its inbox and subscriptions. Every device token and app JWT issued so far becomes
    /// invalid, also for a later device of the same id. [`Error::NotFound`] if there is no such device.
    async fn delete_device(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<DeviceNum, Error>;
    /// Invalidates every device token and app JWT issued so far. Returns the new version.
    async fn revoke_tokens(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<u32, Error>;
    /// Invalidates every app JWT of the user and every device token of the user's devices issued so far, also if
    /// there is no such user yet. Returns the user's devices.
    async fn revoke_user(&self, app: AppId, user: &UserId, now: Timestamp) -> Result<Vec<DeviceId>, Error>;
    /// Subscribes durably from the topic's current position; an existing subscription keeps its position. True if it
    /// is new.
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
