//! Apps, keys and shared secrets.

use std::time::Instant;

use noroshi_types::{AppId, AppName, KeyId, Scopes, Timestamp, Topic};
use tokio_postgres::Row;

use super::Postgres;
use super::topic;
use super::transaction::{Failed, Tx, Values};
use crate::{App, AppSettings, Apps, Before, Error, Key, KeyHash, NewKey, purge};

#[async_trait::async_trait]
impl Apps for Postgres {
    async fn apps(&self) -> Result<Vec<App>, Error> {
        self.read(async |tx: Tx| {
            let rows = tx.query(&format!("SELECT {APP_COLUMNS} FROM apps ORDER BY id"), &[]).await?;
            rows.iter().map(app_of).collect()
        })
        .await
    }

    async fn create_app(&self, name: AppName, settings: AppSettings, now: Timestamp) -> Result<App, Error> {
        self.write(move |tx| create(tx, name.clone(), settings.clone(), now)).await
    }

    async fn update_app(&self, app: AppId, settings: AppSettings) -> Result<App, Error> {
        self.write(move |tx| update(tx, app, settings.clone())).await
    }

    async fn set_quotas(&self, app: AppId, before: Before, quotas: Option<String>) -> Result<App, Error> {
        self.write(move |tx| set_quotas(tx, app, before.clone(), quotas.clone())).await
    }

    async fn set_topic_rules(&self, app: AppId, rules: Option<String>) -> Result<App, Error> {
        self.write(move |tx| set_topic_rules(tx, app, rules.clone())).await
    }

    async fn delete_app(&self, app: AppId) -> Result<(), Error> {
        self.write(move |tx| delete(tx, app)).await?;
        let began = Instant::now();
        // What is left is the clean-up's.
        while began.elapsed() < purge::PATIENCE
            && self.write(move |tx| super::purge::page(tx, app, purge::ROWS)).await.unwrap_or(false)
        {}
        Ok(())
    }

    async fn keys(&self) -> Result<Vec<Key>, Error> {
        self.read(async |tx: Tx| {
            let sql = "SELECT id, app, name, hash, scopes, created_at FROM keys ORDER BY id";
            tx.query(sql, &[]).await?.iter().map(key_of).collect()
        })
        .await
    }

    async fn create_key(&self, key: NewKey, now: Timestamp) -> Result<Key, Error> {
        self.write(move |tx| create_key(tx, key.clone(), now)).await
    }

    async fn revoke_key(&self, app: AppId, key: KeyId) -> Result<(), Error> {
        self.write(move |tx| async move {
            let sql = "DELETE FROM keys WHERE app = $1 AND id = $2";
            found(tx.execute(sql, &[&i64::from(app.0), &(key.0 as i64)]).await?)
        })
        .await
    }

    async fn secret(&self, name: &str, fresh: Vec<u8>) -> Result<Vec<u8>, Error> {
        let name = name.to_owned();
        self.write(move |tx| secret(tx, name.clone(), fresh.clone())).await
    }
}

fn found(changed: u64) -> Result<(), Failed> {
    if changed == 0 { Err(Error::NotFound.into()) } else { Ok(()) }
}

const APP_COLUMNS: &str = "id, name, created_at, jwt_secret, jwks_url, jwks, client_publish,
    issuer, audience, topic_rules, quotas";

fn app_of(row: &Row) -> Result<App, Failed> {
    let name = AppName::parse(row.get(1));
    Ok(App {
        id: AppId(row.get::<_, i64>(0) as u32),
        name: name.map_err(|error| Error::Engine(format!("a stored app name: {error}")))?,
        created_at: Timestamp(row.get::<_, i64>(2) as u64),
        settings: AppSettings {
            jwt_secret: row.get(3),
            jwks_url: row.get(4),
            jwks: row.get(5),
            client_publish: AppSettings::client_publish_of(row.get(6)),
            issuer: row.get(7),
            audience: row.get(8),
            topic_rules: row.get(9),
            quotas: row.get(10),
        },
    })
}

async fn create(tx: Tx, name: AppName, settings: AppSettings, now: Timestamp) -> Result<App, Failed> {
    let sql = "INSERT INTO apps (name, created_at, jwt_secret, jwks_url, jwks, client_publish,
                   issuer, audience, topic_rules, quotas)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (name) DO NOTHING RETURNING id";
    let (name_text, created_at, filters) = (name.as_str(), now.0 as i64, settings.client_publish_text());
    let values: Values<'_> = &[
        &name_text,
        &created_at,
        &settings.jwt_secret,
        &settings.jwks_url,
        &settings.jwks,
        &filters,
        &settings.issuer,
        &settings.audience,
        &settings.topic_rules,
        &settings.quotas,
    ];
    let id: i64 = tx.query_opt(sql, values).await?.ok_or(Error::Exists)?.get(0);
    let id = AppId(u32::try_from(id).map_err(|_| Error::Engine("app numbers ran out".to_owned()))?);
    topic::make(&tx, [(id, &Topic::everyone())]).await?;
    Ok(App { id, name, created_at: now, settings })
}

