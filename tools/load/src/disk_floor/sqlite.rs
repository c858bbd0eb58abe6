//! SQLite in this process: the tables and settings of `noroshi_store::sqlite`, and prepared statements in a loop.

use std::path::Path;

use rusqlite::Connection;

use super::{Engine, FloorPlan, Rows, Source};
use crate::Error;

/// The settings of a node's writer.
const SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;
     PRAGMA wal_autocheckpoint = 8192; PRAGMA cache_size = -32768;";

const INBOX: &str = "CREATE TABLE inbox (device INTEGER NOT NULL, num INTEGER NOT NULL, collapse_key TEXT,
         PRIMARY KEY (device, num)) STRICT, WITHOUT ROWID;
     CREATE INDEX inbox_by_collapse_key ON inbox (device, collapse_key) WHERE collapse_key IS NOT NULL;";

const TOPIC: &str = "CREATE TABLE topic_log (topic INTEGER NOT NULL, topic_offset INTEGER NOT NULL,
         num INTEGER NOT NULL, collapse_key TEXT, PRIMARY KEY (topic, topic_offset)) STRICT, WITHOUT ROWID;
     CREATE UNIQUE INDEX topic_log_by_num ON topic_log (topic, num);
     CREATE INDEX topic_log_by_age ON topic_log (num);
     CREATE INDEX topic_log_by_collapse_key ON topic_log (topic, collapse_key) WHERE collapse_key IS NOT NULL;
     CREATE TABLE notifications (num INTEGER PRIMARY KEY, app INTEGER, created_at INTEGER, expires_at INTEGER,
         keep_until INTEGER, topic INTEGER, topic_offset INTEGER, data TEXT, standing INTEGER) STRICT;
     CREATE INDEX notifications_to_forget ON notifications (keep_until);
     CREATE INDEX notifications_to_expire ON notifications (expires_at) WHERE standing = 1;";

pub(crate) struct SqliteFloor {
    db: Connection,
    data: String,
}

fn failed(error: rusqlite::Error) -> Error {
    Error::Floor(error.to_string())
}

impl SqliteFloor {
    pub(crate) fn open(file: &Path, plan: FloorPlan) -> Result<Self, Error> {
        let db = Connection::open(file).map_err(failed)?;
        db.execute_batch(SETTINGS).map_err(failed)?;
        db.execute_batch(if plan.rows == Rows::Topic { TOPIC } else { INBOX }).map_err(failed)?;
        Ok(Self { db, data: "x".repeat(plan.payload) })
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> i64 {
        self.db.query_row("SELECT count(*) FROM inbox", (), |row| row.get(0)).unwrap()
    }

    fn in_transaction(&self, work: impl FnOnce() -> rusqlite::Result<usize>) -> Result<usize, Error> {
        self.try_in_transaction(work).map_err(failed)
    }

    fn try_in_transaction(&self, work: impl FnOnce() -> rusqlite::Result<usize>) -> rusqlite::Result<usize> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
        let result = work()?;
        self.db.prepare_cached("COMMIT")?.execute(())?;
        Ok(result)
    }

    fn insert(&self, rows: impl Iterator<Item = (i64, i64)>) -> rusqlite::Result<usize> {
        let mut insert =
            self.db.prepare_cached("INSERT INTO inbox (device, num, collapse_key) VALUES (?1, ?2, ?3)")?;
        let mut count = 0;
        for (device, num) in rows {
            count += insert.execute((device, num, None::<&str>))?;
        }
        Ok(count)
    }

    fn append(&self, rows: impl Iterator<Item = (i64, i64, i64)>) -> rusqlite::Result<usize> {
        let mut row = self.db.prepare_cached(
            "INSERT INTO topic_log (topic, topic_offset, num, collapse_key) VALUES (?1, ?2, ?3, ?4)",
        )?;
        let mut message = self.db.prepare_cached(
            "INSERT INTO notifications (num, app, created_at, expires_at, keep_until, topic, topic_offset, data,
                                        standing)
             VALUES (?1, 1, ?2, ?3, ?3, ?4, ?5, ?6, 1)",
        )?;
        let mut count = 0;
        for (topic, offset, num) in rows {
            let at = num >> 20;
            message.execute((num, at, at + 86_400_000, topic, offset, &self.data))?;
            count += row.execute((topic, offset, num, None::<&str>))?;
        }
        Ok(count)
    }

    fn remove(&self, rows: Vec<(i64, i64)>) -> rusqlite::Result<usize> {
        let mut delete = self.db.prepare_cached("DELETE FROM inbox WHERE device = ?1 AND num = ?2")?;
        let mut count = 0;
        for row in rows {
            count += delete.execute(row)?;
        }
        Ok(count)
    }
}

impl Engine for SqliteFloor {
    fn describe(&self) -> String {
        "SQLite alone: one thread, one prepared statement per row, rows in the order of arrival".to_owned()
    }

    fn fill(&mut self, rows: &mut Source) -> Result<(), Error> {
        let all = rows.fill();
        self.in_transaction(|| self.insert(all.into_iter()))?;
        Ok(())
    }

    fn commit(&mut self, rows: &mut Source, count: usize) -> Result<usize, Error> {
        match rows.plan.rows {
            Rows::Inbox => self.in_transaction(|| self.insert((0..count).map(|_| rows.inbox_row()))),
            Rows::Topic => self.in_transaction(|| self.append((0..count).map(|_| rows.log_row()))),
            Rows::Ack => {
                let taken = rows.take(count);
                self.in_transaction(|| self.remove(taken))
            }
        }
    }
}
