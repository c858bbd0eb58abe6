//! Experiments and maintenance notices as rows. Whoever asks for live ones goes by the index of those alone.

use noroshi_types::{AppId, JsonText, Label, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use super::Sqlite;
use crate::definition::{DefinitionRow, check_room};
use crate::{Definition, DefinitionKind, Definitions, Error, NewDefinition};

#[async_trait::async_trait]
impl Definitions for Sqlite {
    async fn live_definitions(&self, app: Option<AppId>) -> Result<Vec<Definition>, Error> {
        self.read(move |db| live(db, app)).await
    }

    async fn definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
    ) -> Result<Option<Definition>, Error> {
        let name = name.clone();
        self.read(move |db| {
            for sql in [LIVE_NAMED, ARCHIVED_NAMED] {
                let sql = format!("SELECT {COLUMNS} {sql}");
                let mut statement = db.prepare_cached(&sql)?;
                let values = (app.0, kind as u8, name.as_str());
                let found = statement.query_row(values, |row| Ok(definition_of(row))).optional()?;
                if let Some(found) = found {
                    return found.map(Some);
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
        self.read(move |db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM definitions WHERE app = ?1 AND kind = ?2 AND num < ?3
                 AND archived_at IS NOT NULL ORDER BY num DESC LIMIT ?4"
            );
            let before = before.map_or(i64::MAX, |num| num as i64);
            let mut statement = db.prepare_cached(&sql)?;
            let values = (app.0, kind as u8, before, limit as i64);
            let rows = statement.query_map(values, |row| Ok(definition_of(row)))?;
            rows.map(|row| row?).collect()
        })
        .await
    }

    async fn put_definition(
        &self,
        new: NewDefinition,
        live_max: usize,
        now: Timestamp,
    ) -> Result<Definition, Error> {
        self.write(1, move |w| put(w.db, &new, live_max, now)).await
    }

    async fn archive_definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
        now: Timestamp,
    ) -> Result<Definition, Error> {
        let name = name.clone();
        self.write(1, move |w| {
            let sql = format!(
                "UPDATE definitions SET archived_at = ?4
                 WHERE app = ?1 AND kind = ?2 AND name = ?3 AND archived_at IS NULL RETURNING {COLUMNS}"
            );
            let mut statement = w.db.prepare_cached(&sql)?;
            let values = (app.0, kind as u8, name.as_str(), now.0 as i64);
            let archived = statement.query_row(values, |row| Ok(definition_of(row))).optional()?;
            archived.unwrap_or(Err(Error::NotFound))
        })
        .await
    }

    async fn archive_ended(
        &self,
        kind: DefinitionKind,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<u64, Error> {
        self.write(rows_max, move |w| {
            let sql = "UPDATE definitions SET archived_at = ?2 WHERE num IN (
                           SELECT num FROM definitions
                           WHERE archived_at IS NULL AND ends_at IS NOT NULL AND ends_at <= ?2 AND kind = ?1
                           ORDER BY ends_at LIMIT ?3)";
            let archived = w.db.prepare_cached(sql)?.execute((kind as u8, now.0 as i64, rows_max as i64))?;
            Ok(archived as u64)
        })
        .await
    }
}

const COLUMNS: &str = "num, app, kind, name, spec, ends_at, created_at, updated_at, archived_at";
const LIVE_NAMED: &str =
    "FROM definitions WHERE app = ?1 AND kind = ?2 AND name = ?3 AND archived_at IS NULL";
const ARCHIVED_NAMED: &str = "FROM definitions WHERE app = ?1 AND kind = ?2 AND name = ?3
     AND archived_at IS NOT NULL ORDER BY num DESC LIMIT 1";

fn live(db: &Connection, app: Option<AppId>) -> Result<Vec<Definition>, Error> {
    let of_app = if app.is_some() { "app = ?1" } else { "?1 IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM definitions INDEXED BY definitions_live
         WHERE {of_app} AND archived_at IS NULL ORDER BY app, kind, name"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map((app.map(|app| app.0),), |row| Ok(definition_of(row)))?;
    rows.map(|row| row?).collect()
}

fn definition_of(row: &Row<'_>) -> Result<Definition, Error> {
    DefinitionRow {
        num: row.get(0)?,
        app: AppId(row.get(1)?),
        kind: row.get(2)?,
        name: row.get(3)?,
        spec: row.get(4)?,
        ends_at: row.get(5)?,
        created_at: row.get(6)?,
        updated_at: row.get(7)?,
        archived_at: row.get(8)?,
    }
    .try_into()
}

fn put(db: &Connection, new: &NewDefinition, live_max: usize, now: Timestamp) -> Result<Definition, Error> {
    let NewDefinition { app, kind, name, spec, ends_at } = new;
    let known = db.query_row("SELECT 1 FROM apps WHERE id = ?1", (app.0,), |_| Ok(())).optional()?;
    known.ok_or(Error::NotFound)?;
    let values = (
        app.0,
        *kind as u8,
        name.as_str(),
        JsonText::as_str(spec),
        ends_at.map(|at| at.0 as i64),
        now.0 as i64,
    );
    let sql = format!(
        "UPDATE definitions SET spec = ?4, ends_at = ?5, updated_at = ?6
         WHERE app = ?1 AND kind = ?2 AND name = ?3 AND archived_at IS NULL RETURNING {COLUMNS}"
    );
    let changed = db.prepare_cached(&sql)?.query_row(values, |row| Ok(definition_of(row))).optional()?;
    if let Some(changed) = changed {
        return changed;
    }
    let sql = "SELECT count(*) FROM definitions WHERE app = ?1 AND kind = ?2 AND archived_at IS NULL";
    check_room(*kind, db.prepare_cached(sql)?.query_row((app.0, *kind as u8), |row| row.get(0))?, live_max)?;
    let sql = format!(
        "INSERT INTO definitions (app, kind, name, spec, ends_at, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) RETURNING {COLUMNS}"
    );
    db.prepare_cached(&sql)?.query_row(values, |row| Ok(definition_of(row)))?
}
