//! One cell as the front sees it: its address, whether it answers, and how much is queued for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use noroshi_api::{Code, Problem};
use noroshi_store::cells::{CellNum, CellRecord};
use noroshi_types::AppId;
use tokio::sync::{Notify, Semaphore, watch};

use crate::client::{CellRequest, CellResponse, Client, Error};
use crate::config::CellConfig;
use crate::metrics::CellMetrics;

/// Concurrent requests to one cell, not counting the relay: a slow cell must not use up the front's resources.
const REQUESTS_MAX: usize = 256;
/// A cell whose nodes are upgraded one by one is never down, so the front retries traces after this time.
const TRACES_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Whether a cell accepts relay lines with a trace: older versions reject unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traces {
    Untried,
    Taken,
    Refused,
}

pub(crate) struct Cell {
    pub(crate) num: CellNum,
    pub(crate) config: CellConfig,
    pub(crate) metrics: CellMetrics,
    client: Client,
    /// Index of the URL in use.
    url: AtomicUsize,
    weight: AtomicU32,
    draining: AtomicBool,
    /// Whether it answers. Initially true.
    up: watch::Sender<bool>,
    /// The outcome of the last line with a trace, and when. The lock is held to read or replace it.
    traces: Mutex<(Traces, Instant)>,
    /// The front's app ids by the numbers in the cell's device tokens, as its admin address reported them. The lock is
    /// held for a lookup or a replacement.
    apps: RwLock<HashMap<AppId, AppId>>,
    requests: Semaphore,
    /// Notified when messages are queued for it.
    pub(crate) work: Notify,
    /// Notified when a request to it failed.
    pub(crate) probe_due: Notify,
    /// Notified when devices have to move.
    pub(crate) moving: Notify,
    /// The approximate number of queued parts.
    pub(crate) waiting: AtomicU64,
    /// Notified when the cell does not know an app.
    pub(crate) unprovisioned: Notify,
    /// Apps that it rejects for now, for example over a quota. The lock is held for a lookup or a replacement.
    deferred: RwLock<Vec<AppId>>,
}

impl Cell {
    pub(crate) fn new(record: &CellRecord, config: CellConfig, client: Client, metrics: CellMetrics) -> Self {
        metrics.up.set(1);
        let cell = Self {
            num: record.num,
            metrics,
            client,
            url: AtomicUsize::new(0),
            weight: AtomicU32::new(config.weight),
            draining: AtomicBool::new(false),
            up: watch::Sender::new(true),
            traces: Mutex::new((Traces::Untried, Instant::now())),
            apps: RwLock::default(),
            requests: Semaphore::new(REQUESTS_MAX),
            work: Notify::new(),
            probe_due: Notify::new(),
            moving: Notify::new(),
            waiting: AtomicU64::new(0),
            unprovisioned: Notify::new(),
            deferred: RwLock::default(),
            config,
        };
        cell.apply(record);
        cell
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Adopts the settings that operators changed at run time.
    pub(crate) fn apply(&self, record: &CellRecord) {
        self.weight.store(record.weight.unwrap_or(self.config.weight), Ordering::Relaxed);
        self.draining.store(record.draining, Ordering::Relaxed);
    }

    /// Its present share of new devices.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// True if the state changed.
    pub(crate) fn set_up(&self, up: bool) -> bool {
        self.metrics.up.set(up.into());
        if up && !self.is_up() {
            // It may run another version now.
            self.note_traces(Traces::Untried);
        }
        self.up.send_if_modified(|was| std::mem::replace(was, up) != up)
    }

    /// Cancel-safe.
    pub(crate) async fn until_up(&self) {
        // The sender lives as long as the cell.
        let _ = self.up.subscribe().wait_for(|up| *up).await;
    }

    pub(crate) fn traces(&self) -> Traces {
        let (traces, since) = *self.traces.lock().unwrap_or_else(PoisonError::into_inner);
        match traces {
            Traces::Refused if since.elapsed() >= TRACES_RETRY_AFTER => Traces::Untried,
            _ => traces,
        }
    }

    /// Returns the previous value.
    pub(crate) fn note_traces(&self, traces: Traces) -> Traces {
        let noted = (traces, Instant::now());
        std::mem::replace(&mut *self.traces.lock().unwrap_or_else(PoisonError::into_inner), noted).0
    }

    /// The front's app with this number in the cell's device tokens.
    pub(crate) fn app_of(&self, number: AppId) -> Option<AppId> {
        self.apps.read().unwrap_or_else(PoisonError::into_inner).get(&number).copied()
    }

    /// The number of apps whose numbers it has reported.
    pub(crate) fn apps_reported(&self) -> usize {
        self.apps.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn set_apps(&self, apps: HashMap<AppId, AppId>) {
        *self.apps.write().unwrap_or_else(PoisonError::into_inner) = apps;
    }

    /// Whether the cell rejects messages of this app for now.
    pub(crate) fn refuses(&self, app: AppId) -> bool {
        self.deferred.read().unwrap_or_else(PoisonError::into_inner).contains(&app)
    }

    pub(crate) fn set_deferred(&self, apps: Vec<AppId>) {
        *self.deferred.write().unwrap_or_else(PoisonError::into_inner) = apps;
    }

    /// For a request that a client waits for: fails at once while the cell is known to be down.
    pub(crate) async fn send_if_up(&self, request: CellRequest) -> Result<CellResponse, Problem> {
        if !self.is_up() {
            return Err(self.away());
        }
        let Ok(_permit) = self.requests.try_acquire() else {
            return Err(Problem::new(
                Code::Overloaded,
                format!("the cell {} has too many requests in flight", self.name()),
            ));
        };
        self.send(request).await.map_err(|_| self.away())
    }

    /// Sends even to a cell that is known to be down.
    pub(crate) async fn send(&self, request: CellRequest) -> Result<CellResponse, Error> {
        let at = self.url.load(Ordering::Relaxed);
        let urls = &self.config.urls;
        let result = self.client.send(&urls[at % urls.len()], request).await;
        if let Err(error) = &result {
            self.metrics.failed.inc();
            tracing::debug!(cell = self.name(), %error, "a request to the cell failed");
            // Only the first failure switches to the next address.
            let _ = self.url.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
            self.probe_due.notify_one();
        }
        result
    }

    /// Sends to the admin address, as the operator.
    pub(crate) async fn operate(&self, request: CellRequest) -> Result<CellResponse, Error> {
        self.client.send(&self.config.admin_url, request).await
    }

    pub(crate) fn away(&self) -> Problem {
        unavailable(self.name())
    }
}

pub(crate) fn unavailable(name: &str) -> Problem {
    Problem::new(Code::CellUnavailable, format!("the cell {name} does not answer; its devices have to wait"))
}
