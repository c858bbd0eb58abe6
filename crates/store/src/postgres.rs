//! The store in a PostgreSQL database that all nodes of a cluster share.
//!
//! ```text
//!   accept ─► queue ─► one task (group commit under the order lock) ─┐
//!   note, record ─► queue ─► one task (in the background)              ├─► PostgreSQL
//!   ack ─► queue ─► one task (group commit)                            │
//!   everything else ─► transactions on a pool of connections        ─┘
//! ```
//!
//! Ids follow the order in which all nodes commit accepted notifications: a group is written and handed over under
//! one advisory lock (`accept`). Other work runs concurrently, with row locks where calls could conflict.
//!
//! Reading order: `options`, `connect`, `schema`, `transaction`, `statement`, `ids`; then files for subjects, under the
//! names of [`crate::sqlite`].

mod accept;
pub(crate) mod ack;
pub(crate) mod audience;
mod background;
pub(crate) mod backlog;
pub(crate) mod campaign;
mod campaign_row;
mod campaign_sum;
pub(crate) mod cells;
mod columns;
pub(crate) mod connect;
pub(crate) mod device;
mod expansion;
mod group;
mod ids;
pub(crate) mod inbox;
pub(crate) mod item;
pub(crate) mod listing;
pub(crate) mod lookup;
pub(crate) mod maintenance;
pub(crate) mod opened;
mod options;
mod order;
mod outcome;
pub(crate) mod push;
pub(crate) mod push_queue;
mod queue;
mod revocation;
pub(crate) mod schema;
pub(crate) mod session;
pub(crate) mod share;
mod slot;
mod statement;
mod status;
mod subscription;
mod tls;
pub(crate) mod topic;
mod topic_log;
pub(crate) mod transaction;
mod usage;

use std::sync::{Arc, OnceLock};

use deadpool_postgres::{ClientWrapper, Pool};
use futures_util::future::BoxFuture;
use noroshi_supervision::Kind;
use noroshi_types::{AppId, DeviceId, NotificationId, Timestamp};
use prometheus_client::registry::Registry;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::accept::{Acceptor, HandOver, Operation, Waiting};
use self::ack::{AckCall, AckWriter};
use self::background::{BackgroundWrite, BackgroundWriter};
use self::connect::Connector;
use self::group::{Mark, Ranks};
use self::ids::Loose;
pub use self::options::{PostgresError, PostgresOptions};
use self::queue::Queue;
use crate::engine::clean_up;
use crate::engine::notification::message_of;
use crate::engine::outcome::recorded;
use crate::engine::trace::trace;
use crate::ids::Ids;
use crate::metrics::Metrics;
use crate::{
    Accept, Accepted, Cancelled, Done, Error, NotificationState, Notifications, OutcomePart, RemovedMessages,
    Trace,
};

/// The store. Clones share it. Queued work is finished after the last clone is dropped, as long as the runtime runs;
/// [`crate::Maintenance::close`] waits for it.
#[derive(Clone)]
pub struct Postgres {
    pool: Pool,
    context: Arc<StoreContext>,
    metrics: Metrics,
    accepts: Arc<Queue<Operation>>,
    background: Arc<Queue<BackgroundWrite>>,
    acks: Arc<Queue<AckCall>>,
    hand_over: Arc<OnceLock<HandOver>>,
    /// The tasks, and writes in progress. Closed with the store.
    tasks: TaskTracker,
    closing: CancellationToken,
    /// Cancels `closing` when the last handle is dropped; the tasks' own clones have none.
    _last: Option<Arc<DropGuard>>,
}

/// What transactions and tasks of the store read.
struct StoreContext {
    options: PostgresOptions,
    /// Only converts ids; [`accept`] and `loose` give out numbers.
    ids: Ids,
    loose: Loose,
    /// Identifies this store among all that currently use the database; greater than 0.
    holder: i64,
}

impl StoreContext {
    /// Until when the trace of work that ends now is kept.
    fn keep_until(&self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.options.trace_retention)
    }
}

impl Postgres {
    /// Connects and upgrades the database. Needs a tokio runtime, which the store's tasks keep using.
    pub async fn open(options: PostgresOptions, registry: &mut Registry) -> Result<Self, PostgresError> {
        let connector = Connector::new(&options)?;
        let metrics = Metrics::register(registry);
        let failed = |error: tokio_postgres::Error| connector.failed(&error);
        let session = connector.session().await.map_err(failed)?;
        connector.check_server(&session).await?;
        schema::migrate(&connector, &session).await?;
        let ids = load_ids(&session).await.map_err(failed)?;
        raise_token_ttl(&session, &options).await.map_err(failed)?;
        // The session of the migrations has no timeouts, so it is not reused.
        let session = connector.session().await.map_err(failed)?;
        let preferred = (crate::ids::random_bits() % ids::SLOTS as u64) as i64;
        let slot = slot::take(&session, preferred).await.map_err(failed)?;
        let slot = slot.ok_or_else(|| PostgresError::Slots { server: connector.server() })?;
        let last = last_number(&session).await.map_err(failed)?;

        let (accepts, accepts_queued) =
            queue::queue(options.write_queue, options.write_queue_rows, &options.threads);
        let (acks, acks_queued) =
            queue::queue(options.write_queue, options.write_queue_rows, &options.threads);
        let (background, background_queued) =
            queue::queue(background::CALLS_MAX, background::ROWS_MAX, &options.threads);
        let store = Self {
            pool: connector.pool(&options)?,
            context: Arc::new(StoreContext {
                options,
                ids,
                loose: Loose::new(last, slot),
                holder: ((crate::ids::random_bits() >> 1) as i64).max(1),
            }),
            metrics,
            accepts: Arc::new(accepts),
            background: Arc::new(background),
            acks: Arc::new(acks),
            hand_over: Arc::new(OnceLock::new()),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            _last: None,
        };
        let accepting = Acceptor {
            store: store.clone(),
            waiting: Waiting::default(),
            connector: connector.clone(),
            context: Arc::clone(&store.context),
            metrics: store.metrics.clone(),
            queued: accepts_queued,
            hand_over: Arc::clone(&store.hand_over),
            session: None,
            ranks: Ranks::default(),
            mark: Mark { instance: crate::ids::random_bits() as i64, count: 0 },
            pulse: store.context.options.threads.register(Kind::StoreTask, "store-accept"),
        };
        store.tasks.spawn(accepting.run());
        let pulse = store.context.options.threads.register(Kind::StoreTask, "store-behind");
        store.tasks.spawn(BackgroundWriter { store: store.clone(), queued: background_queued, pulse }.run());
        let pulse = store.context.options.threads.register(Kind::StoreTask, "store-ack");
        store.tasks.spawn(AckWriter { store: store.clone(), queued: acks_queued, pulse }.run());
        store.spawn_keeper(connector, session);
        let last = store.closing.clone().drop_guard();
        Ok(Self { _last: Some(Arc::new(last)), ..store })
    }

