//! Transactions on the pool: consistent reads, and writes that are retried where that is safe.
//!
//! Work is a function of a [`Tx`]. A `Tx` is cheap to clone, so statements that do not depend on each other can be
//! polled together (`tokio::try_join!`) and go out in one round trip; `BEGIN` goes out with the first of them. A
//! write may be called several times, each time in a new transaction; only the last one is committed.

use std::error::Error as _;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use deadpool_postgres::{Object, PoolError};
use futures_util::future::join;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, SimpleQueryMessage, Statement};

use super::{Postgres, StoreContext};
use crate::Error;
use crate::ids::Ids;
use crate::statement_log;

/// Values of a statement.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The status of a transaction; no row if this server does not know it after a failover. A server that crashed in the
/// meantime may have reused the number, so the answer is then unknown.
const STATUS: &str = "SELECT CASE WHEN pg_postmaster_start_time() > clock_timestamp() - make_interval(secs => $2)
          THEN 'unknown'
          WHEN $1::text::xid8 < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status($1::text::xid8) END";

/// How long rolling back may take before the connection is dropped.
const ROLL_BACK: Duration = Duration::from_secs(5);
/// Between two attempts of a write, doubled each time up to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// One attempt at work in a transaction, and the work that starts attempts. Both are boxed: the compiler generates retries,
/// timeouts and tasks once per type of answer instead of once for each of the 120 operations.
type Attempt<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failed>> + Send + 'a>>;
type Work<'a, T> = dyn Fn(Tx) -> Attempt<'a, T> + Sync + 'a;

/// Why work in a transaction failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// A refusal, which is not retried.
    Store(Error),
    /// The engine failed; another attempt may succeed.
    Database(tokio_postgres::Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<PoolError> for Failed {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error)
            | PoolError::PostCreateHook(deadpool_postgres::HookError::Backend(error)) => {
                Self::Database(error)
            }
            PoolError::Closed => Self::Store(Error::Closed),
            PoolError::Timeout(_) => Self::Store(Error::Overloaded),
            error => Self::Store(Error::Engine(error.to_string())),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Store(error) => error,
            Failed::Database(error) => error_of(&error),
        }
    }
}

impl Failed {
    /// Nothing was done, and another attempt may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Store(_) => false,
            Self::Database(error) => is_connection_lost(error) || error.code().is_some_and(is_transient_code),
        }
    }
}

/// The connection is gone, or there was none.
pub(super) fn is_connection_lost(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        // Class 08, and errors before a server closes the connection; 25P03 lost the transaction with the session.
        Some(code) => {
            code.code().starts_with("08")
                || [
                    &SqlState::ADMIN_SHUTDOWN,
                    &SqlState::CRASH_SHUTDOWN,
                    &SqlState::CANNOT_CONNECT_NOW,
                    &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                    &SqlState::READ_ONLY_SQL_TRANSACTION,
                ]
                .contains(&code)
        }
        None => error.is_closed() || error.source().is_some_and(|source| source.is::<std::io::Error>()),
    }
}

/// Caused by another transaction, or by an earlier statement sent in the same round trip whose own error was not read
/// and may be transient.
fn is_transient_code(code: &SqlState) -> bool {
    [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED].contains(&code)
        || is_unread(code)
}

fn is_unread(code: &SqlState) -> bool {
    *code == SqlState::IN_FAILED_SQL_TRANSACTION
}

/// The caller's error.
pub(super) fn error_of(error: &tokio_postgres::Error) -> Error {
    match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => Error::Full,
        // Class 53: memory, connections, a configured limit; or a timeout of a statement or a lock.
        Some(code)
            if code.code().starts_with("53")
                || [&SqlState::QUERY_CANCELED, &SqlState::LOCK_NOT_AVAILABLE].contains(&code) =>
        {
            Error::Overloaded
        }
        _ => Error::Engine(text_of(error)),
    }
}

/// With the text of the server or the operating system.
pub(crate) fn text_of(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    if let Some(source) = error.source() {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {source}");
    }
    text
}

/// A transaction. Dropping the last clone rolls it back, unless it was committed.
#[derive(Clone)]
pub(crate) struct Tx(Arc<Open>);

struct Open {
    /// `None` once it was returned.
    connection: Option<Object>,
    context: Arc<StoreContext>,
    mode: Mode,
    begun: AtomicBool,
    /// A statement failed, so the transaction can only be rolled back.
    broken: AtomicBool,
    /// The connection must not be reused, even if it is open: after a failover its server may be read-only.
    lost: AtomicBool,
    /// The transaction number of a write, to look up its status if the answer to its commit is lost.
    number: OnceLock<String>,
    made: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// One statement, which is consistent without a transaction.
    Ask,
    Read,
    Write,
}

