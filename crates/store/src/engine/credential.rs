//! Credentials of push services. The caller seals their secrets; the store never sees them in the clear.

use noroshi_types::{AppId, CredentialId, JsonText, PushEnvironment, PushService, Timestamp};

use super::record::{Record, unknown};
use super::session::{self, Session, values};
use crate::{Error, NewCredential, RotatedCredential, StoredCredential};

const COLUMNS: &str = "id, app, service, environment, provider, name, shown, sealed, created_at";

fn credential_of(row: &dyn Record) -> Result<StoredCredential, Error> {
    Ok(StoredCredential {
        id: CredentialId(row.count(0)?),
        app: row.app(1)?,
        service: PushService::from_code(row.code(2)?).ok_or_else(|| unknown("push service"))?,
        environment: PushEnvironment::from_code(row.code(3)?).ok_or_else(|| unknown("push environment"))?,
        provider: row.string(4)?,
        name: row.string(5)?,
        shown: JsonText::from_valid(row.string(6)?),
        sealed: row.bytes(7)?.to_vec(),
        created_at: row.time(8)?,
    })
}

pub(crate) async fn all<S: Session>(session: &S) -> Result<Vec<StoredCredential>, S::Error> {
    session.query(&format!("SELECT {COLUMNS} FROM push_credentials ORDER BY id"), &[], credential_of).await
}

pub(crate) async fn put<S: Session>(
    session: &S,
    new: &NewCredential,
    now: Timestamp,
) -> Result<StoredCredential, S::Error> {
    session::require_app(session, new.app, S::FOR_KEY_SHARE).await?;
    let conflict = match new.replace {
        true => {
            "DO UPDATE SET name = excluded.name, shown = excluded.shown, sealed = excluded.sealed,
                           created_at = excluded.created_at"
        }
        false => "DO NOTHING",
    };
    let sql = format!(
        "INSERT INTO push_credentials (app, service, environment, provider, name, shown, sealed, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (app, service, environment, provider) {conflict}
         RETURNING {COLUMNS}"
    );
    let (service, environment) = (new.service as u8, new.environment as u8);
    let provider = new.provider.as_str();
    let values =
        values![new.app, service, environment, provider, &new.name, new.shown.as_str(), &new.sealed, now];
    Ok(session::first(session, &sql, &values, credential_of).await?.ok_or(Error::Exists)?)
}

pub(crate) async fn rotate<S: Session>(
    session: &S,
    new: &RotatedCredential,
    now: Timestamp,
) -> Result<StoredCredential, S::Error> {
    let sql = format!(
        "UPDATE push_credentials SET name = $4, shown = $5, sealed = $6, created_at = $7
         WHERE id = $1 AND app = $2 AND sealed = $3 RETURNING {COLUMNS}"
    );
    let values = values![new.id.0, new.app, &new.before, &new.name, new.shown.as_str(), &new.sealed, now];
    Ok(session::first(session, &sql, &values, credential_of).await?.ok_or(Error::Conflict)?)
}

pub(crate) async fn delete<S: Session>(session: &S, app: AppId, id: CredentialId) -> Result<(), S::Error> {
    session::change(session, "DELETE FROM push_credentials WHERE id = $1 AND app = $2", &values![id.0, app])
        .await
}
