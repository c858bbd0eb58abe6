//! Apps (tenants), their API keys, and secrets that every node of a cluster shares.

use noroshi_types::{AppId, AppName, KeyId, Scopes, Timestamp};

use crate::Error;

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    pub id: AppId,
    pub name: AppName,
    pub created_at: Timestamp,
    pub settings: AppSettings,
}

/// How the app signs its own JWTs, what its clients may do and how much it may use. `Debug` shows whether a secret is set, never the secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct AppSettings {
    /// HS256 secret.
    pub jwt_secret: Option<Vec<u8>>,
    /// Where RS256/ES256 keys are fetched from (RFC 7517).
    pub jwks_url: Option<String>,
    /// RS256/ES256 keys given directly: a JWK set as JSON.
    pub jwks: Option<String>,
    /// Filters of the topics (MQTT's syntax) that its devices may publish to; none by itself.
    pub client_publish: Vec<String>,
    /// The `iss` claim that the app's JWTs must carry; unset: any.
    pub issuer: Option<String>,
    /// The value that the `aud` claim of the app's JWTs must contain; unset: the app's name.
    pub audience: Option<String>,
    /// Who may subscribe and publish to which topics, as checked JSON; unset: no rules.
    pub topic_rules: Option<String>,
    /// What the app may use, as checked JSON; unset: the node's defaults.
    pub quotas: Option<String>,
}

impl AppSettings {
    /// Filters have no control characters: one a line.
    pub(crate) fn client_publish_text(&self) -> Option<String> {
        (!self.client_publish.is_empty()).then(|| self.client_publish.join("\n"))
    }

    pub(crate) fn client_publish_of(text: Option<String>) -> Vec<String> {
        text.map_or_else(Vec::new, |text| text.lines().map(str::to_owned).collect())
    }
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
            .finish()
    }
}

/// SHA-256 of an API key: keys are 256-bit random (or as strong as the operator chose), so a fast
/// hash is enough and a lookup needs no salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub id: KeyId,
    pub app: AppId,
    /// What the operator calls it.
    pub name: String,
    pub hash: KeyHash,
    pub scopes: Scopes,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct NewKey {
    pub app: AppId,
    pub name: String,
    pub hash: KeyHash,
    pub scopes: Scopes,
}

/// What a setting has to be for a change to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    Any,
    This(Option<String>),
}

/// Apps and keys are few and change rarely: callers hold all of them in memory.
#[async_trait::async_trait]
pub trait Apps: Send + Sync {
    /// All apps, by id.
    async fn apps(&self) -> Result<Vec<App>, Error>;
    /// [`Error::Exists`] if the name is taken.
    async fn create_app(&self, name: AppName, settings: AppSettings, now: Timestamp) -> Result<App, Error>;
    /// Changes everything but the topic rules and the quotas.
    async fn update_app(&self, app: AppId, settings: AppSettings) -> Result<App, Error>;
    /// Changes the topic rules and nothing else.
    async fn set_topic_rules(&self, app: AppId, rules: Option<String>) -> Result<App, Error>;
    /// Changes the quotas and nothing else. [`Error::Conflict`] if they are not what they have to be.
    async fn set_quotas(&self, app: AppId, before: Before, quotas: Option<String>) -> Result<App, Error>;
    /// Removes the app with everything it owns. The app and its keys are gone with the answer; of the rest what takes
    /// longer than some seconds is removed by [`crate::Maintenance::prune`].
    async fn delete_app(&self, app: AppId) -> Result<(), Error>;
    /// All keys of all apps that are not revoked.
    async fn keys(&self) -> Result<Vec<Key>, Error>;
    /// [`Error::Exists`] if the hash is known (a key given by the environment on a second start).
    async fn create_key(&self, key: NewKey, now: Timestamp) -> Result<Key, Error>;
    async fn revoke_key(&self, app: AppId, key: KeyId) -> Result<(), Error>;
    /// The named secret; `fresh` becomes it if there is none yet. Concurrent first calls agree.
    async fn secret(&self, name: &str, fresh: Vec<u8>) -> Result<Vec<u8>, Error>;
}
