//! The store in a PostgreSQL database that all nodes of a cluster share.
//!
//! ```text
//!   accept ─► queue ─► one task (group commit under the order lock) ─┐
//!   note, record ─► queue ─► one task (written behind)              ├─► PostgreSQL
//!   everything else ─► transactions on a pool of connections        ─┘
//! ```
//!
//! The order of commits of what is accepted is the order of ids over all nodes: a group is written and handed
//! over under one advisory lock (`accept`). Everything else runs beside it, with row locks where two could
//! step on each other.
//!
//! Reading order: `options`, `connect`, `schema`, `transaction`, `ids`; then one file per subject with its SQL,
//! under the names that they have in [`crate::sqlite`].

mod accept;
mod ack;
mod app;
mod audience;
mod backlog;
mod behind;
mod campaign;
mod cells;
mod connect;
mod credential;
mod definition;
mod device;
mod endpoint;
mod first_call;
mod group;
mod ids;
pub(crate) mod import;
mod inbox;
mod maintenance;
mod notification;
mod opening;
mod options;
mod order;
mod outcome;
mod purge;
mod push;
mod queue;
mod revocation;
mod schema;
mod session;
mod share;
mod slot;
mod subscription;
mod tls;
mod topic;
mod topic_log;
mod transaction;
mod usage;

use std::sync::{Arc, OnceLock};

use deadpool_postgres::{ClientWrapper, Pool};
use futures_util::future::BoxFuture;
use noroshi_supervision::Kind;
use noroshi_types::{AppId, DeviceId, NotificationId, Timestamp};
use prometheus_client::registry::Registry;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::accept::{Accepting, HandOver, Operation};
use self::behind::{Behind, Writing};
use self::connect::Connector;
use self::group::Mark;
use self::ids::Loose;
pub use self::options::{PostgresError, PostgresOptions};
use self::queue::Queue;
use crate::ids::Ids;
use crate::metrics::Metrics;
use crate::{
    Accept, Accepted, Cancelled, Departed, Done, Error, NotificationState, Notifications, OutcomePart, Trace,
    row,
};

/// The store. Clones are handles to the same. What was queued is done after the last one is dropped, as long as
/// the runtime runs; [`crate::Maintenance::close`] waits for it.
#[derive(Clone)]
pub struct Postgres {
    pool: Pool,
    options: Arc<PostgresOptions>,
    /// Names only: numbers are given out by [`accept`] and `loose`.
    ids: Arc<Ids>,
    loose: Arc<Loose>,
    /// This store among all that use the database at this time; above 0.
    holder: i64,
    metrics: Metrics,
    accepts: Arc<Queue<Operation>>,
    behind: Arc<Queue<Behind>>,
    hand_over: Arc<OnceLock<HandOver>>,
    /// The tasks, and writes under way. Closed with the store.
    tasks: TaskTracker,
    closing: CancellationToken,
    /// Cancels `closing` when the last handle is dropped; the tasks' own have none.
    _last: Option<Arc<DropGuard>>,
}

impl Postgres {
    /// Connects and brings the database up to date. Needs a tokio runtime, and goes on using it.
    pub async fn open(options: PostgresOptions, registry: &mut Registry) -> Result<Self, PostgresError> {
        let connector = Connector::new(&options)?;
        let metrics = Metrics::register(registry);
        let failed = |error: tokio_postgres::Error| connector.failed(&error);
        let session = connector.session().await.map_err(failed)?;
        connector.check_server(&session).await?;
        schema::migrate(&connector, &session).await?;
        let ids = load_ids(&session).await.map_err(failed)?;
        // Migrations may have waited for long, so their session has other limits.
        let session = connector.session().await.map_err(failed)?;
        let preferred = (crate::ids::random_bits() % ids::SLOTS as u64) as i64;
        let slot = slot::take(&session, preferred).await.map_err(failed)?;
        let slot = slot.ok_or_else(|| PostgresError::Slots { server: connector.server() })?;
        let last = last_number(&session).await.map_err(failed)?;

        let (accepts, accepts_queued) =
            queue::queue(options.write_queue, options.write_queue_rows, &options.threads);
        let (behind, behind_queued) = queue::queue(behind::CALLS_MAX, behind::ROWS_MAX, &options.threads);
        let store = Self {
            pool: connector.pool(&options)?,
            options: Arc::new(options),
            ids: Arc::new(ids),
            loose: Arc::new(Loose::new(last, slot)),
            holder: ((crate::ids::random_bits() >> 1) as i64).max(1),
            metrics,
            accepts: Arc::new(accepts),
            behind: Arc::new(behind),
            hand_over: Arc::new(OnceLock::new()),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            _last: None,
        };
        let accepting = Accepting {
            connector: connector.clone(),
            options: Arc::clone(&store.options),
            ids: Arc::clone(&store.ids),
            metrics: store.metrics.clone(),
            queued: accepts_queued,
            hand_over: Arc::clone(&store.hand_over),
            session: None,
            mark: Mark { instance: crate::ids::random_bits() as i64, count: 0 },
            pulse: store.options.threads.register(Kind::StoreTask, "store-accept"),
        };
        store.tasks.spawn(accepting.run());
        let pulse = store.options.threads.register(Kind::StoreTask, "store-behind");
        store.tasks.spawn(Writing { store: store.clone(), queued: behind_queued, pulse }.run());
        store.spawn_keeper(connector, session);
        let last = store.closing.clone().drop_guard();
        Ok(Self { _last: Some(Arc::new(last)), ..store })
    }

