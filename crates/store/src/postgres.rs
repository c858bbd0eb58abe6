//! The store in a PostgreSQL database that all nodes of a cluster share.
//!
//! ```text
//!   accept ─► queue ─► one task (group commit under the order lock) ─┐
//!   note, record ─► queue ─► one task (written behind)              ├─► PostgreSQL
//!   everything else ─► transactions on a pool of connections        ─┘
//! ```
//!
//! The order of commits of what is accepted is the order of ids over all nodes: a group is written and handed
//! over under one advisory lock ([`accept`]). Everything else runs beside it, with row locks where two could
//! step on each other.
//!
//! Reading order: `options`, `connect`, `schema`, `transaction`, `ids`; then one file per subject with its SQL,
//! under the names that they have in [`crate::sqlite`].

mod ack;
mod app;
mod audience;
mod backlog;
mod campaign;
mod connect;
mod credential;
mod device;
mod options;
mod push;
mod schema;
mod session;
mod subscription;
mod tls;
mod topic;
mod transaction;

use std::sync::Arc;

use deadpool_postgres::Pool;
use prometheus_client::registry::Registry;
use tokio_util::task::TaskTracker;

use self::connect::Connector;
pub use self::options::{PostgresError, PostgresOptions};
use crate::ids::{self, Ids};
use crate::metrics::Metrics;

/// The store. Clones are handles to the same. What was queued is done after the last one is dropped, as long as
/// the runtime runs; [`crate::Maintenance::close`] waits for it.
#[derive(Clone)]
pub struct Postgres {
    pool: Pool,
    options: Arc<PostgresOptions>,
    ids: Arc<Ids>,
    metrics: Metrics,
    /// Writes under way.
    tasks: TaskTracker,
}

impl Postgres {
    /// Connects and brings the database up to date. Needs a tokio runtime, and goes on using it.
    pub async fn open(options: PostgresOptions, registry: &mut Registry) -> Result<Self, PostgresError> {
        let connector = Connector::new(&options)?;
        let metrics = Metrics::register(registry);
        let session = connector.session().await.map_err(|error| connector.failed(&error))?;
        connector.check_server(&session).await?;
        schema::migrate(&connector, &session).await?;
        let ids = load_ids(&session).await.map_err(|error| connector.failed(&error))?;
        let pool = connector.pool(&options)?;
        Ok(Self { pool, options: Arc::new(options), ids: Arc::new(ids), metrics, tasks: TaskTracker::new() })
    }

    fn is_closed(&self) -> bool {
        self.tasks.is_closed()
    }
}

/// The key of this database's ids is drawn once, by whichever node comes first.
async fn load_ids(client: &tokio_postgres::Client) -> Result<Ids, tokio_postgres::Error> {
    let mut fresh = [0; 16];
    fresh[..8].copy_from_slice(&ids::random_bits().to_le_bytes());
    fresh[8..].copy_from_slice(&ids::random_bits().to_le_bytes());
    let sql = "INSERT INTO secrets (name, value) VALUES ('$ids', $1) ON CONFLICT DO NOTHING";
    client.execute(sql, &[&fresh.as_slice()]).await?;
    let row = client.query_one("SELECT value FROM secrets WHERE name = '$ids'", &[]).await?;
    let mut key = [0; 16];
    let value: &[u8] = row.get(0);
    let bytes = value.len().min(16);
    key[..bytes].copy_from_slice(&value[..bytes]);
    Ok(Ids::new(&key, 0))
}