async fn update(tx: Tx, app: AppId, settings: AppSettings) -> Result<App, Failed> {
    let sql = format!(
        "UPDATE apps SET jwt_secret = $2, jwks_url = $3, jwks = $4, client_publish = $5,
             issuer = $6, audience = $7
         WHERE id = $1 RETURNING {APP_COLUMNS}"
    );
    let (id, filters) = (i64::from(app.0), settings.client_publish_text());
    let values: Values<'_> = &[
        &id,
        &settings.jwt_secret,
        &settings.jwks_url,
        &settings.jwks,
        &filters,
        &settings.issuer,
        &settings.audience,
    ];
    app_of(&tx.query_opt(&sql, values).await?.ok_or(Error::NotFound)?)
}

async fn set_quotas(tx: Tx, app: AppId, before: Before, quotas: Option<String>) -> Result<App, Failed> {
    let present =
        tx.query_opt("SELECT quotas FROM apps WHERE id = $1 FOR UPDATE", &[&i64::from(app.0)]).await?;
    let present: Option<String> = present.ok_or(Error::NotFound)?.get(0);
    if matches!(before, Before::This(before) if before != present) {
        return Err(Error::Conflict.into());
    }
    let sql = format!("UPDATE apps SET quotas = $2 WHERE id = $1 RETURNING {APP_COLUMNS}");
    app_of(&tx.query_opt(&sql, &[&i64::from(app.0), &quotas]).await?.ok_or(Error::NotFound)?)
}

async fn set_topic_rules(tx: Tx, app: AppId, rules: Option<String>) -> Result<App, Failed> {
    let sql = format!("UPDATE apps SET topic_rules = $2 WHERE id = $1 RETURNING {APP_COLUMNS}");
    app_of(&tx.query_opt(&sql, &[&i64::from(app.0), &rules]).await?.ok_or(Error::NotFound)?)
}

async fn delete(tx: Tx, app: AppId) -> Result<(), Failed> {
    let app = i64::from(app.0);
    found(tx.execute("DELETE FROM apps WHERE id = $1", &[&app]).await?)?;
    super::purge::begin(&tx, app).await
}

fn key_of(row: &Row) -> Result<Key, Failed> {
    let hash = <[u8; 32]>::try_from(row.get::<_, &[u8]>(3));
    Ok(Key {
        id: KeyId(row.get::<_, i64>(0) as u64),
        app: AppId(row.get::<_, i64>(1) as u32),
        name: row.get(2),
        hash: KeyHash(hash.map_err(|_| Error::Engine("a stored hash is of another length".to_owned()))?),
        scopes: Scopes::from_bits(row.get::<_, i64>(4) as u8),
        created_at: Timestamp(row.get::<_, i64>(5) as u64),
    })
}

async fn create_key(tx: Tx, key: NewKey, now: Timestamp) -> Result<Key, Failed> {
    let NewKey { app, name, hash, scopes } = key;
    // Against the removal of the app.
    let sql = "SELECT 1 FROM apps WHERE id = $1 FOR KEY SHARE";
    tx.query_opt(sql, &[&i64::from(app.0)]).await?.ok_or(Error::NotFound)?;
    let sql = "INSERT INTO keys (app, name, hash, scopes, created_at) VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (hash) DO NOTHING RETURNING id";
    let values: Values<'_> =
        &[&i64::from(app.0), &name, &hash.0.as_slice(), &i64::from(scopes.bits()), &(now.0 as i64)];
    let id: i64 = tx.query_opt(sql, values).await?.ok_or(Error::Exists)?.get(0);
    Ok(Key { id: KeyId(id as u64), app, name, hash, scopes, created_at: now })
}

/// Whoever comes first decides; the others wait for that and then see it.
async fn secret(tx: Tx, name: String, fresh: Vec<u8>) -> Result<Vec<u8>, Failed> {
    let sql = "SELECT value FROM secrets WHERE name = $1";
    if let Some(row) = tx.query_opt(sql, &[&name]).await? {
        return Ok(row.get(0));
    }
    let insert = "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    tx.execute(insert, &[&name, &fresh]).await?;
    Ok(tx.query_one(sql, &[&name]).await?.get(0))
}
