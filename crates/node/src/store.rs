//! Opens the store: SQLite in the data folder, or a shared PostgreSQL database.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use noroshi_store::cells::Cells;
use noroshi_store::postgres::{Postgres, PostgresError, PostgresOptions};
use noroshi_store::{Sqlite, Store, sqlite};
use noroshi_supervision::Threads;
use noroshi_telemetry::Registry;

use crate::config::{Bus, Config};
use crate::data;

/// How long the order lock is held for a hand-over by links: until receivers have confirmed receipt, or Redis has taken
/// over from a link that failed (`noroshi_cluster::links`). Less than PostgreSQL's limit for an idle session.
const HAND_OVER_BY_LINKS: Duration = Duration::from_secs(1);

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
    /// The same store, for a front.
    pub(crate) cells: Arc<dyn Cells>,
    /// The same store, if nodes share it.
    pub(crate) postgres: Option<Postgres>,
    /// Locks the data folder, if the store does not.
    pub(crate) lock: Option<File>,
}

/// Also locks the data folder.
pub(crate) async fn open(
    config: &Config,
    threads: &Threads,
    registry: &mut Registry,
) -> Result<Opened, Error> {
    let folder = &config.server.data;
    let bus = config.cluster.bus;
    let device_token_ttl = config.auth.device_token_ttl;
    let config = &config.store;
    let Some(url) = &config.url else {
        let options = sqlite::Options {
            inbox_rows: config.inbox_rows,
            item_rows: config.item_rows,
            topic_log_rows: config.topic_log_rows,
            trace_retention: config.trace_retention,
            unused_topic_retention: config.unused_topic_retention,
            device_token_ttl,
            database_bytes_max: config.database_bytes_max,
            threads: threads.clone(),
            ..Default::default()
        };
        let store = Arc::new(Sqlite::open(folder, options, registry)?);
        return Ok(Opened { store: store.clone(), cells: store, postgres: None, lock: None });
    };
    let lock = data::lock(folder)?;
    let defaults = PostgresOptions::new(url.secret());
    let options = PostgresOptions {
        hand_over_timeout: match bus {
            Bus::Redis => defaults.hand_over_timeout,
            Bus::Direct => HAND_OVER_BY_LINKS,
        },
        inbox_rows: config.inbox_rows,
        item_rows: config.item_rows,
        topic_log_rows: config.topic_log_rows,
        trace_retention: config.trace_retention,
        unused_topic_retention: config.unused_topic_retention,
        device_token_ttl,
        connections: config.connections,
        statement_timeout: config.statement_timeout,
        threads: threads.clone(),
        ..defaults
    };
    let postgres = Postgres::open(options, registry).await?;
    let store = Arc::new(postgres.clone());
    Ok(Opened { store: store.clone(), cells: store, postgres: Some(postgres), lock: Some(lock) })
}
