//! Opens connections, and upgrades the database to the schema of this program.
//!
//! Migrations are the files of `migrations/`, applied in order. Each runs in its own transaction, which also sets
//! `PRAGMA user_version`, so a crash leaves a complete version. A database of a newer program is rejected before
//! anything is written.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;

use rusqlite::{Connection, OpenFlags};

use super::statement::Db;

/// Applied in order; the version of a database is the number of migrations applied.
const MIGRATIONS: [&str; 36] = [
    include_str!("../../migrations/0001_initial.sql"),
    include_str!("../../migrations/0002_push.sql"),
    include_str!("../../migrations/0003_cluster.sql"),
    include_str!("../../migrations/0004_cells.sql"),
    include_str!("../../migrations/0005_deleted_apps.sql"),
    include_str!("../../migrations/0006_takes.sql"),
    include_str!("../../migrations/0007_endpoints.sql"),
    include_str!("../../migrations/0008_conversations.sql"),
    include_str!("../../migrations/0009_definitions.sql"),
    include_str!("../../migrations/0010_openings.sql"),
    include_str!("../../migrations/0011_trace.sql"),
    include_str!("../../migrations/0012_front_trace.sql"),
    include_str!("../../migrations/0013_drawn.sql"),
    include_str!("../../migrations/0014_permissions.sql"),
    include_str!("../../migrations/0015_revocations.sql"),
    include_str!("../../migrations/0016_shares.sql"),
    include_str!("../../migrations/0017_share_ends.sql"),
    include_str!("../../migrations/0018_walks_by_app.sql"),
    include_str!("../../migrations/0019_expansions.sql"),
    include_str!("../../migrations/0020_explanations.sql"),
    include_str!("../../migrations/0021_push_tokens.sql"),
    include_str!("../../migrations/0022_push_records.sql"),
    include_str!("../../migrations/0023_providers.sql"),
    include_str!("../../migrations/0024_broadcasts.sql"),
    include_str!("../../migrations/0025_activities.sql"),
    include_str!("../../migrations/0026_items.sql"),
    include_str!("../../migrations/0027_preferences.sql"),
    include_str!("../../migrations/0028_clean_up.sql"),
    include_str!("../../migrations/0029_people.sql"),
    include_str!("../../migrations/0030_series.sql"),
    include_str!("../../migrations/0031_mapped_roles.sql"),
    include_str!("../../migrations/0032_drafts.sql"),
    include_str!("../../migrations/0033_listing.sql"),
    include_str!("../../migrations/0034_key_expiry.sql"),
    include_str!("../../migrations/0035_device_seen.sql"),
    include_str!("../../migrations/0036_authors.sql"),
];

/// The schema version this program writes.
pub(crate) const KNOWN_VERSION: u32 = MIGRATIONS.len() as u32;

/// No other process writes, so locks only occur while the checkpoint of a killed process is recovered.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pages of the write-ahead log before a checkpoint: 8,192 × 4 KiB = 32 MiB. Inbox pages are rewritten often, so late
/// checkpoints copy fewer pages.
const CHECKPOINT_PAGES: u32 = 8_192;
/// KiB of page cache: the writer accesses a page for nearly every inbox row.
const WRITER_CACHE_KIB: u32 = 32 << 10;
/// Log-ins are point reads across the tables, each row once: caching inner pages pays off, and a leaf page is a copy
/// from the kernel's cache. A larger cache grew with every device that logged in without making log-ins faster.
const READER_CACHE_KIB: u32 = 512;
/// More than the distinct statements of this crate.
const STATEMENTS: usize = 256;

/// Why the schema could not be upgraded.
#[derive(Debug)]
pub(super) enum SchemaError {
    Newer { found: u32 },
    Engine(rusqlite::Error),
}

impl From<rusqlite::Error> for SchemaError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error)
    }
}

/// The one connection that writes.
pub(super) fn open_writer(file: &Path, bytes_max: Option<u64>) -> Result<Db, SchemaError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut db = Connection::open_with_flags(file, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    let found = version(&db)?;
    if found > KNOWN_VERSION {
        return Err(SchemaError::Newer { found });
    }
    db.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL; -- a commit returns after fsync
         PRAGMA foreign_keys = OFF; -- every statement that deletes knows what hangs on it
         PRAGMA temp_store = MEMORY;
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
         PRAGMA journal_size_limit = {};
         PRAGMA cache_size = -{WRITER_CACHE_KIB};",
        u64::from(CHECKPOINT_PAGES) * 8_192
    ))?;
    migrate(&mut db, found)?;
    if let Some(bytes) = bytes_max {
        let page_bytes: u64 = db.query_row("PRAGMA page_size", (), |row| row.get::<_, u32>(0))?.into();
        // SQLite never sets it below the number of used pages; 0 would query the current limit.
        db.execute_batch(&format!("PRAGMA max_page_count = {}", (bytes / page_bytes).max(1)))?;
    }
    settle_statements(&db)?;
    Ok(Db(db))
}

/// A read-only connection.
pub(super) fn open_reader(file: &Path) -> rusqlite::Result<Db> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.execute_batch(&format!("PRAGMA temp_store = MEMORY; PRAGMA cache_size = -{READER_CACHE_KIB};"))?;
    settle_statements(&db)?;
    Ok(Db(db))
}

/// Statements are prepared once. Without the planner's stability guarantee SQLite prepares some of them again for
/// every bound value, at 20 times the cost of the query.
fn settle_statements(db: &Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn version(db: &Connection) -> rusqlite::Result<u32> {
    db.query_row("PRAGMA user_version", (), |row| row.get(0))
}

fn migrate(db: &mut Connection, found: u32) -> rusqlite::Result<()> {
    for (number, sql) in (1..=KNOWN_VERSION).zip(MIGRATIONS).skip(found as usize) {
        let transaction = db.transaction()?;
        transaction.execute_batch(sql)?;
        transaction.execute_batch(&format!("PRAGMA user_version = {number}"))?;
        transaction.commit()?;
    }
    Ok(())
}
