//! Slows publishers down where more arrives than connections or the store can take, and rejects only what found no
//! room in time.
//!
//! Three gates, one for each queue that delays messages: those of the shards for named recipients and for topics, and
//! the store's. A request passes the gate of its recipients, and the store's if it must be stored. What it may add to
//! a queue counts from then on.
//!
//! ```text
//!   publish ─► gate of the shards ─► gate of the store ─► Store::accept ─► Edge::deliver
//!                  ▲                     ▲                     │                │
//!                  │                     └── committed ────────┘                │
//!                  └── advance: a shard wrote, the outbox sent a round ─────────┘
//! ```
//!
//! Invariant: shards and the store have hard bounds of their own, so an error of an estimate delays, and loses nothing.

mod fair_queue;
mod gate;
mod pace;
mod waiting;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use noroshi_telemetry::{Histogram, metrics};
use noroshi_types::{AppId, Request, Target, Topic, Urgency, When, limits};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use crate::cluster::Nodes;
use crate::context::Context;
use crate::edge::Fan;
use crate::error::Error;
use gate::{Gate, Held, Limits, Resource};
pub use pace::Pace;
use waiting::Entrant;

/// Rows that may always wait for the store: fewer would make its commits small, and a slow disk slower.
const STORE_ROWS_MIN: usize = 8_192;
/// A row takes 10 µs on SQLite.
const STORE_ROW_NS: u64 = 10_000;

#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// How long a request waits for room.
    pub wait_max: Duration,
    /// How long a message may wait in a queue of the node.
    pub delay_max: Duration,
    /// Requests that wait at a gate.
    pub waiting_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            wait_max: limits::PUBLISH_WAIT_MAX,
            delay_max: limits::PUBLISH_DELAY_MAX,
            waiting_max: limits::PUBLISHES_WAITING_MAX,
        }
    }
}

metrics! {
    pub(crate) struct Metrics {
        publishes_delayed: Counter = "Publish requests that waited for room in a queue of the node",
        publish_wait_seconds: Histogram = "Time that delayed publish requests waited for room, with those that were rejected",
    }
}

pub struct Backpressure {
    settings: Arc<Settings>,
    context: Arc<Context>,
    nodes: Arc<Nodes>,
    /// In the order of [`Fan`].
    shards: [Arc<Gate<Shards>>; 2],
    store: Arc<Gate<StoreQueue>>,
    metrics: Metrics,
}

/// A request that may be published. Dropped when its messages are queued and committed.
#[derive(Default)]
pub struct Admitted {
    _shards: Option<Held<Shards>>,
    _store: Option<Held<StoreQueue>>,
}

/// Who wants to publish.
#[derive(Debug, Clone, Copy)]
pub(crate) struct By {
    pub(crate) app: AppId,
    pub(crate) is_campaign: bool,
    pub(crate) may_wait: bool,
}

/// What a request needs of the node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    fan: Fan,
    urgency: Urgency,
    recipients: usize,
    /// `None`: the store does not take part.
    rows: Option<usize>,
}

/// What a request with a list of recipients needs, known before its body is parsed.
#[derive(Debug, Clone, Copy)]
pub struct Outline {
    /// The length of the list.
    pub recipients: usize,
    pub urgency: Urgency,
    pub when: When,
    /// Only for connected recipients, without anything that must survive a crash.
    pub is_transient: bool,
}

impl From<Outline> for Needs {
    /// Deliveries of a stored message to named recipients are not reserved: the store commits fewer rows than shards
    /// write.
    fn from(outline: Outline) -> Self {
        let Outline { recipients, urgency, when, is_transient } = outline;
        let rows = if when == When::Stored { recipients + 1 } else { 1 };
        Self {
            fan: Fan::Named,
            urgency,
            recipients: if is_transient { recipients } else { 0 },
            rows: (!is_transient).then_some(rows),
        }
    }
}

impl Backpressure {
    pub(crate) fn new(context: Arc<Context>, nodes: Arc<Nodes>, metrics: Metrics) -> Self {
        let settings = Arc::new(Settings::default());
        let shards = |fan| {
            Gate::new(Shards {
                context: context.clone(),
                nodes: nodes.clone(),
                settings: settings.clone(),
                fan,
            })
        };
        let pace = Mutex::new(Pace::new(STORE_ROW_NS));
        Self {
            shards: [shards(Fan::Named), shards(Fan::Topic)],
            store: Gate::new(StoreQueue { settings: settings.clone(), begun: Instant::now(), pace }),
            settings,
            context,
            nodes,
            metrics,
        }
    }

    /// Set once, before anything is published. A second call is ignored.
    pub fn configure(&self, config: Config) {
        let _ = self.settings.0.set(config);
    }

    /// Whether the request may be published now.
    pub(crate) fn try_admit(&self, needs: Needs) -> Option<Admitted> {
        let shards = self.shards[needs.fan as usize].try_enter(needs.recipients)?;
        let store = needs.rows.map(|rows| self.store.try_enter(rows).ok_or(())).transpose().ok()?;
        Some(Admitted { _shards: Some(shards), _store: store })
    }

