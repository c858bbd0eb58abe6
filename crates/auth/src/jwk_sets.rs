//! Fetches the JWK sets of all apps and decides when.
//!
//! A set is fetched when an operator creates or changes the app, then every ten minutes, and early when a token names a
//! key that the set lacks. Anyone can cause such a miss, so an early fetch concerns only the token's app, happens at
//! most every thirty seconds, and backs off while fetches fail. While fetches fail, the last set stays in use.
//!
//! At most [`FETCHES_MAX`] fetches run at once, each with its own deadline, so a server that does not answer delays no
//! other app. The URL may come from an untrusted party: the fetch goes through [`Egress`], which rejects addresses that
//! are not public, and follows no redirects.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use noroshi_egress::{Egress, Limits};
use noroshi_store::{App, AppSettings};
use noroshi_types::AppId;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::jwks::{Error, KeySet, Strictness};

const REFRESH_INTERVAL: Duration = Duration::from_secs(600);
const EARLY_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
const FETCH: Limits = Limits { body_bytes_max: 256 << 10, timeout: Duration::from_secs(10) };
/// Each fetch holds a socket and at most 256 KiB. 32 servers that hang until the timeout of 10 s delay the others by at
/// most 10 s, and are retried after [`EARLY_REFRESH_INTERVAL`] at the earliest, with backoff.
pub(crate) const FETCHES_MAX: usize = 32;

/// The state of one app.
#[derive(Default)]
struct Entry {
    set: Option<Arc<KeySet>>,
    /// When the last fetch started.
    fetched_at: Option<Instant>,
    failures: u32,
    /// A token named a key that the set lacks.
    missed: bool,
    in_flight: bool,
}

impl Entry {
    /// When the next fetch is due. None: now, because there was none yet.
    fn due_at(&self) -> Option<Instant> {
        let fetched_at = self.fetched_at?;
        let early = EARLY_REFRESH_INTERVAL.saturating_mul(1 << self.failures.min(8)).min(REFRESH_INTERVAL);
        let pause = if self.missed || self.failures > 0 { early } else { REFRESH_INTERVAL };
        Some(fetched_at + pause)
    }
}

pub(crate) struct JwkSets {
    /// The lock guards the map and is never held across an `.await`.
    entries: RwLock<HashMap<AppId, Entry>>,
    egress: Arc<Egress>,
    /// Notified when a fetch may be due earlier.
    pub(crate) changed: Notify,
}

impl JwkSets {
    pub(crate) fn new(egress: Arc<Egress>) -> Self {
        Self { entries: RwLock::default(), egress, changed: Notify::new() }
    }

    pub(crate) fn get(&self, app: AppId) -> Option<Arc<KeySet>> {
        self.entries.read().get(&app)?.set.clone()
    }

    /// Makes an early fetch due: a token names a key that the app's set lacks.
    pub(crate) fn miss(&self, app: &App) {
        if app.settings.jwks_url.is_none() || app.settings.jwks.is_some() {
            return; // A set that is given directly changes with the app.
        }
        // Repeated misses, the common case, take no write lock.
        if self.entries.read().get(&app.id).is_some_and(|entry| entry.missed) {
            return;
        }
        self.entries.write().entry(app.id).or_default().missed = true;
        self.changed.notify_one();
    }

    pub(crate) fn remove(&self, app: AppId) {
        self.entries.write().remove(&app);
    }

    /// Drops an app's keys at once because their source changed. Fetching the new ones may take a while.
    pub(crate) fn forget(&self, app: AppId) {
        self.entries.write().remove(&app);
        self.changed.notify_one();
    }

    /// Returns the apps whose sets are due, at most `room` of them, longest due first, and marks their fetches as in
    /// flight. Also returns when the next set is due.
    pub(crate) fn take_due(&self, apps: &[App], room: usize) -> (Vec<App>, Option<Instant>) {
        let now = Instant::now();
        let mut entries = self.entries.write();
        let (mut due, mut next) = (Vec::new(), None);
        for app in apps.iter().filter(|app| app.settings.jwks_url.is_some() && app.settings.jwks.is_none()) {
            match entries.get(&app.id) {
                Some(entry) if entry.in_flight => {}
                Some(entry) => match entry.due_at() {
                    Some(at) if at > now => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                    at => due.push((at, app)),
                },
                None => due.push((None, app)),
            }
        }
        due.sort_by_key(|(at, _)| *at);
        let taken: Vec<App> = due.into_iter().take(room).map(|(_, app)| app.clone()).collect();
        for app in &taken {
            let entry = entries.entry(app.id).or_default();
            (entry.in_flight, entry.missed, entry.fetched_at) = (true, false, Some(now));
        }
        (taken, next)
    }

    /// Fetches or parses one app's keys. On an error the last set stays. If the source of the app's keys changes during
    /// the fetch (`is_current` is false), the result is dropped.
    pub(crate) async fn refresh(&self, app: &App, is_current: impl Fn() -> bool) -> Result<(), Error> {
        let result = match source(&app.settings) {
            Some(Source::Given(json)) => self.parsed(app.id, json).map(Some),
            Some(Source::Url(url)) => match self.fetch(app.id, url).await {
                Ok(json) => self.parsed(app.id, &json).map(Some),
                Err(error) => Err(error),
            },
            None => Ok(None),
        };
        let mut entries = self.entries.write();
        if !is_current() {
            if let Some(entry) = entries.get_mut(&app.id) {
                entry.in_flight = false;
            }
            return result.map(|_| ());
        }
        let entry = entries.entry(app.id).or_default();
        entry.in_flight = false;
        entry.fetched_at.get_or_insert_with(Instant::now);
        match result {
            Ok(Some(set)) => (entry.set, entry.failures) = (Some(set), 0),
            Ok(None) => drop(entries.remove(&app.id)),
            Err(error) => {
                entry.failures = entry.failures.saturating_add(1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the present set if the text is the same, so that its verdicts stay valid.
    fn parsed(&self, app: AppId, json: &str) -> Result<Arc<KeySet>, Error> {
        match self.get(app).filter(|set| set.is_of(json)) {
            Some(set) => Ok(set),
            None => KeySet::parse(json, Strictness::Found).map(Arc::new),
        }
    }

    async fn fetch(&self, app: AppId, url: &str) -> Result<String, Error> {
        let body = self.egress.for_app(app.0).get(url, FETCH).await?;
        String::from_utf8(body.into()).map_err(|_| Error::NotText)
    }
}

/// Where an app's keys come from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    Given(&'a str),
    Url(&'a str),
}

pub(crate) fn source(settings: &AppSettings) -> Option<Source<'_>> {
    match (&settings.jwks, &settings.jwks_url) {
        (Some(json), _) => Some(Source::Given(json)),
        (None, Some(url)) => Some(Source::Url(url)),
        (None, None) => None,
    }
}
