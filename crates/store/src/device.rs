//! Devices: one installed app each, with its user, attributes, push tokens and durable subscriptions.
//!
//! A device has one *main token*, the token of a message kind that was registered last; ordinary pushes go to it. Its
//! columns are those of the device, which older programs know too. All other tokens have rows of their own. If the
//! main token is removed on its own, the message token that was registered last takes its place.

use std::collections::BTreeMap;

use noroshi_types::{AppId, DeviceId, DeviceNum, PushToken, Timestamp, TokenKey, Topic, UserId, UtcDay};

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
    /// The main token; registered after `push_tokens`.
    pub push_token: Option<PushToken>,
    /// In this order, so the last one of a message kind becomes the main token.
    pub push_tokens: Vec<NewToken>,
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
    /// The main token.
    pub push_token: Option<PushToken>,
    /// When the main token was registered.
    pub push_token_at: Option<Timestamp>,
    /// Why the main token is suspended; registering it again clears this.
    pub push_suspect: Option<Suspect>,
    /// All other tokens, also expired ones, sorted by key.
    pub push_tokens: Vec<DeviceToken>,
    /// Device tokens of a lower version are revoked.
    pub token_version: u32,
    /// The revocations of app JWTs of the device and its user when it was read; not set by a registration.
    pub revoked: Revocation,
    pub created_at: Timestamp,
    /// `None`: never, as far as the store knows ([`Devices::record_seen`]).
    pub last_seen: Option<UtcDay>,
}

/// A push token to register. It replaces the device's token of the same kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Its kind is one of the token's service.
    pub key: TokenKey,
    pub token: PushToken,
    /// Only for kinds that do not receive ordinary pushes; a token that has expired is not registered. `None`: never,
    /// or after [`noroshi_types::limits::LIVE_ACTIVITY_TOKEN_TTL`] for the token of a Live Activity.
    pub expires_at: Option<Timestamp>,
    /// Leaves an existing token of this kind and name unchanged.
    pub only_if_missing: bool,
}

/// A push token of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceToken {
    pub key: TokenKey,
    pub token: PushToken,
    pub registered_at: Timestamp,
    pub suspect: Option<Suspect>,
    /// Nothing is sent to the token from then on. `None`: it does not expire.
    pub expires_at: Option<Timestamp>,
}

impl DeviceToken {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
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
    /// The main token; `Some(None)` removes every token of a message kind.
    pub push_token: Option<Option<PushToken>>,
    /// Applied before `push_token`, in this order.
    pub push_tokens: Vec<TokenChange>,
}

/// A change of one of a device's push tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenChange {
    Set(NewToken),
    /// [`Error::NotFound`] if the device has no such token.
    Remove(TokenKey),
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
    /// Creates or updates devices, many of them in several commits; answers in order. After an error some of them may
    /// be written; the same call can be repeated. An update changes only what the registration
    /// names, and adds its tags and topics; one that changes the user empties the inbox
    /// ([`noroshi_types::Outcome::Cancelled`]). Only a device over the limit of tags, topics or push tokens is refused,
    /// with [`Error::Limit`].
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
    /// The devices were seen on this day. A device keeps its latest day. Ignores devices that were deleted.
    async fn record_seen(&self, devices: Vec<DeviceNum>, day: UtcDay) -> Result<(), Error>;
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
