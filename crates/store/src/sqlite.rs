//! The store in one SQLite database: `noroshi.db` in the data folder, in WAL mode.
//!
//! ```text
//!   trait method ─┬─ writes ─► writer (one thread, group commit) ─┐
//!                 └─ reads ──► readers (a thread and a read-only   ├─► noroshi.db
//!                              connection each)                   ─┘
//! ```
//!
//! Reading order: `options`, `schema`, `writer`, `reader`, `statement`; then files for subjects (`device`, `accept`,
//! `session`, `topic`, `push`, `campaign`, …) on top of files for tables (`notification`, `inbox`, `outcome`,
//! `push_queue`, `campaign_row`, …). A function that takes a `writer::Write` runs on the writer's thread inside an
//! operation; a function that takes a `reader::Read` or only a connection reads. `crate::calls` names the functions
//! that the traits' methods run.

mod accept;
pub(crate) mod ack;
pub(crate) mod audience;
pub(crate) mod backlog;
pub(crate) mod campaign;
mod campaign_row;
mod campaign_sum;
pub(crate) mod cells;
pub(crate) mod device;
mod expanding;
mod expiring;
mod idempotency;
pub(crate) mod inbox;
pub(crate) mod item;
pub(crate) mod listing;
pub(crate) mod lookup;
pub(crate) mod maintenance;
mod notification;
mod number;
pub(crate) mod opened;
mod options;
mod outcome;
pub(crate) mod push;
pub(crate) mod push_queue;
pub(crate) mod reader;
mod revocation;
mod room;
pub(crate) mod schema;
pub(crate) mod session;
pub(crate) mod share;
mod staged;
pub(crate) mod statement;
mod status;
mod subscription;
pub(crate) mod topic;
mod usage;
pub(crate) mod writer;

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use noroshi_supervision::{Heartbeat, Kind};
use prometheus_client::registry::Registry;
use rusqlite::{ErrorCode, OptionalExtension};
use tokio::sync::{oneshot, watch};

pub use self::options::{OpenError, Options};
use self::reader::{Read, Readers};
use self::schema::SchemaError;
use self::statement::Db;
use self::writer::{Write, Writer};
use crate::Error;
use crate::engine::clean_up;
use crate::engine::expansion::SLICE;
use crate::ids::{self, Ids};
use crate::metrics::Metrics;

/// Items that a commit writes in [`SLICE`], about: 100 µs each.
const SLICE_ITEMS: usize = 200;

