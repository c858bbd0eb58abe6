//! From one machine to several: copies everything of an SQLite store into an empty PostgreSQL database.
//!
//! ```text
//!   noroshi.db ─► sqlite::export: one snapshot ─► pages of rows ─► postgres::import: COPY in one transaction
//! ```
//!
//! Tables and columns have the same names on both sides, and rows go over as they are: numbers, ids (whose key is a
//! row of `secrets`) and positions mean afterwards what they meant before. Either all of it is there, counted and
//! compared, or nothing is. Nobody else uses either side meanwhile: the folder is locked, and nodes that would open
//! the target wait for its lock on `secrets`.

use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use crate::PostgresError;
use crate::postgres::import::Target;
use crate::sqlite::export::Source;

/// Pages on their way from one side to the other: 4 × 1 MiB.
const PAGES: usize = 4;

/// Why nothing was copied, in words for the operator.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("{path} has no database (noroshi.db): it is not the data folder of a node on SQLite")]
    Missing { path: PathBuf },
    #[error("the data folder {path} is in use: stop the node first (noroshi drain, then SIGTERM)")]
    Locked { path: PathBuf },
    #[error("the data folder {path} cannot be used: {reason}")]
    Folder { path: PathBuf, reason: String },
    #[error(
        "the database {path} is of an older version (schema {found}, this program copies {known}): start this \
         version of noroshi on it once, which brings it up to date, stop it, and migrate then"
    )]
    Older { path: PathBuf, found: u32, known: u32 },
    #[error(
        "the database {path} was written by a newer version (schema {found}, this program copies {known}): use that one"
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("the database {path} cannot be read: {reason}")]
    Source { path: PathBuf, reason: String },
    #[error(transparent)]
    Target(#[from] PostgresError),
    #[error(
        "the database at {server} is not empty (there are rows in {table}): name one that no node was started on"
    )]
    NotEmpty { server: String, table: String },
    #[error("copying {table} failed, and nothing was kept: {reason}")]
    Failed { table: String, reason: String },
    #[error("{table} has {found} rows in PostgreSQL and {expected} in SQLite: nothing was kept")]
    Differs { table: String, expected: u64, found: u64 },
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The table that is being copied.
    pub table: &'a str,
    /// Rows of all tables, copied and in all.
    pub rows: u64,
    pub rows_total: u64,
}

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// `host:port/database`.
    pub server: String,
    /// Tables with their rows, those without rows left out.
    pub tables: Vec<(String, u64)>,
    /// Push credentials: they are sealed by a key that is in neither database.
    pub credentials: u64,
}

/// A table as both sides know it.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub name: String,
    pub columns: Vec<String>,
    pub rows: u64,
}

/// Rows of a table in the binary format of COPY.
pub(crate) struct Page {
    pub bytes: Vec<u8>,
    pub rows: u64,
}

/// Copies the store in `folder` into the database at `url`, which nobody has used before. `secrets` are put beside
/// those of the store: what the node keeps in files of its folder and nodes that share a database keep there.
pub async fn migrate(
    folder: &Path,
    url: &str,
    secrets: Vec<(String, Vec<u8>)>,
    mut on: impl FnMut(Progress<'_>),
) -> Result<Migrated, MigrateError> {
    let source = Source::open(folder)?;
    let target = Target::open(url).await?;
    let (mut source, tables) = source.begin().await?;
    target.begin(&tables).await?;
    let rows_total = tables.iter().map(|table| table.rows).sum();
    let mut rows = 0;
    for table in tables.iter().filter(|table| table.rows > 0) {
        on(Progress { table: &table.name, rows, rows_total });
        let (pages, read) = mpsc::channel(PAGES);
        let reading = source.read(table.clone(), pages);
        let writing = target.copy(table, read, |copied| {
            rows += copied;
            on(Progress { table: &table.name, rows, rows_total });
        });
        // If one side fails, the other ends for want of it: the first reason to be told is the source's.
        let (reading, writing) = tokio::join!(reading, writing);
        source = reading?;
        writing?;
    }
    target.finish(&tables, &source.sequences, &secrets).await?;
    let credentials = tables.iter().find(|table| table.name == "push_credentials");
    Ok(Migrated {
        server: target.server(),
        credentials: credentials.map_or(0, |table| table.rows),
        tables: tables
            .into_iter()
            .filter(|table| table.rows > 0)
            .map(|table| (table.name, table.rows))
            .collect(),
    })
}
