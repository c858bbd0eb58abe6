//! One cell as a front sees it: where it is, whether it answers, how much waits for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use http::header;
use noroshi_api::{Code, Problem};
use noroshi_store::cells::{CellNum, CellRecord};
use noroshi_types::AppId;
use tokio::sync::{Notify, Semaphore, watch};

use crate::client::{Answer, Ask, Client, Error};
use crate::config::CellConfig;
use crate::metrics::CellMetrics;

/// Requests to one cell at once, those of the relay apart: a slow cell must not take all that the front has.
const REQUESTS_MAX: usize = 256;
/// A cell whose nodes are upgraded one after the other was never away: whether it takes traces by now has to be tried.
const TRACES_AGAIN: Duration = Duration::from_secs(600);

/// Whether a cell takes lines that name a trace: those of older versions refuse a field that they do not know.
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
    /// Which of the URLs is used.
    url: AtomicUsize,
    weight: AtomicU32,
    draining: AtomicBool,
    /// Whether it answers. True until it is known better.
    up: watch::Sender<bool>,
    /// What became of the last line that named a trace, and when. The lock is held to read or replace it.
    traces: Mutex<(Traces, Instant)>,
    /// The front's apps by the numbers that the cell's device tokens have for them, as its admin address told them.
    /// The lock is held for a look-up or a replacement.
    apps: RwLock<HashMap<AppId, AppId>>,
    requests: Semaphore,
    /// Something new waits for it.
    pub(crate) work: Notify,
    /// Somebody could not reach it.
    pub(crate) doubt: Notify,
    /// Devices have to be moved.
    pub(crate) moving: Notify,
    /// Parts that wait, about.
    pub(crate) waiting: AtomicU64,
    /// An app was not known there.
    pub(crate) unprovisioned: Notify,
    /// Apps that it refuses for now, such as those over a quota there. The lock is held for a look or a replacement.
    apart: RwLock<Vec<AppId>>,
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
            doubt: Notify::new(),
            moving: Notify::new(),
            waiting: AtomicU64::new(0),
            unprovisioned: Notify::new(),
            apart: RwLock::default(),
            config,
        };
        cell.said(record);
        cell
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// Takes over what was said of it at run time.
    pub(crate) fn said(&self, record: &CellRecord) {
        self.weight.store(record.weight.unwrap_or(self.config.weight), Ordering::Relaxed);
        self.draining.store(record.draining, Ordering::Relaxed);
    }

    /// Its share of newcomers now.
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// True if that is new.
    pub(crate) fn set_up(&self, up: bool) -> bool {
        self.metrics.up.set(up.into());
        if up && !self.is_up() {
            // Perhaps in another version.
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
            Traces::Refused if since.elapsed() >= TRACES_AGAIN => Traces::Untried,
            _ => traces,
        }
    }

    /// Tells what it was before.
    pub(crate) fn note_traces(&self, traces: Traces) -> Traces {
        let noted = (traces, Instant::now());
        std::mem::replace(&mut *self.traces.lock().unwrap_or_else(PoisonError::into_inner), noted).0
    }

    /// The front's app that the cell means by this number in its device tokens.
    pub(crate) fn app_of(&self, number: AppId) -> Option<AppId> {
        self.apps.read().unwrap_or_else(PoisonError::into_inner).get(&number).copied()
    }

    /// How many apps it told its numbers of.
    pub(crate) fn apps_told(&self) -> usize {
        self.apps.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn set_apps(&self, apps: HashMap<AppId, AppId>) {
        *self.apps.write().unwrap_or_else(PoisonError::into_inner) = apps;
    }

    /// Whether the cell refuses what is for this app for now.
    pub(crate) fn refuses(&self, app: AppId) -> bool {
        self.apart.read().unwrap_or_else(PoisonError::into_inner).contains(&app)
    }

    pub(crate) fn set_apart(&self, apps: Vec<AppId>) {
        *self.apart.write().unwrap_or_else(PoisonError::into_inner) = apps;
    }

    /// For a request that somebody waits for: refused at once while the cell is known to be away.
    pub(crate) async fn request(&self, ask: Ask) -> Result<Answer, Problem> {
        if !self.is_up() {
            return Err(self.away());
        }
        let Ok(_permit) = self.requests.try_acquire() else {
            return Err(Problem::new(
                Code::Overloaded,
                format!("the cell {} has too much to do", self.name()),
            ));
        };
        self.ask(ask).await.map_err(|_| self.away())
    }

    /// Asks whatever is known of the cell.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Answer, Error> {
        let at = self.url.load(Ordering::Relaxed);
        let urls = &self.config.urls;
        let result = self.client.ask(&urls[at % urls.len()], ask).await;
        if let Err(error) = &result {
            self.metrics.failed.inc();
            tracing::debug!(cell = self.name(), %error, "a request failed");
            // Whoever fails first turns to the next address; the others only fail.
            let _ = self.url.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
            self.doubt.notify_one();
        }
        result
    }

    /// At the admin address, as the operator.
    pub(crate) async fn operate(&self, ask: Ask) -> Result<Answer, Error> {
        self.client.ask(&self.config.admin_url, ask).await
    }

    pub(crate) fn away(&self) -> Problem {
        away(self.name())
    }
}

pub(crate) fn away(name: &str) -> Problem {
    Problem::new(
        Code::CellUnavailable,
        format!("the cell {name} does not answer; what lives there waits for it"),
    )
}

impl Ask {
    pub(crate) const JSON: http::HeaderValue = http::HeaderValue::from_static("application/json");
    pub(crate) const NDJSON: http::HeaderValue = http::HeaderValue::from_static("application/x-ndjson");

    pub(crate) fn get(path: impl Into<String>, bearer: http::HeaderValue, timeout: Duration) -> Self {
        let (path, method) = (path.into(), http::Method::GET);
        Self { method, path, bearer, trace: None, content_type: None, body: Default::default(), timeout }
    }

    pub(crate) fn delete(path: impl Into<String>, bearer: http::HeaderValue, timeout: Duration) -> Self {
        Self { method: http::Method::DELETE, ..Self::get(path, bearer, timeout) }
    }

    pub(crate) fn post(
        path: impl Into<String>,
        bearer: http::HeaderValue,
        timeout: Duration,
        content_type: http::HeaderValue,
        body: impl Into<bytes::Bytes>,
    ) -> Self {
        let content_type = Some(content_type);
        Self {
            method: http::Method::POST,
            content_type,
            body: body.into(),
            ..Self::get(path, bearer, timeout)
        }
    }
}

impl Answer {
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Problem::internal(format!("a cell's answer: {error}")))
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let Answer { status, mut headers, body } = self;
        if body.is_empty() {
            headers.remove(header::CONTENT_TYPE);
        }
        (status, headers, body).into_response()
    }
}
