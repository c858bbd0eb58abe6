//! The front: its cells, what it keeps, and the work behind requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use noroshi_api::{Problem, State};
use noroshi_auth::key_hash;
use noroshi_store::KeyHash;
use noroshi_store::cells::{Assign, CellNum, Cells, Residence};
use noroshi_types::{AppId, AppName, DeviceId, UserId};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cell::{Cell, away};
use crate::choose::{Candidate, choose};
use crate::client::Client;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::outbox::{self, Outbox, Waiter};
use crate::{moves, probe, provision, relay, upkeep};

/// Why a front cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", .0.iter().map(|(path, rule)| format!("{path}: {rule}")).collect::<Vec<_>>().join("; "))]
    Config(Vec<(String, &'static str)>),
    #[error(transparent)]
    Store(#[from] noroshi_store::Error),
    #[error(transparent)]
    Egress(#[from] noroshi_egress::ConfigError),
    #[error("the system has no randomness")]
    Randomness,
}

/// Shared as `Arc<Front>`.
pub struct Front {
    pub(crate) config: Config,
    pub(crate) state: Arc<State>,
    pub(crate) store: Arc<dyn Cells>,
    /// In the order of the configuration.
    pub(crate) cells: Vec<Arc<Cell>>,
    pub(crate) outbox: Outbox,
    /// Who this process is among fronts on one store.
    pub(crate) holder: u64,
    /// Keys for cells are made from it.
    secret: hmac::Key,
    /// What [`Front::run`] works on. The lock is held for a `take`.
    accepting: Mutex<Option<mpsc::Receiver<Waiter>>>,
}

impl Front {
    /// `state` is that of an API whose delivery has no connections: apps, keys and limits are taken from it; `store`
    /// is the same database.
    pub async fn new(
        config: Config,
        state: Arc<State>,
        store: Arc<dyn Cells>,
        metrics: Metrics,
    ) -> Result<Arc<Self>, Error> {
        let wrong = config.problems();
        if !wrong.is_empty() {
            return Err(Error::Config(wrong));
        }
        let mut fresh = vec![0; 32];
        SystemRandom::new().fill(&mut fresh).map_err(|_| Error::Randomness)?;
        let mut holder = [0; 8];
        SystemRandom::new().fill(&mut holder).map_err(|_| Error::Randomness)?;
        let secret = state.delivery.store().secret("front-key", fresh).await?;
        let records = store.enrol(config.cells.iter().map(|cell| cell.name.clone()).collect()).await?;
        let client = Client::new(config.ca.clone())?;
        let cell = |config: &crate::CellConfig| {
            let record = records.iter().find(|record| record.name == config.name)?;
            let metrics = metrics.of(&config.name);
            Some(Arc::new(Cell::new(record, config.clone(), client.clone(), metrics)))
        };
        let cells = config.cells.iter().filter_map(cell).collect();
        let (outbox, accepting) = outbox::new();
        let front = Arc::new(Self {
            config,
            state,
            store,
            cells,
            outbox,
            holder: u64::from_ne_bytes(holder),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            accepting: Mutex::new(Some(accepting)),
        });
        upkeep::measure(&front).await?;
        Ok(front)
    }

    /// Hands on what was accepted, watches the cells, moves devices, until `end` resolves. Call it once. What is
    /// under way then is done again at the next start, and is the same by its key.
    pub async fn run(self: Arc<Self>, end: impl Future<Output = ()>) {
        let Some(accepting) = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(outbox::run(self.clone(), accepting));
        tasks.spawn(upkeep::run(self.clone()));
        for cell in &self.cells {
            tasks.spawn(probe::run(self.clone(), cell.clone()));
            tasks.spawn(relay::run(self.clone(), cell.clone()));
            tasks.spawn(provision::run(self.clone(), cell.clone()));
            tasks.spawn(moves::run(self.clone(), cell.clone()));
        }
        tokio::select! {
            () = end => {}
            // None of them ends by itself: whoever supervises the node starts it anew.
            Some(ended) = tasks.join_next() => match ended {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => tracing::error!("a task of the front ended"),
            },
        }
        tasks.shutdown().await;
        relay::leave(&self).await;
    }

    pub(crate) fn cell(&self, num: CellNum) -> Result<&Arc<Cell>, Problem> {
        let found = self.cells.iter().find(|cell| cell.num == num);
        found.ok_or_else(|| away("that is not in the front's configuration any more"))
    }

    pub(crate) fn named(&self, name: &str) -> Result<&Arc<Cell>, Problem> {
        let found = self.cells.iter().find(|cell| cell.name() == name);
        found.ok_or_else(|| Problem::not_found("cell"))
    }

    /// Cells that what names no users or devices goes to.
    pub(crate) fn everywhere(&self) -> Arc<[CellNum]> {
        self.cells.iter().map(|cell| cell.num).collect()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.config.request_timeout
    }

    pub(crate) fn app_name(&self, app: AppId) -> Result<AppName, Problem> {
        self.state.auth.app_name(app).ok_or_else(|| Problem::not_found("app"))
    }

    /// Whether a cell has not told its numbers of all apps yet, so that a device token may be good although no device
    /// is found for it.
    pub(crate) fn is_unsure(&self) -> bool {
        let apps = self.state.auth.apps_count();
        self.cells.iter().any(|cell| cell.apps_told() < apps)
    }

    /// The front's own key for an app in a cell, as a header.
    pub(crate) fn key(&self, cell: &Cell, app: AppId) -> Result<HeaderValue, Problem> {
        let key = self.key_text(cell, &self.app_name(app)?);
        HeaderValue::from_str(&format!("Bearer {key}")).map_err(Problem::internal)
    }

    pub(crate) fn key_hash(&self, cell: &Cell, app: &AppName) -> KeyHash {
        key_hash(&self.key_text(cell, app))
    }

    fn key_text(&self, cell: &Cell, app: &AppName) -> String {
        use base64::Engine;
        // Neither name holds a line break.
        let tag = hmac::sign(&self.secret, format!("{}\n{app}", cell.name()).as_bytes());
        format!("nk_{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    /// Where the device would go if nothing were known: among cells that answer, else among all that take newcomers.
    pub(crate) fn newcomers_cell(
        &self,
        app: AppId,
        device: &DeviceId,
        user: Option<&UserId>,
    ) -> Result<CellNum, Problem> {
        let key = match user {
            Some(user) => (app.0, "user", user.as_str()),
            None => (app.0, "device", device.as_str()),
        };
        let open = |must_answer: bool| {
            let cells =
                self.cells.iter().filter(move |cell| !cell.is_draining() && (!must_answer || cell.is_up()));
            cells.map(|cell| Candidate { cell: cell.num, name: cell.name(), weight: cell.weight() })
        };
        choose(&key, open(true)).or_else(|| choose(&key, open(false))).ok_or_else(|| {
            let detail = "no cell takes new devices: all are draining or have the weight 0";
            Problem::new(noroshi_api::Code::CellUnavailable, detail)
        })
    }

    /// Where devices live, in order; those that live nowhere yet get a place.
    pub(crate) async fn assign(
        &self,
        app: AppId,
        devices: &[(DeviceId, Option<UserId>)],
    ) -> Result<Vec<Result<Residence, Problem>>, Problem> {
        let assigned = devices.iter().map(|(device, user)| {
            let fresh = self.newcomers_cell(app, device, user.as_ref());
            fresh.map(|fresh| Assign { device: device.clone(), user: user.clone(), fresh })
        });
        let assigned = assigned.collect::<Result<Vec<_>, _>>()?;
        let answers = self.store.assign(app, assigned, self.state.now()).await?;
        let refused = |error| match error {
            noroshi_store::Error::Conflict => moving(),
            error => error.into(),
        };
        Ok(answers.into_iter().map(|answer| answer.map_err(refused)).collect())
    }

    pub(crate) async fn assign_one(
        &self,
        app: AppId,
        device: DeviceId,
        user: Option<UserId>,
    ) -> Result<Residence, Problem> {
        let one = self.assign(app, &[(device, user)]).await?.pop();
        one.unwrap_or_else(|| Err(Problem::internal("the store assigned nothing")))
    }

    /// These came to the cell they were on their way to. Those that were sent elsewhere meanwhile.
    pub(crate) async fn arrived(
        &self,
        app: AppId,
        devices: &[(DeviceId, Residence)],
    ) -> Result<Vec<DeviceId>, Problem> {
        let away = devices.iter().filter(|(_, residence)| residence.step.is_away());
        let away: Vec<_> = away.map(|(device, residence)| (device.clone(), residence.cell)).collect();
        let mut elsewhere = Vec::new();
        if !away.is_empty() {
            elsewhere = self.store.arrived(app, away).await?;
        }
        for (_, residence) in devices {
            if let Some(Ok(previous)) = residence.previous.map(|previous| self.cell(previous)) {
                previous.moving.notify_one();
            }
        }
        Ok(elsewhere)
    }
}

/// For a device that goes elsewhere at this moment.
pub(crate) fn moving() -> Problem {
    let detail = "the device is just being moved from one cell to another; try again";
    Problem::new(noroshi_api::Code::Unavailable, detail)
}
