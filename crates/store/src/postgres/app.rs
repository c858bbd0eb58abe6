//! [`Apps`] for PostgreSQL.

use std::time::Instant;

use noroshi_types::{AppId, AppName, KeyId, Timestamp, Topic};

use super::transaction::Tx;
use super::{Postgres, topic};
use crate::engine::{app, purge};
use crate::{App, AppSettings, Apps, Before, Error, Key, NewKey};

#[async_trait::async_trait]
impl Apps for Postgres {
    async fn apps(&self) -> Result<Vec<App>, Error> {
        self.read(async |tx: Tx| app::apps(&tx).await).await
    }

    async fn create_app(&self, name: AppName, settings: AppSettings, now: Timestamp) -> Result<App, Error> {
        let create = move |tx: Tx, (name, settings)| async move {
            let app = app::create(&tx, name, settings, now).await?;
            topic::create(&tx, [(app.id, &Topic::everyone())]).await?;
            Ok(app)
        };
        self.write_with((name, settings), create).await
    }

    async fn update_app(&self, app: AppId, settings: AppSettings) -> Result<App, Error> {
        let update = move |tx, settings| async move { app::update(&tx, app, &settings).await };
        self.write_with(settings, update).await
    }

    async fn set_quotas(&self, app: AppId, before: Before, quotas: Option<String>) -> Result<App, Error> {
        let set = move |tx, (before, quotas): (Before, Option<String>)| async move {
            app::set_quotas(&tx, app, &before, quotas.as_ref()).await
        };
        self.write_with((before, quotas), set).await
    }

    async fn set_topic_rules(&self, app: AppId, rules: Option<String>) -> Result<App, Error> {
        let set = move |tx, rules: Option<String>| async move {
            app::set_topic_rules(&tx, app, rules.as_ref()).await
        };
        self.write_with(rules, set).await
    }

    async fn delete_app(&self, app: AppId) -> Result<(), Error> {
        self.write(move |tx| async move {
            app::delete(&tx, app).await?;
            purge::begin(&tx, app).await
        })
        .await?;
        let started = Instant::now();
        let page = move |tx| async move { purge::page(&tx, app, purge::ROWS).await };
        while started.elapsed() < purge::INLINE_LIMIT && self.write(page).await.unwrap_or(false) {}
        Ok(())
    }

    async fn keys(&self) -> Result<Vec<Key>, Error> {
        self.read(async |tx: Tx| app::keys(&tx).await).await
    }

    async fn create_key(&self, key: NewKey, now: Timestamp) -> Result<Key, Error> {
        self.write_with(key, move |tx, key| async move { app::create_key(&tx, key, now).await }).await
    }

    async fn revoke_key(&self, app: AppId, key: KeyId) -> Result<(), Error> {
        self.write(move |tx| async move { app::revoke_key(&tx, app, key).await }).await
    }

    async fn secret(&self, name: &str, fresh: Vec<u8>) -> Result<Vec<u8>, Error> {
        let secret = async |tx: Tx, (name, fresh): (String, Vec<u8>)| app::secret(&tx, &name, &fresh).await;
        self.write_with((name.to_owned(), fresh), secret).await
    }
}
