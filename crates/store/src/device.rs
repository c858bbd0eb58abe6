//! Devices: one installed app each, with its user, attributes, push token and durable
//! subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use noroshi_types::{
    AppId, DeviceId, DeviceNum, JsonText, PushEnvironment, PushService, PushToken, Timestamp, Topic, UserId,
    limits,
};

use crate::{Error, Issued, Revocation, ids};

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
    /// When the app JWT that asks for it was issued; refused with [`Error::Revoked`] if it was revoked since.
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
    /// Why the push token is set aside; registering it again clears that.
    pub push_suspect: Option<Suspect>,
    /// Device tokens of a lower version are revoked.
    pub token_version: u32,
    /// Of its app JWTs and its user's, as it was read; of a device that is being registered it is not.
    pub revoked: Revocation,
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
    /// Removes the device with its inbox and subscriptions; every device token and app JWT issued so far stops
    /// working, also for a device made later under the same id. [`Error::NotFound`] if there is none.
    async fn delete_device(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<DeviceNum, Error>;
    /// Every device token and app JWT issued so far stops working. Returns the new version.
    async fn revoke_tokens(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<u32, Error>;
    /// Every app JWT of the user and every device token of the user's devices issued so far stops working, also where
    /// there is no such user yet. Returns the user's devices.
    async fn revoke_user(&self, app: AppId, user: &UserId, now: Timestamp) -> Result<Vec<DeviceId>, Error>;
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

/// What a registration or a change means for what is kept beside the device's own fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Renewal {
    pub other_user: bool,
    pub names_token: bool,
    /// Not subscribed before, sorted.
    pub new_topics: Vec<Topic>,
}

impl Renewal {
    /// What was read of the device before does not hold any longer.
    pub(crate) fn revises(&self) -> bool {
        self.other_user || !self.new_topics.is_empty()
    }
}

impl Device {
    /// One of which nothing is known yet; the engine numbers it.
    pub(crate) fn fresh(app: AppId, id: DeviceId, now: Timestamp) -> Self {
        Self {
            num: DeviceNum(0),
            app,
            id,
            user: None,
            attributes: Attributes::default(),
            topics: Vec::new(),
            push_token: None,
            push_suspect: None,
            token_version: 1,
            revoked: Revocation::default(),
            created_at: now,
        }
    }

    /// Takes in what a registration names. Refused over the limits; then the device is of no use any more.
    pub(crate) fn register(&mut self, registration: Registration) -> Result<Renewal, Error> {
        let Registration { device: _, user, attributes, topics, push_token, issued: _ } = registration;
        let other_user = user.is_some() && user != self.user;
        self.user = user.or(self.user.take());
        let known = &mut self.attributes;
        let Attributes { platform, locale, timezone, app_version, tags } = attributes;
        known.platform = platform.or(known.platform.take());
        known.locale = locale.or(known.locale.take());
        known.timezone = timezone.or(known.timezone.take());
        known.app_version = app_version.or(known.app_version.take());
        known.tags.extend(tags);
        let names_token = push_token.is_some();
        if let Some(token) = push_token {
            self.push_token = Some(token);
            self.push_suspect = None;
        }
        let wanted: BTreeSet<Topic> = topics.into_iter().filter(|topic| !topic.is_everyone()).collect();
        let mut all: BTreeSet<Topic> = self.topics.drain(..).collect();
        let new_topics = wanted.into_iter().filter(|topic| all.insert(topic.clone())).collect();
        self.topics = all.into_iter().collect();
        self.check_limits()?;
        Ok(Renewal { other_user, names_token, new_topics })
    }

    /// Takes in a change. Refused over the limits; then the device is of no use any more.
    pub(crate) fn change(&mut self, change: DeviceChange) -> Result<Renewal, Error> {
        let DeviceChange { user, platform, locale, timezone, app_version, tags, push_token } = change;
        let other_user = user.as_ref().is_some_and(|user| *user != self.user);
        self.user = user.unwrap_or(self.user.take());
        let names_token = push_token.is_some();
        if let Some(token) = push_token {
            self.push_token = token;
            self.push_suspect = None;
        }
        let known = &mut self.attributes;
        known.platform = platform.unwrap_or(known.platform.take());
        known.locale = locale.unwrap_or(known.locale.take());
        known.timezone = timezone.unwrap_or(known.timezone.take());
        known.app_version = app_version.unwrap_or(known.app_version.take());
        for (name, value) in tags {
            match value {
                Some(value) => known.tags.insert(name, value),
                None => known.tags.remove(&name),
            };
        }
        self.check_limits()?;
        Ok(Renewal { other_user, names_token, new_topics: Vec::new() })
    }

    fn check_limits(&self) -> Result<(), Error> {
        if self.attributes.tags.len() > limits::TAGS_MAX {
            return Err(Error::Limit(format!("a device has at most {} tags", limits::TAGS_MAX)));
        }
        check_topics(self.topics.len())
    }
}

/// Whether a device may have this many topics.
pub(crate) fn check_topics(count: usize) -> Result<(), Error> {
    match count <= limits::TOPICS_PER_DEVICE_MAX {
        true => Ok(()),
        false => Err(Error::Limit(format!("a device has at most {} topics", limits::TOPICS_PER_DEVICE_MAX))),
    }
}

/// A UUIDv4 (RFC 9562 §5.4).
pub(crate) fn draw_id() -> Result<DeviceId, Error> {
    let bits = u128::from(ids::random_bits()) << 64 | u128::from(ids::random_bits());
    let id = uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string();
    DeviceId::parse(&id).map_err(|error| Error::Engine(error.to_string()))
}

/// Tags as they are stored.
pub(crate) fn tags_text(tags: &BTreeMap<String, String>) -> Result<Option<String>, Error> {
    let text = (!tags.is_empty()).then(|| serde_json::to_string(tags)).transpose();
    text.map_err(|error| Error::Engine(error.to_string()))
}

pub(crate) fn tags_of(text: Option<&str>) -> Result<BTreeMap<String, String>, Error> {
    let tags = text.map(serde_json::from_str).transpose();
    Ok(tags.map_err(|error| Error::Engine(format!("stored tags: {error}")))?.unwrap_or_default())
}

/// Of `push_token`, `push_service` and `push_environment`. A service this program does not know is one of
/// a newer program, which it cannot ask anything.
pub(crate) fn token_of(
    json: Option<String>,
    service: Option<u8>,
    environment: Option<u8>,
) -> Option<PushToken> {
    Some(PushToken {
        service: PushService::from_code(service?)?,
        environment: environment.and_then(PushEnvironment::from_code).unwrap_or_default(),
        json: JsonText::from_valid(json?),
    })
}
