//! PostgreSQL: the conformance suite on a real server, and tests for this engine only.

mod clean_up;
mod concurrency;
mod deadlock;
mod expansion;
mod failure;
mod migration;
mod order;
mod people;
mod plans;
mod push;
mod round_trip;
mod schema;
mod server;

use std::time::Duration;

use noroshi_store::{Postgres, PostgresOptions};
use prometheus_client::registry::Registry;

use self::server::{Database, server};
use crate::conformance::{INBOX_ROWS, ITEM_ROWS, TOPIC_LOG_ROWS, maintenance::RETENTION_SECONDS};

fn options(database: &Database) -> PostgresOptions {
    PostgresOptions {
        inbox_rows: INBOX_ROWS,
        item_rows: ITEM_ROWS,
        topic_log_rows: TOPIC_LOG_ROWS,
        trace_retention: Duration::from_secs(RETENTION_SECONDS),
        connections: 8,
        // The machine may be busy with other work.
        accept_wait: Duration::from_secs(30),
        ..PostgresOptions::new(&database.url())
    }
}

async fn open(database: &Database) -> Postgres {
    Postgres::open(options(database), &mut Registry::default()).await.expect("opened")
}

/// A store in its own database on the server that all tests share.
async fn fresh() -> (Database, Postgres) {
    let database = server().database().await;
    let store = open(&database).await;
    (database, store)
}

/// Two nodes on one database.
async fn two() -> (Database, Postgres, Postgres) {
    let (database, store) = fresh().await;
    let other = open(&database).await;
    (database, store, other)
}

mod conformance {
    crate::conformance::conformance_tests!(crate::postgres::fresh().await);
    crate::conformance::cells_tests!(crate::postgres::fresh().await);
}
