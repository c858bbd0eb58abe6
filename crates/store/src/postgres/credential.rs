//! Credentials of push services. What is secret in them comes sealed and goes out sealed.

use noroshi_types::{AppId, CredentialId, JsonText, PushEnvironment, PushService, Timestamp};
use tokio_postgres::Row;

use super::Postgres;
use super::transaction::{Failed, Tx, Values};
use crate::{Credentials, Error, NewCredential, StoredCredential};

#[async_trait::async_trait]
impl Credentials for Postgres {
    async fn credentials(&self) -> Result<Vec<StoredCredential>, Error> {
        self.read(async |tx: Tx| {
            let sql = format!("SELECT {COLUMNS} FROM push_credentials ORDER BY id");
            tx.query(&sql, &[]).await?.iter().map(credential_of).collect()
        })
        .await
    }

    async fn put_credential(
        &self,
        credential: NewCredential,
        now: Timestamp,
    ) -> Result<StoredCredential, Error> {
        self.write(move |tx| put(tx, credential.clone(), now)).await
    }

    async fn delete_credential(&self, app: AppId, id: CredentialId) -> Result<(), Error> {
        self.write(move |tx| async move {
            let sql = "DELETE FROM push_credentials WHERE id = $1 AND app = $2";
            match tx.execute(sql, &[&(id.0 as i64), &i64::from(app.0)]).await? {
                0 => Err(Error::NotFound.into()),
                _ => Ok(()),
            }
        })
        .await
    }
}

const COLUMNS: &str = "id, app, service, environment, name, shown, sealed, created_at";

fn credential_of(row: &Row) -> Result<StoredCredential, Failed> {
    let unknown = |what: &str| Error::Engine(format!("a stored {what} is not known to this program"));
    let service = PushService::from_code(row.get::<_, i64>(2) as u8);
    let environment = PushEnvironment::from_code(row.get::<_, i64>(3) as u8);
    Ok(StoredCredential {
        id: CredentialId(row.get::<_, i64>(0) as u64),
        app: AppId(row.get::<_, i64>(1) as u32),
        service: service.ok_or_else(|| unknown("push service"))?,
        environment: environment.ok_or_else(|| unknown("push environment"))?,
        name: row.get(4),
        shown: JsonText::from_valid(row.get::<_, String>(5)),
        sealed: row.get(6),
        created_at: Timestamp(row.get::<_, i64>(7) as u64),
    })
}

async fn put(tx: Tx, new: NewCredential, now: Timestamp) -> Result<StoredCredential, Failed> {
    let app = i64::from(new.app.0);
    // Against the removal of the app.
    let sql = "SELECT 1 FROM apps WHERE id = $1 FOR KEY SHARE";
    tx.query_opt(sql, &[&app]).await?.ok_or(Error::NotFound)?;
    let conflict = match new.replace {
        true => {
            "DO UPDATE SET name = excluded.name, shown = excluded.shown, sealed = excluded.sealed,
                           created_at = excluded.created_at"
        }
        false => "DO NOTHING",
    };
    let sql = format!(
        "INSERT INTO push_credentials (app, service, environment, name, shown, sealed, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (app, service, environment) {conflict}
         RETURNING {COLUMNS}"
    );
    let values: Values<'_> = &[
        &app,
        &(new.service as i64),
        &(new.environment as i64),
        &new.name,
        &new.shown.as_str(),
        &new.sealed,
        &(now.0 as i64),
    ];
    credential_of(&tx.query_opt(&sql, values).await?.ok_or(Error::Exists)?)
}
