//! Apps, keys and shared secrets.

use std::time::Instant;

use noroshi_types::{AppId, AppName, KeyId, Scopes, Timestamp, Topic};
use rusqlite::{Connection, OptionalExtension, Row};

use super::Sqlite;
use super::topic;
use super::writer::Write;
use crate::{App, AppSettings, Apps, Before, Error, Key, KeyHash, NewKey, purge};

#[async_trait::async_trait]
impl Apps for Sqlite {
    async fn apps(&self) -> Result<Vec<App>, Error> {
        self.read(apps).await
    }

    async fn create_app(&self, name: AppName, settings: AppSettings, now: Timestamp) -> Result<App, Error> {
        self.write(1, move |w| create(w, name, settings, now)).await
    }

    async fn update_app(&self, app: AppId, settings: AppSettings) -> Result<App, Error> {
        self.write(1, move |w| update(w.db, app, &settings)).await
    }

    async fn set_quotas(&self, app: AppId, before: Before, quotas: Option<String>) -> Result<App, Error> {
        self.write(1, move |w| set_quotas(w.db, app, &before, quotas.as_deref())).await
    }

    async fn set_topic_rules(&self, app: AppId, rules: Option<String>) -> Result<App, Error> {
        self.write(1, move |w| set_topic_rules(w.db, app, rules.as_deref())).await
    }

    async fn delete_app(&self, app: AppId) -> Result<(), Error> {
        self.write(1, move |w| delete(w.db, app)).await?;
        let began = Instant::now();
        // What is left is the clean-up's.
        while began.elapsed() < purge::PATIENCE
            && self
                .write(purge::ROWS as usize, move |w| super::purge::page(w.db, app, purge::ROWS))
                .await
                .unwrap_or(false)
        {}
        Ok(())
    }

    async fn keys(&self) -> Result<Vec<Key>, Error> {
        self.read(keys).await
    }

    async fn create_key(&self, key: NewKey, now: Timestamp) -> Result<Key, Error> {
        self.write(1, move |w| create_key(w.db, key, now)).await
    }

    async fn revoke_key(&self, app: AppId, key: KeyId) -> Result<(), Error> {
        self.write(1, move |w| {
            let revoked =
                w.db.execute("DELETE FROM keys WHERE app = ?1 AND id = ?2", (app.0, key.0 as i64))?;
            found(revoked)
        })
        .await
    }

    async fn secret(&self, name: &str, fresh: Vec<u8>) -> Result<Vec<u8>, Error> {
        let name = name.to_owned();
        self.write(1, move |w| {
            w.db.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES (?1, ?2)", (&name, fresh))?;
            Ok(w.db.query_row("SELECT value FROM secrets WHERE name = ?1", (&name,), |row| row.get(0))?)
        })
        .await
    }
}

fn found(changed: usize) -> Result<(), Error> {
    if changed == 0 { Err(Error::NotFound) } else { Ok(()) }
}

const APP_COLUMNS: &str = "id, name, created_at, jwt_secret, jwks_url, jwks, client_publish,
    issuer, audience, topic_rules, quotas";

fn apps(db: &Connection) -> Result<Vec<App>, Error> {
    let mut statement = db.prepare_cached(&format!("SELECT {APP_COLUMNS} FROM apps ORDER BY id"))?;
    let rows = statement.query_map((), |row| Ok(app_of(row)))?;
    rows.map(|row| row?).collect()
}

fn app_of(row: &Row<'_>) -> Result<App, Error> {
    let name: String = row.get(1)?;
    Ok(App {
        id: AppId(row.get(0)?),
        name: AppName::parse(&name).map_err(|error| Error::Engine(format!("a stored app name: {error}")))?,
        created_at: Timestamp(row.get::<_, i64>(2)? as u64),
        settings: AppSettings {
            jwt_secret: row.get(3)?,
            jwks_url: row.get(4)?,
            jwks: row.get(5)?,
            client_publish: AppSettings::client_publish_of(row.get(6)?),
            issuer: row.get(7)?,
            audience: row.get(8)?,
            topic_rules: row.get(9)?,
            quotas: row.get(10)?,
        },
    })
}