impl Mode {
    fn begin(self) -> &'static str {
        match self {
            Self::Ask => "",
            Self::Read => {
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL plan_cache_mode = force_custom_plan"
            }
            Self::Write => {
                "BEGIN; SET LOCAL plan_cache_mode = force_custom_plan; SELECT pg_current_xact_id()::text"
            }
        }
    }
}

impl Tx {
    fn new(connection: Object, context: Arc<StoreContext>, mode: Mode) -> Self {
        Self(Arc::new(Open {
            connection: Some(connection),
            context,
            mode,
            begun: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            number: OnceLock::new(),
            made: Instant::now(),
        }))
    }

    pub(super) fn context(&self) -> &StoreContext {
        &self.0.context
    }

    pub(super) fn ids(&self) -> &Ids {
        &self.0.context.ids
    }

    fn connection(&self) -> &Object {
        self.0.connection.as_ref().expect("only Drop takes it")
    }

    /// Runs a statement, together with `BEGIN` if it is the first.
    async fn run<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failed> {
        let result = if self.0.mode == Mode::Ask || self.0.begun.swap(true, Ordering::Relaxed) {
            statement.await
        } else {
            match join(self.connection().simple_query(self.0.mode.begin()), statement).await {
                (Ok(answers), result) => {
                    self.note_number(&answers);
                    result
                }
                (Err(error), _) => Err(error),
            }
        };
        result.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: tokio_postgres::Error) -> Failed {
        self.0.broken.store(true, Ordering::Relaxed);
        // An unread error may be that the server no longer accepts writes.
        let lost = is_connection_lost(&error) || error.code().is_some_and(is_unread);
        self.0.lost.fetch_or(lost, Ordering::Relaxed);
        Failed::Database(error)
    }

    fn note_number(&self, answers: &[SimpleQueryMessage]) {
        for answer in answers {
            if let SimpleQueryMessage::Row(row) = answer
                && let Some(number) = row.get(0)
            {
                // Set once, by the first statement.
                let _ = self.0.number.set(number.to_owned());
            }
        }
    }

    async fn prepared(&self, sql: &str) -> Result<Statement, tokio_postgres::Error> {
        statement_log::postgres(sql);
        self.connection().prepare_cached(sql).await
    }

    pub(super) async fn query(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Failed> {
        let statement = self.prepared(sql).await?;
        self.run(self.connection().query(&statement, values)).await
    }

    /// Prepares statements that go out together in an order that matters: otherwise later statements would overtake
    /// one that must be prepared first.
    pub(super) async fn prepare(&self, statements: &[&str]) -> Result<(), Failed> {
        for sql in statements {
            self.prepared(sql).await?;
        }
        Ok(())
    }

    /// `None` if there is no row.
    pub(super) async fn query_opt(&self, sql: &str, values: Values<'_>) -> Result<Option<Row>, Failed> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    /// For statements that always return a row.
    pub(super) async fn query_one(&self, sql: &str, values: Values<'_>) -> Result<Row, Failed> {
        let row = self.query_opt(sql, values).await?;
        row.ok_or_else(|| Failed::Store(Error::Engine("a query returned no row".to_owned())))
    }

    /// How many rows it changed.
    pub(super) async fn execute(&self, sql: &str, values: Values<'_>) -> Result<u64, Failed> {
        let statement = self.prepared(sql).await?;
        self.run(self.connection().execute(&statement, values)).await
    }

    async fn commit(&self) -> Result<(), Failed> {
        if !self.0.begun.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.0.broken.load(Ordering::Relaxed) {
            return Err(Failed::Store(Error::Engine("a failed transaction cannot be committed".to_owned())));
        }
        self.connection().batch_execute("COMMIT").await.map_err(|error| self.failed(error))?;
        self.0.begun.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if *self.lost.get_mut() {
            // The pool's next connection goes to the server that accepts writes now.
            return drop(Object::take(connection));
        }
        if !*self.begun.get_mut() {
            return;
        }
        let roll_back = async move {
            let rolled_back = tokio::time::timeout(ROLL_BACK, connection.batch_execute("ROLLBACK")).await;
            if !matches!(rolled_back, Ok(Ok(()))) {
                // The connection must not be reused.
                drop(Object::take(connection));
            }
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(roll_back);
        }
    }
}

impl Postgres {
    /// Reads one state, which includes every commit that was answered before. Cancel-safe.
    pub(crate) async fn read<T: Send, R: Future<Output = Result<T, Failed>> + Send>(
        &self,
        work: impl Fn(Tx) -> R + Send + Sync,
    ) -> Result<T, Error> {
        self.read_as(Mode::Read, &|tx| Box::pin(work(tx))).await
    }

    /// As [`Self::read`], for a single statement, which is sent without `BEGIN`. Cancel-safe.
    pub(crate) async fn ask<T: Send, R: Future<Output = Result<T, Failed>> + Send>(
        &self,
        work: impl Fn(Tx) -> R + Send + Sync,
    ) -> Result<T, Error> {
        self.read_as(Mode::Ask, &|tx| Box::pin(work(tx))).await
    }

    async fn read_as<T: Send>(&self, mode: Mode, work: &Work<'_, T>) -> Result<T, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let started = Instant::now();
        let result = tokio::time::timeout(self.answer_timeout(), self.retry(mode, work)).await;
        self.metrics.read_seconds.observe(started.elapsed().as_secs_f64());
        result.unwrap_or(Err(Error::Overloaded))
    }

    /// Writes in one transaction (READ COMMITTED). Dropping the future loses the answer, but the write continues.
    pub(crate) async fn write<T, F, R>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(Tx) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let store = self.clone();
        let write: Pin<Box<dyn Future<Output = Result<T, Error>> + Send>> =
            Box::pin(async move { store.write_here(work).await });
        match self.tasks.spawn(write).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(Error::Engine("a write panicked".to_owned())),
            Err(_) => Err(Error::Closed),
        }
    }