/// The store. Dropping it finishes queued work, as [`crate::Maintenance::close`] does.
pub struct Sqlite {
    writer: Writer,
    readers: Readers,
    ids: Arc<Ids>,
    inbox_rows: u32,
    /// True once the writer's thread has ended and the folder is unlocked.
    ended: watch::Receiver<bool>,
    /// Joined by `drop`; no other lock is taken under it.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Sqlite {
    /// Opens the database in `folder`, and creates both if necessary. The folder is locked against other processes
    /// until the store is closed.
    pub fn open(folder: &Path, options: Options, registry: &mut Registry) -> Result<Self, OpenError> {
        let unwritable = |source| OpenError::Unwritable { path: folder.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unwritable)?;
        let lock = File::create(folder.join("noroshi.lock")).map_err(unwritable)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => OpenError::Locked { path: folder.to_owned() },
            TryLockError::Error(source) => unwritable(source),
        })?;
        let file = folder.join("noroshi.db");
        let failed = |error| open_error(&file, error);
        let db = schema::open_writer(&file, options.database_bytes_max).map_err(failed)?;
        push_queue::void_leases(&db).map_err(|error| failed(error.into()))?;
        let ids = Arc::new(load_ids(&db).map_err(|error| failed(error.into()))?);
        raise_token_ttl(&db, &options).map_err(|error| failed(error.into()))?;
        let reading = (0..options.reader_threads.max(1))
            .map(|_| schema::open_reader(&file))
            .collect::<rusqlite::Result<Vec<_>>>()
            .map_err(|error| failed(error.into()))?;

        let metrics = Metrics::register(registry);
        let (writer, work) = Writer::new(&options, metrics.clone());
        let (readers, reads) = Readers::new(&options, metrics);
        let (end, ended) = watch::channel(false);
        let mut threads = Vec::with_capacity(reading.len() + 1);
        let supervised = options.threads.clone();
        for (index, connection) in reading.into_iter().enumerate() {
            let (reads, ids) = (reads.clone(), Arc::clone(&ids));
            let read =
                move |pulse: &Heartbeat| reader::run(&reads, Read { db: &connection, ids: &ids }, pulse);
            let thread = supervised.spawn(Kind::StoreReader, format!("store-reader-{index}"), read);
            threads.push(thread.map_err(unwritable)?);
        }
        let (known_ids, inbox_rows) = (Arc::clone(&ids), options.inbox_rows);
        let write = move |pulse: &Heartbeat| {
            work.run(&db, &known_ids, &options, pulse);
            finish(db);
            drop(lock);
            end.send_replace(true);
        };
        let thread = supervised.spawn(Kind::StoreWriter, "store-writer", write);
        threads.push(thread.map_err(unwritable)?);
        Ok(Self { writer, readers, ids, inbox_rows, ended, threads: Mutex::new(threads) })
    }

    /// Writes in the next commit. Cancel-safe: dropping the future only loses the answer.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        rows: usize,
        work: impl FnOnce(&mut Write<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        // The caller may be gone and no longer need the answer.
        self.writer.submit(rows, work, move |result| drop(answer.send(result)));
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// As [`Self::write`], for work that can run again, and that neither reads inboxes or traces nor changes a row that
    /// the same commit adds.
    pub(crate) async fn write_repeatable<T: Send + 'static>(
        &self,
        rows: usize,
        work: impl Fn(&mut Write<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.writer.submit_repeatable(rows, work, move |result| drop(answer.send(result)));
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Writes items in order, in as many commits as it takes: each works for [`SLICE`], so that other writes run in
    /// between. After an error the items of earlier commits are written.
    pub(crate) async fn write_each<I: Send + 'static, T: Send + 'static>(
        &self,
        items: Vec<I>,
        rows: impl Fn(&I) -> usize,
        work: impl Fn(&mut Write<'_>, I) -> Result<T, Error> + Clone + Send + 'static,
    ) -> Result<Vec<T>, Error> {
        let (mut items, mut answers) = (VecDeque::from(items), Vec::new());
        while !items.is_empty() {
            let rows = items.iter().take(SLICE_ITEMS).map(&rows).sum();
            let (work, mut left) = (work.clone(), std::mem::take(&mut items));
            let slice = move |w: &mut Write<'_>| {
                let (started, mut written) = (Instant::now(), Vec::new());
                while let Some(item) = left.pop_front() {
                    written.push(work(w, item)?);
                    if started.elapsed() >= SLICE {
                        break;
                    }
                }
                Ok((left, written))
            };
            let written;
            (items, written) = self.write(rows, slice).await?;
            answers.extend(written);
        }
        Ok(answers)
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(Read<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.readers.read(work).await
    }

    /// Accepts no more work and waits until queued work is done.
    pub(crate) async fn close_and_wait(&self) {
        self.stop();
        // An error means that the writer's thread has ended, which is the condition to wait for.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    fn stop(&self) {
        self.writer.close();
        self.readers.close();
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.stop();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // An answer may drop the last handle on the thread that would be joined.
        let here = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != here) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

/// The key of this database's ids is drawn once. Numbers continue after the greatest one ever used, which SQLite
/// keeps even if its row is gone.
fn load_ids(db: &Db) -> rusqlite::Result<Ids> {
    let fresh = ids::draw_key();
    db.prepare_cached("INSERT OR IGNORE INTO secrets (name, value) VALUES ('$ids', ?1)")?
        .execute((fresh,))?;
    let key: [u8; 16] = db
        .prepare_cached("SELECT value FROM secrets WHERE name = '$ids'")?
        .query_row((), |row| row.get(0))?;
    let last = db
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'notifications'")?
        .query_row((), |row| row.get(0))
        .optional()?;
    Ok(Ids::new(&key, last.unwrap_or(0).max(accept::last_expansion(db)?)))
}

/// Before this node issues a token.
fn raise_token_ttl(db: &Db, options: &Options) -> rusqlite::Result<()> {
    let ttl = options.device_token_ttl.as_millis() as i64;
    db.prepare_cached(clean_up::RAISE)?.execute((ttl,)).map(drop)
}

/// Leaves a single file without a write-ahead log.
fn finish(db: Db) {
    if let Err(error) = db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(%error, "the write-ahead log could not be checkpointed; the next start does it");
    }
    if let Err((_, error)) = db.0.close() {
        tracing::warn!(%error, "the database could not be closed");
    }
}

fn open_error(file: &Path, error: SchemaError) -> OpenError {
    let path = file.to_owned();
    match error {
        SchemaError::Newer { found } => OpenError::Newer { path, found, known: schema::KNOWN_VERSION },
        SchemaError::Engine(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                OpenError::Corrupt { path, reason: error.to_string() }
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                OpenError::Unwritable { path, source: io::Error::other(error.to_string()) }
            }
            _ => OpenError::Engine { path, reason: error.to_string() },
        },
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Error::Full,
            _ => Error::Engine(error.to_string()),
        }
    }
}
