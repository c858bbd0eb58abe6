//! Credentials of push services: one for each app, service and environment. The secret is sealed by the
//! caller before it comes here, so a copy of the database opens nothing.

use noroshi_types::{AppId, CredentialId, JsonText, PushEnvironment, PushService, Timestamp};

use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCredential {
    pub id: CredentialId,
    pub app: AppId,
    pub service: PushService,
    pub environment: PushEnvironment,
    /// What the operator calls it.
    pub name: String,
    /// What may be shown again: never a secret.
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
    pub name: String,
    pub shown: JsonText,
    pub sealed: Vec<u8>,
    /// Takes the place of the one there is, which keeps its id.
    pub replace: bool,
}

/// Credentials are few and change rarely: callers hold all of them in memory.
#[async_trait::async_trait]
pub trait Credentials: Send + Sync {
    /// All credentials of all apps, by id.
    async fn credentials(&self) -> Result<Vec<StoredCredential>, Error>;
    /// [`Error::Exists`] if there is one for the same app, service and environment and it is not to be
    /// replaced; [`Error::NotFound`] if there is no such app.
    async fn put_credential(
        &self,
        credential: NewCredential,
        now: Timestamp,
    ) -> Result<StoredCredential, Error>;
    /// [`Error::NotFound`] if the app has no such credential. Push work stays queued.
    async fn delete_credential(&self, app: AppId, id: CredentialId) -> Result<(), Error>;
}
