//! The source of `noroshi migrate`: locks the folder, reads one snapshot, and encodes rows in the binary format of
//! PostgreSQL's COPY. Writes nothing.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::mpsc;

use super::{MigrateError, Page, Table};
use crate::sqlite::schema::KNOWN_VERSION;

/// The approximate size of a page of rows.
const PAGE_BYTES: usize = 1 << 20;

/// Rows of health checks are not copied.
const EXCLUDED: &str = "secrets WHERE name <> '$check'";

/// The database of a stopped node.
pub(super) struct Source {
    db: Connection,
    path: PathBuf,
    /// Locked until the copy ends.
    _lock: File,
    /// The greatest number ever given to a row of each table, even if the row is gone.
    pub(super) sequences: HashMap<String, i64>,
}

impl Source {
    pub(super) fn open(folder: &Path) -> Result<Self, MigrateError> {
        let path = folder.join("noroshi.db");
        if !path.is_file() {
            return Err(MigrateError::Missing { path: folder.to_owned() });
        }
        let unusable = |error: std::io::Error| MigrateError::Folder {
            path: folder.to_owned(),
            reason: error.to_string(),
        };
        let lock = File::create(folder.join("noroshi.lock")).map_err(unusable)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => MigrateError::Locked { path: folder.to_owned() },
            TryLockError::Error(error) => unusable(error),
        })?;
        let unreadable =
            |error: rusqlite::Error| MigrateError::Source { path: path.clone(), reason: error.to_string() };
        // Only a connection that may write sees what a killed node left in its write-ahead log.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&path, flags).map_err(unreadable)?;
        let found = db
            .execute_batch("PRAGMA query_only = ON")
            .and_then(|()| db.query_row("PRAGMA user_version", (), |row| row.get(0)))
            .map_err(unreadable)?;
        let known = KNOWN_VERSION;
        match found {
            found if found < known => Err(MigrateError::Older { path, found, known }),
            found if found > known => Err(MigrateError::Newer { path, found, known }),
            _ => Ok(Self { db, path, _lock: lock, sequences: HashMap::new() }),
        }
    }

    /// Starts the snapshot. Returns the tables to copy.
    pub(super) async fn begin(self) -> Result<(Self, Vec<Table>), MigrateError> {
        self.work(|source| {
            source.db.execute_batch("BEGIN")?;
            source.sequences = sequences(&source.db)?;
            tables(&source.db)
        })
        .await
    }

    /// Sends all rows of a table; ends early if the receiver is gone.
    pub(super) async fn read(self, table: Table, pages: mpsc::Sender<Page>) -> Result<Self, MigrateError> {
        let read = self.work(move |source| read(&source.db, &table, &pages)).await?;
        Ok(read.0)
    }

    async fn work<T: Send + 'static>(
        mut self,
        work: impl FnOnce(&mut Self) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<(Self, T), MigrateError> {
        let path = self.path.clone();
        let unreadable = |reason: String| MigrateError::Source { path, reason };
        let worked = tokio::task::spawn_blocking(move || work(&mut self).map(|result| (self, result))).await;
        match worked {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(unreadable(error.to_string())),
            Err(error) => Err(unreadable(error.to_string())),
        }
    }
}

/// A column that only PostgreSQL has: the position of a row in its inbox.
const RANK: &str = "rank";

fn expression(table: &str, column: &str) -> String {
    match (table, column) {
        ("inbox", RANK) => "row_number() OVER (PARTITION BY device ORDER BY num)".to_owned(),
        // The senders of an earlier run are gone.
        ("push_queue", "leased_until") => "0".to_owned(),
        _ => format!("\"{column}\""),
    }
}

/// The rows of the table to copy.
fn selection(table: &str) -> &str {
    if table == "secrets" { EXCLUDED } else { table }
}

fn tables(db: &Connection) -> rusqlite::Result<Vec<Table>> {
    let sql =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let names =
        db.prepare(sql)?.query_map((), |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    let table = |name: String| {
        let sql = "SELECT name FROM pragma_table_info(?1) ORDER BY cid";
        let mut columns = db
            .prepare(sql)?
            .query_map((&name,), |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<String>>>()?;
        if name == "inbox" {
            columns.push(RANK.to_owned());
        }
        let sql = format!("SELECT count(*) FROM {}", selection(&name));
        let rows = db.query_row(&sql, (), |row| row.get::<_, i64>(0))? as u64;
        Ok(Table { name, columns, rows })
    };
    names.into_iter().map(table).collect()
}

fn sequences(db: &Connection) -> rusqlite::Result<HashMap<String, i64>> {
    let mut statement = db.prepare("SELECT name, seq FROM sqlite_sequence")?;
    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut sequences = rows.collect::<rusqlite::Result<HashMap<_, _>>>()?;
    let outcomes = db.query_row("SELECT coalesce(max(seq), 0) FROM outcomes", (), |row| row.get(0))?;
    sequences.insert("outcomes".to_owned(), outcomes);
    Ok(sequences)
}

fn read(db: &Connection, table: &Table, pages: &mpsc::Sender<Page>) -> rusqlite::Result<()> {
    let columns: Vec<_> = table.columns.iter().map(|column| expression(&table.name, column)).collect();
    let sql = format!("SELECT {} FROM {}", columns.join(", "), selection(&table.name));
    let mut statement = db.prepare(&sql)?;
    let mut rows = statement.query(())?;
    let empty = || Page { bytes: Vec::with_capacity(PAGE_BYTES + (64 << 10)), rows: 0 };
    let mut page = empty();
    while let Some(row) = rows.next()? {
        page.bytes.extend((table.columns.len() as i16).to_be_bytes());
        for column in 0..table.columns.len() {
            add(&mut page.bytes, row.get_ref(column)?);
        }
        page.rows += 1;
        if page.bytes.len() >= PAGE_BYTES
            && pages.blocking_send(std::mem::replace(&mut page, empty())).is_err()
        {
            return Ok(()); // the other side reports the cause
        }
    }
    // As above: the receiver reports its own error.
    let _ = pages.blocking_send(page);
    Ok(())
}

/// Appends a field: its length (-1: NULL) and its bytes. Tables are STRICT, and every integer is a BIGINT in
/// PostgreSQL.
fn add(bytes: &mut Vec<u8>, value: ValueRef<'_>) {
    let number;
    let field: &[u8] = match value {
        ValueRef::Null => return bytes.extend((-1i32).to_be_bytes()),
        ValueRef::Integer(value) => {
            number = value.to_be_bytes();
            &number
        }
        ValueRef::Real(value) => {
            number = value.to_be_bytes();
            &number
        }
        ValueRef::Text(text) | ValueRef::Blob(text) => text,
    };
    bytes.extend((field.len() as i32).to_be_bytes());
    bytes.extend_from_slice(field);
}
