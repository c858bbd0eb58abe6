//! [`Apps`] for SQLite.

use std::time::Instant;

use noroshi_types::{AppId, AppName, KeyId, Timestamp, Topic};

use super::statement::ready;
use super::{Sqlite, topic};
use crate::engine::{app, purge};
use crate::{App, AppSettings, Apps, Before, Error, Key, NewKey};

#[async_trait::async_trait]
impl Apps for Sqlite {
    async fn apps(&self) -> Result<Vec<App>, Error> {
        self.read(|db| ready(app::apps(db))).await
    }

    async fn create_app(&self, name: AppName, settings: AppSettings, now: Timestamp) -> Result<App, Error> {
        self.write(1, move |w| {
            let app = ready(app::create(w.db, name, settings, now))?;
            topic::find_or_create(w.db, app.id, &Topic::everyone())?;
            Ok(app)
        })
        .await
    }

    async fn update_app(&self, app: AppId, settings: AppSettings) -> Result<App, Error> {
        self.write(1, move |w| ready(app::update(w.db, app, &settings))).await
    }

    async fn set_quotas(&self, app: AppId, before: Before, quotas: Option<String>) -> Result<App, Error> {
        self.write(1, move |w| ready(app::set_quotas(w.db, app, &before, quotas.as_ref()))).await
    }

    async fn set_topic_rules(&self, app: AppId, rules: Option<String>) -> Result<App, Error> {
        self.write(1, move |w| ready(app::set_topic_rules(w.db, app, rules.as_ref()))).await
    }

    async fn delete_app(&self, app: AppId) -> Result<(), Error> {
        self.write(1, move |w| {
            ready(app::delete(w.db, app))?;
            ready(purge::begin(w.db, app))
        })
        .await?;
        let started = Instant::now();
        let rows = purge::ROWS as usize;
        while started.elapsed() < purge::INLINE_LIMIT
            && self.write(rows, move |w| ready(purge::page(w.db, app, purge::ROWS))).await.unwrap_or(false)
        {
        }
        Ok(())
    }

    async fn keys(&self) -> Result<Vec<Key>, Error> {
        self.read(|db| ready(app::keys(db))).await
    }

    async fn create_key(&self, key: NewKey, now: Timestamp) -> Result<Key, Error> {
        self.write(1, move |w| ready(app::create_key(w.db, key, now))).await
    }

    async fn revoke_key(&self, app: AppId, key: KeyId) -> Result<(), Error> {
        self.write(1, move |w| ready(app::revoke_key(w.db, app, key))).await
    }

    async fn secret(&self, name: &str, fresh: Vec<u8>) -> Result<Vec<u8>, Error> {
        let name = name.to_owned();
        self.write(1, move |w| ready(app::secret(w.db, &name, &fresh))).await
    }
}
