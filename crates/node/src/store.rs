//! Which store a node has: SQLite in its data folder, or a PostgreSQL database that it shares.

use std::fs::File;
use std::sync::Arc;

use noroshi_store::cells::Cells;
use noroshi_store::postgres::{Postgres, PostgresError, PostgresOptions};
use noroshi_store::{Sqlite, Store, sqlite};
use noroshi_supervision::Threads;
use noroshi_telemetry::Registry;

use crate::config::Config;
use crate::data;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenError),
    #[error("store.url: {0}")]
    Postgres(#[from] PostgresError),
    #[error(transparent)]
    Data(#[from] data::Error),
}

pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// The same, as a front uses it.
    pub(crate) cells: Arc<dyn Cells>,
    /// The same, where it is one that nodes share.
    pub(crate) postgres: Option<Postgres>,
    /// Of the data folder, where the store does not keep it locked.
    pub(crate) lock: Option<File>,
}

/// Locks the data folder too.
pub(crate) async fn open(
    config: &Config,
    threads: &Threads,
    registry: &mut Registry,
) -> Result<Opened, Error> {
    let folder = &config.server.data;
    let config = &config.store;
    let Some(url) = &config.url else {
        let options = sqlite::Options {
            inbox_rows: config.inbox_rows,
            topic_log_rows: config.topic_log_rows,
            trace_retention: config.trace_retention,
            database_bytes_max: config.database_bytes_max,
            threads: threads.clone(),
            ..Default::default()
        };
        let store = Arc::new(Sqlite::open(folder, options, registry)?);
        return Ok(Opened { store: store.clone(), cells: store, postgres: None, lock: None });
    };
    let lock = data::lock(folder)?;
    let options = PostgresOptions {
        inbox_rows: config.inbox_rows,
        topic_log_rows: config.topic_log_rows,
        trace_retention: config.trace_retention,
        connections: config.connections,
        statement_timeout: config.statement_timeout,
        threads: threads.clone(),
        ..PostgresOptions::new(url.secret())
    };
    let postgres = Postgres::open(options, registry).await?;
    let store = Arc::new(postgres.clone());
    Ok(Opened { store: store.clone(), cells: store, postgres: Some(postgres), lock: Some(lock) })
}