    /// Waits until the request may be published. Cancel-safe.
    pub(crate) async fn admit(&self, by: By, needs: Needs) -> Result<Admitted, Error> {
        let Config { wait_max, waiting_max, .. } = self.settings.get();
        let who = Entrant { app: by.app, urgency: needs.urgency, is_campaign: by.is_campaign };
        let begun = tokio::time::Instant::now();
        let wait_max = if by.may_wait { wait_max } else { Duration::ZERO };
        let limits = || Limits { wait_max: wait_max.saturating_sub(begun.elapsed()), waiting_max };
        let admitted = async {
            let shards = self.shards[needs.fan as usize].enter(who, needs.recipients, limits()).await?;
            let store = match needs.rows {
                Some(rows) => Some(self.store.enter(who, rows, limits()).await?),
                None => None,
            };
            Ok(Admitted { _shards: Some(shards), _store: store })
        };
        let admitted: Result<Admitted, gate::NoRoom> = admitted.await;
        self.metrics.publishes_delayed.inc();
        self.metrics.publish_wait_seconds.observe(begun.elapsed());
        admitted.map_err(|no_room| Error::NoRoom { after: no_room.after })
    }

    /// A queue became shorter: lets requests in that wait. Costs a load for each gate if none waits. Never blocks.
    pub fn advance(&self) {
        self.shards.iter().for_each(|gate| gate.advance());
    }

    /// Lets requests in when the queue for other nodes, or those on them, become shorter. Runs until it is dropped.
    pub(crate) async fn run(&self) {
        let Some(peers) = self.nodes.peers() else { return std::future::pending().await };
        let mut progress = peers.outbox.progress();
        loop {
            tokio::select! {
                // The sender is in the outbox: it cannot be gone.
                _ = progress.changed() => {}
                () = peers.loads.changed() => {}
            }
            self.advance();
        }
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.shards.iter().map(|gate| gate.waiting()).sum::<usize>() + self.store.waiting()
    }

    /// Whether requests wait. Costs three loads.
    pub(crate) fn is_waiting(&self) -> bool {
        self.shards.iter().any(|gate| gate.is_waiting()) || self.store.is_waiting()
    }

    /// `is_transient`: as in [`Outline`].
    pub(crate) fn needs(&self, app: AppId, request: &Request, is_transient: bool) -> Needs {
        let Request { target, urgency, when, .. } = request;
        let named = |recipients| Outline { recipients, urgency: *urgency, when: *when, is_transient }.into();
        let sessions =
            |topic: &Topic| self.context.edge().map_or(0, |edge| edge.topic_sessions(app, topic) as usize);
        let recipients = match target {
            Target::Users(users) => return named(users.len()),
            Target::Devices(devices) => return named(devices.len()),
            Target::Condition(_) if *when == When::Stored => 0,
            Target::Topic(topic) => sessions(topic),
            Target::Everyone => sessions(&Topic::everyone()),
            Target::Condition(condition) => condition.topics().into_iter().map(sessions).sum(),
        };
        let rows = (!is_transient).then_some(1);
        Needs { fan: Fan::of(target), urgency: *urgency, recipients, rows }
    }
}

impl std::fmt::Debug for Backpressure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backpressure").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

/// The configuration, once it is known.
#[derive(Default)]
struct Settings(OnceLock<Config>);

impl Settings {
    fn get(&self) -> Config {
        self.0.get().copied().unwrap_or_default()
    }
}

/// The shards of this node, and in a cluster the queue for the bus and the shards of the gateways.
struct Shards {
    context: Arc<Context>,
    nodes: Arc<Nodes>,
    settings: Arc<Settings>,
    fan: Fan,
}

impl Resource for Shards {
    fn delay(&self, more: usize) -> Option<Duration> {
        let here = self.context.edge().map_or(Some(Duration::ZERO), |edge| edge.delay(self.fan, more))?;
        let elsewhere = self.nodes.peers().map_or(Duration::ZERO, |peers| peers.loads.delay(self.fan));
        Some(here.max(elsewhere))
    }

    fn has_room(&self, held: usize) -> bool {
        let delay_max = self.settings.get().delay_max;
        self.context.edge().is_none_or(|edge| edge.has_room(self.fan, held, delay_max))
            && self
                .nodes
                .peers()
                .is_none_or(|peers| peers.outbox.has_room() && peers.loads.delay(self.fan) < delay_max)
    }
}

/// The store's queue. A request holds its units until its commit, so what is held is the queue.
struct StoreQueue {
    settings: Arc<Settings>,
    begun: Instant,
    pace: Mutex<Pace>,
}

impl StoreQueue {
    fn delay_of(&self, rows: usize) -> Duration {
        Duration::from_nanos(self.pace.lock().unit_ns().saturating_mul(rows as u64))
    }
}

impl Resource for StoreQueue {
    fn delay(&self, more: usize) -> Option<Duration> {
        Some(self.delay_of(more))
    }

    fn has_room(&self, held: usize) -> bool {
        held < STORE_ROWS_MIN || self.delay_of(held) < self.settings.get().delay_max
    }

    fn ended(&self, units: usize, held: usize) {
        let now_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.pace.lock().observe(now_ns, units as u64, held > 0);
    }
}
