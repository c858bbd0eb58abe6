//! Removing what a deleted app owned, page by page: see [`crate::purge`]. Other writes take their turn between two
//! pages.

use noroshi_types::{AppId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params};

use crate::Error;
use crate::purge::{
    AT_ONCE, EMPTY, LATE, LOOKED_AT, MARKED, NOTIFICATIONS, OVER, PARTS, STATEMENTS, UP_TO, WHOLE,
};

/// The app is gone with this, whatever it owned.
pub(super) fn begin(db: &Connection, app: AppId) -> Result<(), Error> {
    for sql in AT_ONCE {
        execute(db, sql, (app.0,))?;
    }
    Ok(())
}

/// Its parameters are numbered as PostgreSQL does it. How many rows it changed.
fn execute(db: &Connection, sql: &str, values: impl Params) -> Result<i64, Error> {
    Ok(db.prepare_cached(&sql.replace('$', "?"))?.execute(values)? as i64)
}

/// Removes about `rows_max` rows; true if there may be more.
pub(super) fn page(db: &Connection, app: AppId, rows_max: i64) -> Result<bool, Error> {
    let sql = "SELECT cursor FROM deleted_apps WHERE app = ?1";
    let cursor: Option<i64> = db.query_row(sql, (app.0,), |row| row.get(0)).optional()?;
    let Some(cursor) = cursor else { return Ok(false) };
    let mut left = rows_max;
    for table in STATEMENTS.iter() {
        loop {
            let before = left;
            for sql in table {
                left -= execute(db, sql, (app.0, left))?;
                if left <= 0 {
                    return Ok(true);
                }
            }
            if left == before {
                break;
            }
        }
    }
    notifications(db, app, cursor, left)
}

/// The part that has no index to go by.
fn notifications(db: &Connection, app: AppId, behind: i64, mut left: i64) -> Result<bool, Error> {
    let sql = UP_TO.replace('$', "?");
    let up_to: Option<i64> = db.prepare_cached(&sql)?.query_row((behind, NOTIFICATIONS), |row| row.get(0))?;
    let Some(up_to) = up_to else { return Ok(false) };
    for sql in PARTS {
        left -= execute(db, sql, (app.0, behind, up_to, left))?;
        if left <= 0 {
            return Ok(true);
        }
    }
    execute(db, WHOLE, (app.0, behind, up_to))?;
    execute(db, LOOKED_AT, (app.0, up_to))?;
    Ok(true)
}

/// Goes on with all deleted apps; true if there may be more.
pub(super) fn resume(db: &Connection, now: Timestamp, rows_max: usize) -> Result<bool, Error> {
    let marked =
        db.prepare_cached(MARKED)?.query_map((), |row| row.get(0))?.collect::<Result<Vec<u32>, _>>()?;
    for app in marked.into_iter().map(AppId) {
        if page(db, app, rows_max as i64)? {
            return Ok(true);
        }
        execute(db, EMPTY, (app.0, now.0 as i64))?;
    }
    execute(db, OVER, (now.0 as i64 - LATE.as_millis() as i64,))?;
    Ok(false)
}
