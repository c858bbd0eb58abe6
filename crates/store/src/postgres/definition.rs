//! [`Definitions`] for PostgreSQL.

use noroshi_types::{AppId, Label, Timestamp};

use super::Postgres;
use super::transaction::Tx;
use crate::engine::definition;
use crate::{Definition, DefinitionKind, Definitions, Error, NewDefinition};

#[async_trait::async_trait]
impl Definitions for Postgres {
    async fn live_definitions(&self, app: Option<AppId>) -> Result<Vec<Definition>, Error> {
        self.read(async |tx: Tx| definition::live(&tx, app).await).await
    }

    async fn definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
    ) -> Result<Option<Definition>, Error> {
        self.read(async |tx: Tx| definition::named(&tx, app, kind, name).await).await
    }

    async fn archived_definitions(
        &self,
        app: AppId,
        kind: DefinitionKind,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Definition>, Error> {
        self.read(async |tx: Tx| definition::archived(&tx, app, kind, before, limit).await).await
    }

    async fn put_definition(
        &self,
        new: NewDefinition,
        live_max: usize,
        now: Timestamp,
    ) -> Result<Definition, Error> {
        let put = move |tx, new| async move { definition::put(&tx, &new, live_max, now).await };
        self.write_with(new, put).await
    }

    async fn archive_definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
        now: Timestamp,
    ) -> Result<Definition, Error> {
        let archive = move |tx, name| async move { definition::archive(&tx, app, kind, &name, now).await };
        self.write_with(name.clone(), archive).await
    }

    async fn archive_ended(
        &self,
        kind: DefinitionKind,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<u64, Error> {
        self.write(move |tx| async move { definition::archive_ended(&tx, kind, now, rows_max).await }).await
    }
}
