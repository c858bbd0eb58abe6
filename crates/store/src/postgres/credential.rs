//! [`Credentials`] for PostgreSQL.

use noroshi_types::{AppId, CredentialId, Timestamp};

use super::Postgres;
use super::transaction::Tx;
use crate::engine::credential;
use crate::{Credentials, Error, NewCredential, StoredCredential};

#[async_trait::async_trait]
impl Credentials for Postgres {
    async fn credentials(&self) -> Result<Vec<StoredCredential>, Error> {
        self.read(async |tx: Tx| credential::all(&tx).await).await
    }

    async fn put_credential(
        &self,
        credential: NewCredential,
        now: Timestamp,
    ) -> Result<StoredCredential, Error> {
        self.write_with(credential, move |tx, new| async move { credential::put(&tx, &new, now).await }).await
    }

    async fn delete_credential(&self, app: AppId, id: CredentialId) -> Result<(), Error> {
        self.write(move |tx| async move { credential::delete(&tx, app, id).await }).await
    }
}
