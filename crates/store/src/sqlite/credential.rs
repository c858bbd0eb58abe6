//! [`Credentials`] for SQLite.

use noroshi_types::{AppId, CredentialId, Timestamp};

use super::Sqlite;
use super::statement::ready;
use crate::engine::credential;
use crate::{Credentials, Error, NewCredential, StoredCredential};

#[async_trait::async_trait]
impl Credentials for Sqlite {
    async fn credentials(&self) -> Result<Vec<StoredCredential>, Error> {
        self.read(|db| ready(credential::all(db))).await
    }

    async fn put_credential(
        &self,
        credential: NewCredential,
        now: Timestamp,
    ) -> Result<StoredCredential, Error> {
        self.write(1, move |w| ready(credential::put(w.db, &credential, now))).await
    }

    async fn delete_credential(&self, app: AppId, id: CredentialId) -> Result<(), Error> {
        self.write(1, move |w| ready(credential::delete(w.db, app, id))).await
    }
}
