//! The cells of a front, with what every request to one of them needs: the front's key for the app, the store, the
//! clock. Workers and handlers share it; [`crate::front`] makes it. Knows no worker and no handler.

use std::sync::Arc;

use http::HeaderValue;
use noroshi_api::{Problem, State};
use noroshi_auth::key_hash;
use noroshi_store::KeyHash;
use noroshi_store::cells::{CellNum, Cells};
use noroshi_types::{AppId, AppName};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::cell::{Cell, unavailable};
use crate::client::{Client, bearer};
use crate::config::{CellConfig, Config};
use crate::error::Error;
use crate::metrics::Metrics;

/// Shared as `Arc<CellSet>`.
pub(crate) struct CellSet {
    pub(crate) config: Config,
    /// The API's state: apps, keys, limits and the clock.
    pub(crate) state: Arc<State>,
    pub(crate) store: Arc<dyn Cells>,
    /// In the order of the configuration.
    cells: Vec<Arc<Cell>>,
    /// Identifies this process among the fronts on one store.
    pub(crate) holder: u64,
    /// The front's keys for the cells derive from it.
    secret: hmac::Key,
}

impl CellSet {
    pub(crate) async fn open(
        config: Config,
        state: Arc<State>,
        store: Arc<dyn Cells>,
        metrics: Metrics,
    ) -> Result<Self, Error> {
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
        let client = Client::new(config.ca.clone(), config.request_timeout)?;
        let cell = |config: &CellConfig| {
            let record = records.iter().find(|record| record.name == config.name)?;
            let metrics = metrics.of(&config.name);
            Some(Arc::new(Cell::new(record, config.clone(), client.clone(), metrics)))
        };
        let cells = config.cells.iter().filter_map(cell).collect();
        Ok(Self {
            config,
            state,
            store,
            cells,
            holder: u64::from_ne_bytes(holder),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
        })
    }

    /// In the order of the configuration.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Arc<Cell>> {
        self.cells.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(crate) fn get(&self, num: CellNum) -> Result<&Arc<Cell>, Problem> {
        let found = self.cells.iter().find(|cell| cell.num == num);
        found.ok_or_else(|| unavailable("that is no longer in the front's configuration"))
    }

    pub(crate) fn named(&self, name: &str) -> Result<&Arc<Cell>, Problem> {
        let found = self.cells.iter().find(|cell| cell.name() == name);
        found.ok_or_else(|| Problem::not_found("cell"))
    }

    /// The cells that receive messages which name no users or devices: all of them.
    pub(crate) fn nums(&self) -> Arc<[CellNum]> {
        self.cells.iter().map(|cell| cell.num).collect()
    }

    pub(crate) fn app_name(&self, app: AppId) -> Result<AppName, Problem> {
        self.state.auth.app_name(app).ok_or_else(|| Problem::not_found("app"))
    }

    /// Whether some cell has not reported its numbers of all apps yet. A device token may then be valid although the
    /// front finds no device for it.
    pub(crate) fn misses_app_numbers(&self) -> bool {
        let apps = self.state.auth.apps_count();
        self.cells.iter().any(|cell| cell.apps_reported() < apps)
    }

    /// The front's own key for an app in a cell, as a header.
    pub(crate) fn key(&self, cell: &Cell, app: AppId) -> Result<HeaderValue, Problem> {
        bearer(&self.key_text(cell, &self.app_name(app)?))
    }

    pub(crate) fn key_hash(&self, cell: &Cell, app: &AppName) -> KeyHash {
        key_hash(&self.key_text(cell, app))
    }

    fn key_text(&self, cell: &Cell, app: &AppName) -> String {
        use base64::Engine;
        // Neither name contains a line break.
        let tag = hmac::sign(&self.secret, format!("{}\n{app}", cell.name()).as_bytes());
        format!("nk_{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }
}
