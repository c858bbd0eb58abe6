//! Credentials of push services. What is secret in them comes sealed and goes out sealed.

use noroshi_types::{AppId, CredentialId, JsonText, PushEnvironment, PushService, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use super::Sqlite;
use crate::{Credentials, Error, NewCredential, StoredCredential};

#[async_trait::async_trait]
impl Credentials for Sqlite {
    async fn credentials(&self) -> Result<Vec<StoredCredential>, Error> {
        self.read(all).await
    }

    async fn put_credential(
        &self,
        credential: NewCredential,
        now: Timestamp,
    ) -> Result<StoredCredential, Error> {
        self.write(1, move |w| put(w.db, &credential, now)).await
    }

    async fn delete_credential(&self, app: AppId, id: CredentialId) -> Result<(), Error> {
        self.write(1, move |w| {
            let sql = "DELETE FROM push_credentials WHERE id = ?1 AND app = ?2";
            match w.db.execute(sql, (id.0 as i64, app.0))? {
                0 => Err(Error::NotFound),
                _ => Ok(()),
            }
        })
        .await
    }
}

const COLUMNS: &str = "id, app, service, environment, name, shown, sealed, created_at";

fn all(db: &Connection) -> Result<Vec<StoredCredential>, Error> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM push_credentials ORDER BY id"))?;
    let rows = statement.query_map((), |row| Ok(credential_of(row)))?;
    rows.map(|row| row?).collect()
}

fn credential_of(row: &Row<'_>) -> Result<StoredCredential, Error> {
    let unknown = |what: &str| Error::Engine(format!("a stored {what} is not known to this program"));
    Ok(StoredCredential {
        id: CredentialId(row.get::<_, i64>(0)? as u64),
        app: AppId(row.get(1)?),
        service: PushService::from_code(row.get(2)?).ok_or_else(|| unknown("push service"))?,
        environment: PushEnvironment::from_code(row.get(3)?).ok_or_else(|| unknown("push environment"))?,
        name: row.get(4)?,
        shown: JsonText::from_valid(row.get::<_, String>(5)?),
        sealed: row.get(6)?,
        created_at: Timestamp(row.get::<_, i64>(7)? as u64),
    })
}

fn put(db: &Connection, new: &NewCredential, now: Timestamp) -> Result<StoredCredential, Error> {
    let app = db.query_row("SELECT 1 FROM apps WHERE id = ?1", (new.app.0,), |_| Ok(())).optional()?;
    app.ok_or(Error::NotFound)?;
    let conflict = match new.replace {
        true => {
            "DO UPDATE SET name = excluded.name, shown = excluded.shown, sealed = excluded.sealed,
                           created_at = excluded.created_at"
        }
        false => "DO NOTHING",
    };
    let sql = format!(
        "INSERT INTO push_credentials (app, service, environment, name, shown, sealed, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (app, service, environment) {conflict}
         RETURNING {COLUMNS}"
    );
    let values = (
        new.app.0,
        new.service as u8,
        new.environment as u8,
        &new.name,
        new.shown.as_str(),
        &new.sealed,
        now.0 as i64,
    );
    let put = db.query_row(&sql, values, |row| Ok(credential_of(row))).optional()?;
    put.unwrap_or(Err(Error::Exists))
}