    /// Holds the slot until the last handle is dropped or the store is closed, and then closes the queues.
    fn spawn_keeper(&self, connector: Connector, session: ClientWrapper) {
        let (accepts, background, acks) =
            (Arc::clone(&self.accepts), Arc::clone(&self.background), Arc::clone(&self.acks));
        let context = Arc::clone(&self.context);
        let closing = self.closing.clone();
        let pulse = self.context.options.threads.register(Kind::StoreTask, "store-slot");
        tokio::spawn(async move {
            let _pulse = pulse;
            tokio::select! {
                () = slot::hold(connector, session, &context.loose) => {}
                () = closing.cancelled() => {}
            }
            accepts.close();
            background.close();
            acks.close();
        });
    }

    /// Sets the callback that is awaited after the answers of each accepted group, before any node accepts more, so
    /// that accepted messages are handed over in commit order. Set once.
    pub fn hand_over(&self, hand_over: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>) {
        if self.hand_over.set(hand_over).is_err() {
            tracing::error!("the hand-over callback was set twice");
        }
    }

    fn is_closed(&self) -> bool {
        self.tasks.is_closed()
    }
}

#[async_trait::async_trait]
impl Notifications for Postgres {
    fn accept(&self, accept: Accept, done: Done) {
        let rows = accept::rows_of(&accept);
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
        let num = self.context.loose.next(accept.now);
        let message = message_of(&accept, self.context.ids.id(num), None);
        let accepted = Accepted::new(&accept, message, Vec::new(), RemovedMessages::default());
        self.write_in_background(1, BackgroundWrite::Note(num, Box::new(accept)));
        accepted
    }

    fn record(&self, parts: Vec<OutcomePart>) {
        if !parts.is_empty() {
            self.write_in_background(
                parts.len(),
                BackgroundWrite::Record(recorded(&self.context.ids, parts)),
            );
        }
    }

    async fn notification(
        &self,
        app: AppId,
        id: NotificationId,
        now: Timestamp,
    ) -> Result<Option<NotificationState>, Error> {
        status::state(self, app, id, now).await
    }

    async fn trace(&self, app: AppId, id: NotificationId, device: &DeviceId) -> Result<Option<Trace>, Error> {
        self.read(async |tx| trace(&tx, tx.ids(), id, app, device).await).await
    }

    async fn cancel(&self, app: AppId, id: NotificationId, now: Timestamp) -> Result<Cancelled, Error> {
        status::cancel(self, app, id, now).await
    }
}

impl Postgres {
    fn write_in_background(&self, rows: usize, one: BackgroundWrite) {
        if self.background.push(rows, one).is_err() {
            self.metrics.dropped_behind.inc();
        }
    }
}

/// The key of this database's ids is drawn once, by the first node.
async fn load_ids(client: &tokio_postgres::Client) -> Result<Ids, tokio_postgres::Error> {
    let fresh = crate::ids::draw_key();
    let sql = "INSERT INTO secrets (name, value) VALUES ('$ids', $1) ON CONFLICT DO NOTHING";
    client.execute(sql, &[&fresh.as_slice()]).await?;
    let row = client.query_one("SELECT value FROM secrets WHERE name = '$ids'", &[]).await?;
    let mut key = [0; 16];
    let value: &[u8] = row.get(0);
    let bytes = value.len().min(16);
    key[..bytes].copy_from_slice(&value[..bytes]);
    Ok(Ids::new(&key, 0))
}

/// Before this node issues a token.
async fn raise_token_ttl(
    client: &tokio_postgres::Client,
    options: &PostgresOptions,
) -> Result<(), tokio_postgres::Error> {
    let ttl = options.device_token_ttl.as_millis() as i64;
    client.execute(clean_up::RAISE, &[&ttl]).await.map(drop)
}

/// The greatest number ever given out, as far as the database shows.
async fn last_number(client: &tokio_postgres::Client) -> Result<i64, tokio_postgres::Error> {
    let sql = "SELECT greatest((SELECT last FROM accept_order), (SELECT max(num) FROM notifications))";
    Ok(client.query_one(sql, &[]).await?.get(0))
}
