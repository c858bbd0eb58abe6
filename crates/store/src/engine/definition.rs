//! Experiments and maintenance notices as rows. The live ones have an index of their own.

use noroshi_types::{AppId, JsonText, Label, Timestamp};

use super::record::{Record, invalid, unknown};
use super::session::{self, Session, values};
use crate::{Definition, DefinitionKind, Error, NewDefinition};

const COLUMNS: &str = "num, app, kind, name, spec, ends_at, created_at, updated_at, archived_at";

fn definition_of(row: &dyn Record) -> Result<Definition, Error> {
    Ok(Definition {
        num: row.count(0)?,
        app: row.app(1)?,
        kind: match row.code(2)? {
            1 => DefinitionKind::Experiment,
            2 => DefinitionKind::Notice,
            _ => return Err(unknown("kind of definition")),
        },
        name: Label::parse(row.text(3)?).map_err(|error| invalid("name of a definition", error))?,
        spec: JsonText::from_valid(row.string(4)?),
        ends_at: row.time_or_null(5)?,
        created_at: row.time(6)?,
        updated_at: row.time(7)?,
        archived_at: row.time_or_null(8)?,
    })
}

pub(crate) async fn live<S: Session>(session: &S, app: Option<AppId>) -> Result<Vec<Definition>, S::Error> {
    let of_app = if app.is_some() { "app = $1" } else { "CAST($1 AS BIGINT) IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM definitions WHERE {of_app} AND archived_at IS NULL ORDER BY app, kind, name"
    );
    session.query(&sql, &values![app], definition_of).await
}

pub(crate) async fn named<S: Session>(
    session: &S,
    app: AppId,
    kind: DefinitionKind,
    name: &Label,
) -> Result<Option<Definition>, S::Error> {
    // Two statements, because each has its own index.
    for which in ["archived_at IS NULL", "archived_at IS NOT NULL ORDER BY num DESC LIMIT 1"] {
        let sql = format!(
            "SELECT {COLUMNS} FROM definitions WHERE app = $1 AND kind = $2 AND name = $3 AND {which}"
        );
        let values = values![app, kind as u8, name.as_str()];
        if let Some(found) = session::first(session, &sql, &values, definition_of).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

pub(crate) async fn archived<S: Session>(
    session: &S,
    app: AppId,
    kind: DefinitionKind,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<Definition>, S::Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM definitions WHERE app = $1 AND kind = $2 AND num < $3
         AND archived_at IS NOT NULL ORDER BY num DESC LIMIT $4"
    );
    let before = before.map_or(i64::MAX, |num| num as i64);
    session.query(&sql, &values![app, kind as u8, before, limit], definition_of).await
}

/// The app's row is locked, so that two callers cannot both take the last place.
pub(crate) async fn put<S: Session>(
    session: &S,
    new: &NewDefinition,
    live_max: usize,
    now: Timestamp,
) -> Result<Definition, S::Error> {
    let NewDefinition { app, kind, name, spec, ends_at } = new;
    session::require_app(session, *app, S::FOR_NO_KEY_UPDATE).await?;
    let values = values![*app, *kind as u8, name.as_str(), spec.as_str(), *ends_at, now];
    let sql = format!(
        "UPDATE definitions SET spec = $4, ends_at = $5, updated_at = $6
         WHERE app = $1 AND kind = $2 AND name = $3 AND archived_at IS NULL RETURNING {COLUMNS}"
    );
    if let Some(changed) = session::first(session, &sql, &values, definition_of).await? {
        return Ok(changed);
    }
    let sql = "SELECT count(*) FROM definitions WHERE app = $1 AND kind = $2 AND archived_at IS NULL";
    let live = session::one(session, sql, &values![*app, *kind as u8], |row| row.count(0)).await?;
    if live >= live_max as u64 {
        let what = match kind {
            DefinitionKind::Experiment => "experiments",
            DefinitionKind::Notice => "maintenance notices",
        };
        return Err(Error::Limit(format!("an app has at most {live_max} {what} that have not ended")).into());
    }
    let sql = format!(
        "INSERT INTO definitions (app, kind, name, spec, ends_at, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6) RETURNING {COLUMNS}"
    );
    session::one(session, &sql, &values, definition_of).await
}

pub(crate) async fn archive<S: Session>(
    session: &S,
    app: AppId,
    kind: DefinitionKind,
    name: &Label,
    now: Timestamp,
) -> Result<Definition, S::Error> {
    let sql = format!(
        "UPDATE definitions SET archived_at = $4
         WHERE app = $1 AND kind = $2 AND name = $3 AND archived_at IS NULL RETURNING {COLUMNS}"
    );
    let values = values![app, kind as u8, name.as_str(), now];
    Ok(session::first(session, &sql, &values, definition_of).await?.ok_or(Error::NotFound)?)
}

pub(crate) async fn archive_ended<S: Session>(
    session: &S,
    kind: DefinitionKind,
    now: Timestamp,
    rows_max: usize,
) -> Result<u64, S::Error> {
    let sql = format!(
        "UPDATE definitions SET archived_at = $2 WHERE num IN (
             SELECT num FROM definitions
             WHERE archived_at IS NULL AND ends_at IS NOT NULL AND ends_at <= $2 AND kind = $1
             ORDER BY ends_at LIMIT $3 {})",
        S::FOR_UPDATE_SKIP_LOCKED
    );
    session.execute(&sql, &values![kind as u8, now, rows_max]).await
}