fn create(w: &Write<'_>, name: AppName, settings: AppSettings, now: Timestamp) -> Result<App, Error> {
    let created = w.db.execute(
        "INSERT INTO apps (name, created_at, jwt_secret, jwks_url, jwks, client_publish,
             issuer, audience, topic_rules, quotas)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (name) DO NOTHING",
        (
            name.as_str(),
            now.0 as i64,
            &settings.jwt_secret,
            &settings.jwks_url,
            &settings.jwks,
            settings.client_publish_text(),
            &settings.issuer,
            &settings.audience,
            &settings.topic_rules,
            &settings.quotas,
        ),
    )?;
    if created == 0 {
        return Err(Error::Exists);
    }
    let id = u32::try_from(w.db.last_insert_rowid())
        .map_err(|_| Error::Engine("app numbers ran out".to_owned()))?;
    topic::find_or_make(w.db, AppId(id), &Topic::everyone())?;
    Ok(App { id: AppId(id), name, created_at: now, settings })
}

fn update(db: &Connection, app: AppId, settings: &AppSettings) -> Result<App, Error> {
    let updated = db.execute(
        "UPDATE apps SET jwt_secret = ?2, jwks_url = ?3, jwks = ?4, client_publish = ?5,
             issuer = ?6, audience = ?7
         WHERE id = ?1",
        (
            app.0,
            &settings.jwt_secret,
            &settings.jwks_url,
            &settings.jwks,
            settings.client_publish_text(),
            &settings.issuer,
            &settings.audience,
        ),
    )?;
    found(updated)?;
    app_numbered(db, app)
}

fn set_quotas(db: &Connection, app: AppId, before: &Before, quotas: Option<&str>) -> Result<App, Error> {
    let sql = "SELECT quotas FROM apps WHERE id = ?1";
    let present: Option<Option<String>> = db.query_row(sql, (app.0,), |row| row.get(0)).optional()?;
    let present = present.ok_or(Error::NotFound)?;
    if matches!(before, Before::This(before) if *before != present) {
        return Err(Error::Conflict);
    }
    found(db.execute("UPDATE apps SET quotas = ?2 WHERE id = ?1", (app.0, quotas))?)?;
    app_numbered(db, app)
}

fn set_topic_rules(db: &Connection, app: AppId, rules: Option<&str>) -> Result<App, Error> {
    found(db.execute("UPDATE apps SET topic_rules = ?2 WHERE id = ?1", (app.0, rules))?)?;
    app_numbered(db, app)
}

fn app_numbered(db: &Connection, app: AppId) -> Result<App, Error> {
    db.query_row(&format!("SELECT {APP_COLUMNS} FROM apps WHERE id = ?1"), (app.0,), |row| Ok(app_of(row)))?
}

fn delete(db: &Connection, app: AppId) -> Result<(), Error> {
    found(db.execute("DELETE FROM apps WHERE id = ?1", (app.0,))?)?;
    super::purge::begin(db, app)
}

const KEY_COLUMNS: &str = "id, app, name, hash, scopes, created_at";

fn keys(db: &Connection) -> Result<Vec<Key>, Error> {
    let mut statement = db.prepare_cached(&format!("SELECT {KEY_COLUMNS} FROM keys ORDER BY id"))?;
    let rows = statement.query_map((), |row| {
        Ok(Key {
            id: KeyId(row.get::<_, i64>(0)? as u64),
            app: AppId(row.get(1)?),
            name: row.get(2)?,
            hash: KeyHash(row.get(3)?),
            scopes: Scopes::from_bits(row.get(4)?),
            created_at: Timestamp(row.get::<_, i64>(5)? as u64),
        })
    })?;
    rows.map(|row| Ok(row?)).collect()
}

fn create_key(db: &Connection, key: NewKey, now: Timestamp) -> Result<Key, Error> {
    let app = db.query_row("SELECT 1 FROM apps WHERE id = ?1", (key.app.0,), |_| Ok(())).optional()?;
    app.ok_or(Error::NotFound)?;
    let created = db.execute(
        "INSERT INTO keys (app, name, hash, scopes, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (hash) DO NOTHING",
        (key.app.0, &key.name, key.hash.0, key.scopes.bits(), now.0 as i64),
    )?;
    if created == 0 {
        return Err(Error::Exists);
    }
    let NewKey { app, name, hash, scopes } = key;
    Ok(Key { id: KeyId(db.last_insert_rowid() as u64), app, name, hash, scopes, created_at: now })
}