    /// As [`Self::write`], on the caller's task, and also while the store closes.
    pub(super) async fn write_here<T: Send, R: Future<Output = Result<T, Failed>> + Send>(
        &self,
        work: impl Fn(Tx) -> R + Send + Sync,
    ) -> Result<T, Error> {
        self.write_as(&|tx| Box::pin(work(tx))).await
    }

    async fn write_as<T: Send>(&self, work: &Work<'_, T>) -> Result<T, Error> {
        let result = tokio::time::timeout(self.answer_timeout(), self.retry(Mode::Write, work)).await;
        result.unwrap_or(Err(Error::Overloaded))
    }

    /// Longer than the server's own timeouts.
    fn answer_timeout(&self) -> Duration {
        self.context.options.accept_wait + self.context.options.statement_timeout * 2
    }

    async fn retry<T: Send>(&self, mode: Mode, work: &Work<'_, T>) -> Result<T, Error> {
        let patience = Instant::now() + self.context.options.accept_wait;
        let mut pause = BACKOFF.0;
        loop {
            match self.once(mode, work).await {
                Ok(value) => return Ok(value),
                Err(failed) if failed.is_transient() && Instant::now() + pause < patience => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF.1);
                }
                Err(failed) => return Err(failed.into()),
            }
        }
    }

    async fn once<T: Send>(&self, mode: Mode, work: &Work<'_, T>) -> Result<T, Failed> {
        let tx = Tx::new(self.pool.get().await?, Arc::clone(&self.context), mode);
        let value = work(tx.clone()).await?;
        if mode != Mode::Write {
            return Ok(value);
        }
        match tx.commit().await {
            Ok(()) => Ok(value),
            Err(Failed::Database(error)) if is_connection_lost(&error) && self.was_committed(&tx).await? => {
                Ok(value)
            }
            Err(failed) => Err(failed),
        }
    }

    /// Whether a transaction was committed whose commit was not answered. An error if that cannot be determined.
    async fn was_committed(&self, tx: &Tx) -> Result<bool, Error> {
        let Some(number) = tx.0.number.get() else { return Ok(false) };
        let unknown = |why: &dyn std::fmt::Display| {
            Error::Engine(format!("the answer to a commit was lost, and its outcome is unknown: {why}"))
        };
        let patience = Instant::now() + self.context.options.accept_wait;
        loop {
            let found = match self.pool.get().await {
                Ok(connection) => connection
                    .query_one(STATUS, &[number, &(tx.0.made.elapsed().as_secs_f64() + 1.0)])
                    .await
                    .map(|row| row.get::<_, Option<String>>(0))
                    .map_err(Failed::from),
                Err(error) => Err(Failed::from(error)),
            };
            match found {
                Ok(Some(status)) if status == "committed" => return Ok(true),
                Ok(Some(status)) if status == "unknown" => {
                    return Err(unknown(&"the server was restarted"));
                }
                // The server has not noticed yet that the connection is gone.
                Ok(Some(status)) if status == "in progress" => {}
                Ok(_) => return Ok(false),
                Err(failed) if failed.is_transient() => {}
                Err(failed) => return Err(unknown(&Error::from(failed))),
            }
            if Instant::now() >= patience {
                return Err(unknown(&"the server does not report it"));
            }
            tokio::time::sleep(BACKOFF.1).await;
        }
    }
}