    /// Holds the slot until the last handle is dropped or the store closed, and then closes the queues.
    fn spawn_keeper(&self, connector: Connector, session: ClientWrapper) {
        let (loose, accepts, behind) =
            (Arc::clone(&self.loose), Arc::clone(&self.accepts), Arc::clone(&self.behind));
        let closing = self.closing.clone();
        let pulse = self.options.threads.register(Kind::StoreTask, "store-slot");
        tokio::spawn(async move {
            let _pulse = pulse;
            tokio::select! {
                () = slot::hold(connector, session, loose) => {}
                () = closing.cancelled() => {}
            }
            accepts.close();
            behind.close();
        });
    }

    /// What is awaited after each group that was accepted was answered, and before anything else is accepted by any
    /// node: what was accepted leaves in the order of commits. Set once.
    pub fn hand_over(&self, hand_over: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>) {
        if self.hand_over.set(hand_over).is_err() {
            tracing::error!("what is handed over was told twice");
        }
    }

    fn is_closed(&self) -> bool {
        self.tasks.is_closed()
    }
}

#[async_trait::async_trait]
impl Notifications for Postgres {
    fn accept(&self, accept: Accept, done: Done) {
        let rows = accept.request.target.named_count().unwrap_or(0) as usize + 1;
        let operation = Operation::new(accept, done);
        match self.accepts.push(rows, operation) {
            Ok(()) => drop(self.metrics.queue_operations.inc()),
            Err((operation, error)) => {
                self.metrics.refused.inc();
                operation.finish(Err(error));
            }
        }
    }

    fn note(&self, accept: Accept) -> Accepted {
        let num = self.loose.next(accept.now);
        let message = Arc::new(row::message_of(&accept, self.ids.id(num), None));
        let targets = accept.request.target.named_count();
        self.write_behind(1, Behind::Note(num, accept));
        Accepted { message, targets, parts: Vec::new(), departed: Departed::default(), replayed: false }
    }

    fn record(&self, parts: Vec<OutcomePart>) {
        if !parts.is_empty() {
            self.write_behind(parts.len(), Behind::Record(behind::parts_of(self, parts)));
        }
    }

    async fn notification(
        &self,
        app: AppId,
        id: NotificationId,
        now: Timestamp,
    ) -> Result<Option<NotificationState>, Error> {
        notification::state(self, app, id, now).await
    }

    async fn trace(&self, app: AppId, id: NotificationId, device: &DeviceId) -> Result<Option<Trace>, Error> {
        notification::trace(self, app, id, device).await
    }

    async fn cancel(&self, app: AppId, id: NotificationId, now: Timestamp) -> Result<Cancelled, Error> {
        notification::cancel(self, app, id, now).await
    }
}

impl Postgres {
    fn write_behind(&self, rows: usize, one: Behind) {
        if self.behind.push(rows, one).is_err() {
            self.metrics.dropped_behind.inc();
        }
    }
}

/// The key of this database's ids is drawn once, by whichever node comes first.
async fn load_ids(client: &tokio_postgres::Client) -> Result<Ids, tokio_postgres::Error> {
    let mut fresh = [0; 16];
    fresh[..8].copy_from_slice(&crate::ids::random_bits().to_le_bytes());
    fresh[8..].copy_from_slice(&crate::ids::random_bits().to_le_bytes());
    let sql = "INSERT INTO secrets (name, value) VALUES ('$ids', $1) ON CONFLICT DO NOTHING";
    client.execute(sql, &[&fresh.as_slice()]).await?;
    let row = client.query_one("SELECT value FROM secrets WHERE name = '$ids'", &[]).await?;
    let mut key = [0; 16];
    let value: &[u8] = row.get(0);
    let bytes = value.len().min(16);
    key[..bytes].copy_from_slice(&value[..bytes]);
    Ok(Ids::new(&key, 0))
}

/// The greatest number ever given out, as far as it can be known.
async fn last_number(client: &tokio_postgres::Client) -> Result<i64, tokio_postgres::Error> {
    let sql = "SELECT greatest((SELECT last FROM accept_order), (SELECT max(num) FROM notifications))";
    Ok(client.query_one(sql, &[]).await?.get(0))
}
