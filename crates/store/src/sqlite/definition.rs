//! [`Definitions`] for SQLite.

use noroshi_types::{AppId, Label, Timestamp};

use super::Sqlite;
use super::statement::ready;
use crate::engine::definition;
use crate::{Definition, DefinitionKind, Definitions, Error, NewDefinition};

#[async_trait::async_trait]
impl Definitions for Sqlite {
    async fn live_definitions(&self, app: Option<AppId>) -> Result<Vec<Definition>, Error> {
        self.read(move |db| ready(definition::live(db, app))).await
    }

    async fn definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
    ) -> Result<Option<Definition>, Error> {
        let name = name.clone();
        self.read(move |db| ready(definition::named(db, app, kind, &name))).await
    }

    async fn archived_definitions(
        &self,
        app: AppId,
        kind: DefinitionKind,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Definition>, Error> {
        self.read(move |db| ready(definition::archived(db, app, kind, before, limit))).await
    }

    async fn put_definition(
        &self,
        new: NewDefinition,
        live_max: usize,
        now: Timestamp,
    ) -> Result<Definition, Error> {
        self.write(1, move |w| ready(definition::put(w.db, &new, live_max, now))).await
    }

    async fn archive_definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
        now: Timestamp,
    ) -> Result<Definition, Error> {
        let name = name.clone();
        self.write(1, move |w| ready(definition::archive(w.db, app, kind, &name, now))).await
    }

    async fn archive_ended(
        &self,
        kind: DefinitionKind,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<u64, Error> {
        self.write(rows_max, move |w| ready(definition::archive_ended(w.db, kind, now, rows_max))).await
    }
}
