//! Apps (tenants), their API keys, and secrets that every node of a cluster shares.

use noroshi_types::{AppId, AppName, KeyId, Label, Scopes, Timestamp};

use crate::Error;

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    pub id: AppId,
    pub name: AppName,
    pub created_at: Timestamp,
    pub settings: AppSettings,
}

/// How the app signs its own JWTs, what its clients may do, and how much it may use. `Debug` shows whether a secret
/// is set, but not the secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AppSettings {
    /// HS256 secret.
    pub jwt_secret: Option<Vec<u8>>,
    /// Where RS256/ES256 keys are fetched from (RFC 7517).
    pub jwks_url: Option<String>,
    /// RS256/ES256 keys given directly: a JWK set as JSON.
    pub jwks: Option<String>,
    /// MQTT topic filters of the topics that the app's devices may publish to; empty by default.
    pub client_publish: Vec<String>,
    /// The `iss` claim that the app's JWTs must carry; `None`: any.
    pub issuer: Option<String>,
    /// A value that the `aud` claim of the app's JWTs must contain; `None`: the app's name.
    pub audience: Option<String>,
    /// Who may subscribe and publish to which topics, as validated JSON; `None`: no rules.
    pub topic_rules: Option<String>,
    /// Limits for the app, as validated JSON; `None`: the node's defaults.
    pub quotas: Option<String>,
    /// The categories that no preference suppresses.
    pub essential_categories: Vec<Label>,
}

impl std::fmt::Debug for AppSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppSettings")
            .field("jwt_secret", &self.jwt_secret.as_ref().map(|_| "set"))
            .field("jwks_url", &self.jwks_url)
            .field("jwks", &self.jwks.as_ref().map(|_| "set"))
            .field("client_publish", &self.client_publish)
            .field("issuer", &self.issuer)
            .field("audience", &self.audience)
            .field("topic_rules", &self.topic_rules.as_ref().map(|_| "set"))
            .field("quotas", &self.quotas)
            .field("essential_categories", &self.essential_categories)
            .finish()
    }
}

/// SHA-256 of an API key. Keys are 256-bit random (or as strong as the operator chose), so a fast hash is enough and
/// a lookup needs no salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub id: KeyId,
    pub app: AppId,
    /// The operator's name for the key.
    pub name: String,
    pub hash: KeyHash,
    pub scopes: Scopes,
    pub created_at: Timestamp,
    /// From then on no request may use it. `None`: it never expires.
    pub expires_at: Option<Timestamp>,
}

impl Key {
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}

#[derive(Debug, Clone)]
pub struct NewKey {
    pub app: AppId,
    pub name: String,
    pub hash: KeyHash,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
}

/// A condition on the current value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    Any,
    This(Option<String>),
}

/// Apps and keys are few and change rarely, so callers cache all of them in memory.
#[async_trait::async_trait]
pub trait Apps: Send + Sync {
    /// All apps, by id.
    async fn apps(&self) -> Result<Vec<App>, Error>;
    /// [`Error::Exists`] if the name is taken.
    async fn create_app(&self, name: AppName, settings: AppSettings, now: Timestamp) -> Result<App, Error>;
    /// Changes every setting except the topic rules and the quotas.
    async fn update_app(&self, app: AppId, settings: AppSettings) -> Result<App, Error>;
    /// Changes only the topic rules.
    async fn set_topic_rules(&self, app: AppId, rules: Option<String>) -> Result<App, Error>;
    /// Changes only the quotas. [`Error::Conflict`] if the current quotas do not meet the condition.
    async fn set_quotas(&self, app: AppId, before: Before, quotas: Option<String>) -> Result<App, Error>;
    /// Removes the app and everything it owns. The app and its keys are gone when this returns. The rest is removed
    /// for some seconds, and then by [`crate::Maintenance::prune`].
    async fn delete_app(&self, app: AppId) -> Result<(), Error>;
    /// All keys of all apps, also those that have expired; revoked keys are gone.
    async fn keys(&self) -> Result<Vec<Key>, Error>;
    /// [`Error::Exists`] if the hash exists already (a key from the environment on the second start).
    async fn create_key(&self, key: NewKey, now: Timestamp) -> Result<Key, Error>;
    async fn revoke_key(&self, app: AppId, key: KeyId) -> Result<(), Error>;
    /// Returns the named secret; the first call stores `fresh`. Concurrent first calls get the same value.
    async fn secret(&self, name: &str, fresh: Vec<u8>) -> Result<Vec<u8>, Error>;
}
