//! Apps, API keys and shared secrets.

use noroshi_types::{AppId, AppName, KeyId, Label, Scopes, Timestamp, limits};

use super::purge;
use super::record::{Record, array, invalid};
use super::session::{self, Session, values};
use super::topic::draw_epoch;
use crate::{App, AppSettings, Before, Error, Key, KeyHash, NewKey};

const COLUMNS: &str = "id, name, created_at, jwt_secret, jwks_url, jwks, client_publish,
    issuer, audience, topic_rules, quotas, essential_categories";

fn app_of(row: &dyn Record) -> Result<App, Error> {
    // Filters have no control characters: one per line.
    let client_publish =
        row.text_or_null(6)?.map_or_else(Vec::new, |text| text.lines().map(str::to_owned).collect());
    let essential_categories = row
        .text_or_null(11)?
        .unwrap_or_default()
        .lines()
        .filter_map(|name| Label::parse(name).ok())
        .collect();
    Ok(App {
        id: row.app(0)?,
        name: AppName::parse(row.text(1)?).map_err(|error| invalid("app name", error))?,
        created_at: row.time(2)?,
        settings: AppSettings {
            jwt_secret: row.bytes_or_null(3)?.map(<[u8]>::to_vec),
            jwks_url: row.string_or_null(4)?,
            jwks: row.string_or_null(5)?,
            client_publish,
            issuer: row.string_or_null(7)?,
            audience: row.string_or_null(8)?,
            topic_rules: row.string_or_null(9)?,
            quotas: row.string_or_null(10)?,
            essential_categories,
        },
    })
}

fn client_publish_text(settings: &AppSettings) -> Option<String> {
    (!settings.client_publish.is_empty()).then(|| settings.client_publish.join("\n"))
}

fn essential_text(settings: &AppSettings) -> Option<String> {
    let names: Vec<&str> = settings.essential_categories.iter().map(Label::as_str).collect();
    (!names.is_empty()).then(|| names.join("\n"))
}

pub(crate) async fn apps<S: Session>(session: &S) -> Result<Vec<App>, S::Error> {
    session.query(&format!("SELECT {COLUMNS} FROM apps ORDER BY id"), &[], app_of).await
}

/// Also creates the app's topic `$everyone`.
pub(crate) async fn create<S: Session>(
    session: &S,
    name: &AppName,
    settings: &AppSettings,
    now: Timestamp,
) -> Result<App, S::Error> {
    let sql = "INSERT INTO apps (name, created_at, jwt_secret, jwks_url, jwks, client_publish,
                   issuer, audience, topic_rules, quotas, essential_categories)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (name) DO NOTHING RETURNING id";
    let (client_publish, essential) = (client_publish_text(settings), essential_text(settings));
    let values = values![
        name.as_str(),
        now,
        settings.jwt_secret.as_ref(),
        settings.jwks_url.as_ref(),
        settings.jwks.as_ref(),
        client_publish.as_ref(),
        settings.issuer.as_ref(),
        settings.audience.as_ref(),
        settings.topic_rules.as_ref(),
        settings.quotas.as_ref(),
        essential.as_ref(),
    ];
    let id = session::first(session, sql, &values, |row| row.int(0)).await?.ok_or(Error::Exists)?;
    let id = u32::try_from(id).map_err(|_| Error::Engine("app numbers are exhausted".to_owned()))?;
    let sql = "INSERT INTO topics (app, name, epoch) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    session.execute(sql, &values![id, limits::EVERYONE_TOPIC, draw_epoch()]).await?;
    Ok(App { id: AppId(id), name: name.clone(), created_at: now, settings: settings.clone() })
}

pub(crate) async fn update<S: Session>(
    session: &S,
    app: AppId,
    settings: &AppSettings,
) -> Result<App, S::Error> {
    let sql = format!(
        "UPDATE apps SET jwt_secret = $2, jwks_url = $3, jwks = $4, client_publish = $5, issuer = $6, audience = $7,
             essential_categories = $8
         WHERE id = $1 RETURNING {COLUMNS}"
    );
    let (client_publish, essential) = (client_publish_text(settings), essential_text(settings));
    let values = values![
        app,
        settings.jwt_secret.as_ref(),
        settings.jwks_url.as_ref(),
        settings.jwks.as_ref(),
        client_publish.as_ref(),
        settings.issuer.as_ref(),
        settings.audience.as_ref(),
        essential.as_ref(),
    ];
    Ok(session::first(session, &sql, &values, app_of).await?.ok_or(Error::NotFound)?)
}

