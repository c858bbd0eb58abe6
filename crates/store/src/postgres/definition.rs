//! Experiments and maintenance notices as rows. Whoever asks for live ones goes by the index of those alone.

use noroshi_types::{AppId, Label, Timestamp};
use tokio_postgres::Row;

use super::Postgres;
use super::transaction::{Failed, Tx, Values};
use crate::definition::{DefinitionRow, check_room};
use crate::{Definition, DefinitionKind, Definitions, Error, NewDefinition};

#[async_trait::async_trait]
impl Definitions for Postgres {
    async fn live_definitions(&self, app: Option<AppId>) -> Result<Vec<Definition>, Error> {
        self.read(async |tx: Tx| {
            let of_app = if app.is_some() { "app = $1" } else { "$1::bigint IS NULL" };
            let sql = format!(
                "SELECT {COLUMNS} FROM definitions WHERE {of_app} AND archived_at IS NULL ORDER BY app, kind, name"
            );
            let rows = tx.query(&sql, &[&app.map(|app| i64::from(app.0))]).await?;
            rows.iter().map(definition_of).collect()
        })
        .await
    }

    async fn definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
    ) -> Result<Option<Definition>, Error> {
        self.read(async |tx: Tx| {
            let values: Values<'_> = &[&i64::from(app.0), &(kind as i64), &name.as_str()];
            // Each by its own index.
            for which in ["archived_at IS NULL", "archived_at IS NOT NULL ORDER BY num DESC LIMIT 1"] {
                let sql = format!(
                    "SELECT {COLUMNS} FROM definitions WHERE app = $1 AND kind = $2 AND name = $3 AND {which}"
                );
                if let Some(row) = tx.query_opt(&sql, values).await? {
                    return definition_of(&row).map(Some);
                }
            }
            Ok(None)
        })
        .await
    }

    async fn archived_definitions(
        &self,
        app: AppId,
        kind: DefinitionKind,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Definition>, Error> {
        self.read(async |tx: Tx| {
            let sql = format!(
                "SELECT {COLUMNS} FROM definitions WHERE app = $1 AND kind = $2 AND num < $3
                 AND archived_at IS NOT NULL ORDER BY num DESC LIMIT $4"
            );
            let before = before.map_or(i64::MAX, |num| num as i64);
            let values: Values<'_> = &[&i64::from(app.0), &(kind as i64), &before, &(limit as i64)];
            tx.query(&sql, values).await?.iter().map(definition_of).collect()
        })
        .await
    }

    async fn put_definition(
        &self,
        new: NewDefinition,
        live_max: usize,
        now: Timestamp,
    ) -> Result<Definition, Error> {
        self.write(move |tx| put(tx, new.clone(), live_max, now)).await
    }

    async fn archive_definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
        now: Timestamp,
    ) -> Result<Definition, Error> {
        let name = name.clone();
        self.write(move |tx| {
            let name = name.clone();
            async move {
                let sql = format!(
                    "UPDATE definitions SET archived_at = $4
                     WHERE app = $1 AND kind = $2 AND name = $3 AND archived_at IS NULL RETURNING {COLUMNS}"
                );
                let values: Values<'_> =
                    &[&i64::from(app.0), &(kind as i64), &name.as_str(), &(now.0 as i64)];
                definition_of(&tx.query_opt(&sql, values).await?.ok_or(Error::NotFound)?)
            }
        })
        .await
    }

    async fn archive_ended(
        &self,
        kind: DefinitionKind,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<u64, Error> {
        self.write(move |tx| async move {
            let sql = "UPDATE definitions SET archived_at = $2 WHERE num IN (
                           SELECT num FROM definitions
                           WHERE archived_at IS NULL AND ends_at IS NOT NULL AND ends_at <= $2 AND kind = $1
                           ORDER BY ends_at LIMIT $3 FOR UPDATE SKIP LOCKED)";
            tx.execute(sql, &[&(kind as i64), &(now.0 as i64), &(rows_max as i64)]).await
        })
        .await
    }
}

const COLUMNS: &str = "num, app, kind, name, spec, ends_at, created_at, updated_at, archived_at";

fn definition_of(row: &Row) -> Result<Definition, Failed> {
    let row = DefinitionRow {
        num: row.get(0),
        app: AppId(row.get::<_, i64>(1) as u32),
        kind: row.get::<_, i64>(2) as u8,
        name: row.get(3),
        spec: row.get(4),
        ends_at: row.get(5),
        created_at: row.get(6),
        updated_at: row.get(7),
        archived_at: row.get(8),
    };
    Ok(row.try_into()?)
}

async fn put(tx: Tx, new: NewDefinition, live_max: usize, now: Timestamp) -> Result<Definition, Failed> {
    let NewDefinition { app, kind, name, spec, ends_at } = new;
    let (app, code, now) = (i64::from(app.0), kind as i64, now.0 as i64);
    // Against the removal of the app, and against others that make one at the same time.
    let sql = "SELECT 1 FROM apps WHERE id = $1 FOR NO KEY UPDATE";
    tx.query_opt(sql, &[&app]).await?.ok_or(Error::NotFound)?;
    let ends_at = ends_at.map(|at| at.0 as i64);
    let values: Values<'_> = &[&app, &code, &name.as_str(), &spec.as_str(), &ends_at, &now];
    let sql = format!(
        "UPDATE definitions SET spec = $4, ends_at = $5, updated_at = $6
         WHERE app = $1 AND kind = $2 AND name = $3 AND archived_at IS NULL RETURNING {COLUMNS}"
    );
    if let Some(row) = tx.query_opt(&sql, values).await? {
        return definition_of(&row);
    }
    let sql = "SELECT count(*) FROM definitions WHERE app = $1 AND kind = $2 AND archived_at IS NULL";
    check_room(kind, tx.query_one(sql, &[&app, &code]).await?.get(0), live_max)?;
    let sql = format!(
        "INSERT INTO definitions (app, kind, name, spec, ends_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6) RETURNING {COLUMNS}"
    );
    definition_of(&tx.query_one(&sql, values).await?)
}
