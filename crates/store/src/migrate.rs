//! Moves a single-node store to a cluster: copies an SQLite store into an empty PostgreSQL database.
//!
//! ```text
//!   noroshi.db ─► source: one snapshot ─► pages of rows ─► target: COPY in one transaction
//! ```
//!
//! Tables and columns have the same names in both databases, and rows are copied unchanged: numbers, ids (whose key
//! is a row of `secrets`) and positions keep their meaning. Either everything is copied, counted and compared, or
//! nothing is. No other process uses either side during the copy: the folder is locked, and nodes that open the
//! target wait for its lock on `secrets`.

mod source;
mod target;

use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use self::source::Source;
use self::target::Target;
use crate::PostgresError;

/// Pages in transit between the two sides: 4 × 1 MiB.
const PAGES: usize = 4;

/// Why nothing was copied; the text is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("{path} has no database (noroshi.db): it is not the data folder of a node that uses SQLite")]
    Missing { path: PathBuf },
    #[error("the data folder {path} is in use: stop the node first (noroshi drain, then SIGTERM)")]
    Locked { path: PathBuf },
    #[error("the data folder {path} cannot be used: {reason}")]
    Folder { path: PathBuf, reason: String },
    #[error(
        "the database {path} has an older schema ({found}; this program copies {known}): start this version of \
         noroshi on it once, which upgrades it, stop it, and migrate again"
    )]
    Older { path: PathBuf, found: u32, known: u32 },
    #[error(
        "the database {path} was written by a newer version (schema {found}; this program copies {known}): use that version"
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("the database {path} cannot be read: {reason}")]
    Source { path: PathBuf, reason: String },
    #[error(transparent)]
    Target(#[from] PostgresError),
    #[error("the database at {server} is not empty ({table} has rows): use a database that no node has used")]
    NotEmpty { server: String, table: String },
    #[error("copying {table} failed; nothing was kept: {reason}")]
    Failed { table: String, reason: String },
    #[error("{table} has {found} rows in PostgreSQL and {expected} in SQLite: nothing was kept")]
    Differs { table: String, expected: u64, found: u64 },
}

/// Progress of the copy.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The table being copied.
    pub table: &'a str,
    /// Copied rows of all tables, and their total.
    pub rows: u64,
    pub rows_total: u64,
}

/// The result of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// `host:port/database`.
    pub server: String,
    /// Tables with their row counts, without empty ones.
    pub tables: Vec<(String, u64)>,
    /// Push credentials: the key that seals them is in neither database.
    pub credentials: u64,
}

/// A table of both databases.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub name: String,
    pub columns: Vec<String>,
    pub rows: u64,
}

/// Rows of a table in COPY's binary format.
pub(crate) struct Page {
    pub bytes: Vec<u8>,
    pub rows: u64,
}

/// Copies the store in `folder` into the empty database at `url`. `secrets` are added to the store's own: a single
/// node keeps them in files of its folder, nodes of a cluster in the database.
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
        // If one side fails, the other ends too; the source's error explains more.
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
