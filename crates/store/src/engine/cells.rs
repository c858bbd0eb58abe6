//! What a front over several cells stores: the list of cells, and which apps each cell was provisioned with.
//! [`residence`] decides where users and devices live; [`outbox`] holds messages until their cells have taken them.

pub(crate) mod outbox;
pub(crate) mod residence;

use noroshi_types::AppName;

use super::record::{Record, array, invalid};
use super::session::{self, Session, values};
use crate::Error;
use crate::cells::{CellChange, CellNum, CellRecord};

impl From<CellNum> for session::Value<'_> {
    fn from(cell: CellNum) -> Self {
        Self::Int(cell.0.into())
    }
}

/// As it is stored.
pub(crate) fn number(cell: CellNum) -> i64 {
    cell.0.into()
}

pub(crate) fn cell_of(row: &(impl Record + ?Sized), column: usize) -> Result<CellNum, Error> {
    Ok(CellNum(row.int(column)? as u32))
}

pub(crate) fn cell_or_null(row: &(impl Record + ?Sized), column: usize) -> Result<Option<CellNum>, Error> {
    Ok(row.int_or_null(column)?.map(|cell| CellNum(cell as u32)))
}

const COLUMNS: &str = "num, name, weight, draining";

fn record_of(row: &dyn Record) -> Result<CellRecord, Error> {
    Ok(CellRecord {
        num: cell_of(row, 0)?,
        name: row.string(1)?,
        weight: row.int_or_null(2)?.map(|weight| weight as u32),
        draining: row.flag(3)?,
    })
}

/// Adds the cells that are missing, in order; returns all.
pub(crate) async fn enrol<S: Session>(session: &S, names: &[String]) -> Result<Vec<CellRecord>, S::Error> {
    for name in names {
        let sql = "INSERT INTO cells (name) VALUES ($1) ON CONFLICT (name) DO NOTHING";
        session.execute(sql, &values![name]).await?;
    }
    session.query(&format!("SELECT {COLUMNS} FROM cells ORDER BY num"), &[], record_of).await
}

pub(crate) async fn adjust<S: Session>(
    session: &S,
    cell: CellNum,
    change: CellChange,
) -> Result<CellRecord, S::Error> {
    if let Some(weight) = change.weight {
        session.execute("UPDATE cells SET weight = $2 WHERE num = $1", &values![cell, weight]).await?;
    }
    if let Some(draining) = change.draining {
        session.execute("UPDATE cells SET draining = $2 WHERE num = $1", &values![cell, draining]).await?;
    }
    let sql = format!("SELECT {COLUMNS} FROM cells WHERE num = $1");
    Ok(session::first(session, &sql, &values![cell], record_of).await?.ok_or(Error::NotFound)?)
}

pub(crate) async fn provisioned<S: Session>(
    session: &S,
    cell: CellNum,
) -> Result<Vec<(AppName, [u8; 32])>, S::Error> {
    let sql = "SELECT app, digest FROM cell_apps WHERE cell = $1 ORDER BY app";
    let app_of = |row: &dyn Record| {
        let app = AppName::parse(row.text(0)?).map_err(|error| invalid("app name", error))?;
        Ok((app, array(row, 1)?))
    };
    session.query(sql, &values![cell], app_of).await
}

pub(crate) async fn set_provisioned<S: Session>(
    session: &S,
    cell: CellNum,
    app: &AppName,
    digest: Option<[u8; 32]>,
) -> Result<(), S::Error> {
    match &digest {
        Some(digest) => {
            let sql = "INSERT INTO cell_apps (cell, app, digest) VALUES ($1, $2, $3)
                       ON CONFLICT (cell, app) DO UPDATE SET digest = $3";
            session.execute(sql, &values![cell, app.as_str(), digest]).await?
        }
        None => {
            let sql = "DELETE FROM cell_apps WHERE cell = $1 AND app = $2";
            session.execute(sql, &values![cell, app.as_str()]).await?
        }
    };
    Ok(())
}
