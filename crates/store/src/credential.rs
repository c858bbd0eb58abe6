//! Credentials of push services: one per app, service and environment, and per provider behind
//! a webhook. The caller seals the secret, so a copy of the
//! database does not reveal it.

use noroshi_types::{AppId, CredentialId, JsonText, PushEnvironment, PushService, Timestamp};

use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCredential {
    pub id: CredentialId,
    pub app: AppId,
    pub service: PushService,
    pub environment: PushEnvironment,
    /// The provider behind a webhook; empty for every other service.
    pub provider: String,
    /// The operator's name for the credential.
    pub name: String,
    /// The parts that may be shown again, without secrets.
    pub shown: JsonText,
    /// Encrypted and authenticated by the caller.
    pub sealed: Vec<u8>,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct NewCredential {
    pub app: AppId,
    pub service: PushService,
    pub environment: PushEnvironment,
    pub provider: String,
    pub name: String,
    pub shown: JsonText,
    pub sealed: Vec<u8>,
    /// Replaces an existing credential, which keeps its id.
    pub replace: bool,
}

/// A new secret for an existing credential.
#[derive(Debug, Clone)]
pub struct RotatedCredential {
    pub app: AppId,
    pub id: CredentialId,
    /// What is sealed now.
    pub before: Vec<u8>,
    pub name: String,
    pub shown: JsonText,
    pub sealed: Vec<u8>,
}

/// Credentials are few and change rarely, so callers cache all of them in memory.
#[async_trait::async_trait]
pub trait Credentials: Send + Sync {
    /// All credentials of all apps, by id.
    async fn credentials(&self) -> Result<Vec<StoredCredential>, Error>;
    /// [`Error::Exists`] if there is one for the same app, service, environment and provider and `replace` is
    /// false;
    /// [`Error::NotFound`] if there is no such app.
    async fn put_credential(
        &self,
        credential: NewCredential,
        now: Timestamp,
    ) -> Result<StoredCredential, Error>;
    /// [`Error::Conflict`] if the credential was changed or removed since it was read.
    async fn rotate_credential(
        &self,
        credential: RotatedCredential,
        now: Timestamp,
    ) -> Result<StoredCredential, Error>;
    /// [`Error::NotFound`] if the app has no such credential. Push work stays queued.
    async fn delete_credential(&self, app: AppId, id: CredentialId) -> Result<(), Error>;
}