pub(crate) async fn set_quotas<S: Session>(
    session: &S,
    app: AppId,
    before: &Before,
    quotas: Option<&String>,
) -> Result<App, S::Error> {
    session::require_app(session, app, S::FOR_NO_KEY_UPDATE).await?;
    let sql = "SELECT quotas FROM apps WHERE id = $1";
    let present = session::one(session, sql, &values![app], |row| row.string_or_null(0)).await?;
    if matches!(before, Before::This(before) if *before != present) {
        return Err(Error::Conflict.into());
    }
    set(session, app, "quotas", quotas).await
}

pub(crate) async fn set_topic_rules<S: Session>(
    session: &S,
    app: AppId,
    rules: Option<&String>,
) -> Result<App, S::Error> {
    set(session, app, "topic_rules", rules).await
}

async fn set<S: Session>(
    session: &S,
    app: AppId,
    column: &str,
    value: Option<&String>,
) -> Result<App, S::Error> {
    let sql = format!("UPDATE apps SET {column} = $2 WHERE id = $1 RETURNING {COLUMNS}");
    Ok(session::first(session, &sql, &values![app, value], app_of).await?.ok_or(Error::NotFound)?)
}

/// Removes the app's own row, and begins to remove what it owned.
pub(crate) async fn delete<S: Session>(session: &S, app: AppId) -> Result<(), S::Error> {
    session::change(session, "DELETE FROM apps WHERE id = $1", &values![app]).await?;
    purge::begin(session, app).await
}

pub(crate) async fn keys<S: Session>(session: &S) -> Result<Vec<Key>, S::Error> {
    let sql = "SELECT id, app, name, hash, scopes, created_at, expires_at FROM keys ORDER BY id";
    session.query(sql, &[], key_of).await
}

fn key_of(row: &dyn Record) -> Result<Key, Error> {
    Ok(Key {
        id: KeyId(row.count(0)?),
        app: row.app(1)?,
        name: row.string(2)?,
        hash: KeyHash(array(row, 3)?),
        scopes: Scopes::from_bits(row.code(4)?),
        created_at: row.time(5)?,
        expires_at: row.time_or_null(6)?,
    })
}

pub(crate) async fn create_key<S: Session>(
    session: &S,
    key: &NewKey,
    now: Timestamp,
) -> Result<Key, S::Error> {
    let NewKey { app, ref name, hash, scopes, expires_at } = *key;
    session::require_app(session, app, S::FOR_KEY_SHARE).await?;
    let sql =
        "INSERT INTO keys (app, name, hash, scopes, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6)
               ON CONFLICT (hash) DO NOTHING RETURNING id";
    let values = values![app, name, &hash.0, scopes.bits(), now, expires_at];
    let id = session::first(session, sql, &values, |row| row.count(0)).await?.ok_or(Error::Exists)?;
    Ok(Key { id: KeyId(id), app, name: name.clone(), hash, scopes, created_at: now, expires_at })
}

pub(crate) async fn revoke_key<S: Session>(session: &S, app: AppId, key: KeyId) -> Result<(), S::Error> {
    session::change(session, "DELETE FROM keys WHERE app = $1 AND id = $2", &values![app, key.0]).await
}

/// The first of several concurrent callers sets the secret; the others wait for its commit and read it.
pub(crate) async fn secret<S: Session>(session: &S, name: &str, fresh: &[u8]) -> Result<Vec<u8>, S::Error> {
    let sql = "SELECT value FROM secrets WHERE name = $1";
    let value = |row: &dyn Record| Ok(row.bytes(0)?.to_vec());
    if let Some(known) = session::first(session, sql, &values![name], value).await? {
        return Ok(known);
    }
    let insert = "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    session.execute(insert, &values![name, fresh]).await?;
    session::one(session, sql, &values![name], value).await
}

/// Written and read back by [`crate::Maintenance::check`].
pub(crate) async fn write_check<S: Session>(session: &S, value: &[u8]) -> Result<(), S::Error> {
    let sql = "INSERT INTO secrets (name, value) VALUES ('$check', $1)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    session.execute(sql, &values![value]).await?;
    Ok(())
}

/// How many bytes were written last.
pub(crate) async fn read_check<S: Session>(session: &S) -> Result<usize, S::Error> {
    let sql = "SELECT value FROM secrets WHERE name = '$check'";
    session::one(session, sql, &[], |row| Ok(row.bytes(0)?.len())).await
}
