//! What each app may use: the limits that apply, counters, token buckets, and the refusals.
//!
//! ```text
//!   auth's snapshot of apps ──► Quotas::configure ──► AppQuotas (limits, buckets, counts) ◄── Usage (store::Usages)
//!   API, gateway, senders   ──► take · reserve · enter ──► OverQuota, counted in `noroshi_quota_refused_total`
//! ```
//!
//! [`Quotas`] decides what needs no store; [`Usage`] counts what apps have in the store, and decides on publishes
//! (`publish_admission`) and devices (`device_admission`). The code where a request, a connection or a subscription enters enforces the decision. An app without
//! limits costs one look at a map. A fan-out is not delayed: a shard charges its deliveries once in each of its turns
//! ([`Quotas::delivered`]).
//!
//! Rates and connections are limited for each node. `Usage` counts rows of the store every few seconds and adds what
//! this node wrote since (`counts`). So a single node stays within a limit, and several nodes exceed it at most by what
//! they add between two counts. Topics are the exception: see `known_topics`. A lowered limit removes nothing; it
//! refuses what is new.

mod admission;
mod app;
mod counts;
mod device_admission;
mod figures;
mod known_topics;
mod metrics;
mod publish_admission;
mod reservation;
mod text;
mod usage;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use noroshi_types::quota::{Limits, Quota, Quotas as Overrides};
use noroshi_types::{AppId, AppName, Outcome};
use parking_lot::Mutex;

pub use crate::error::OverQuota;
pub use admission::Admission;
pub use app::{AppQuotas, Permit, Shown};
pub use figures::{AppFigures, Counted};
pub use metrics::Metrics;
pub(crate) use publish_admission::Room;
pub use publish_admission::{InOrder, Origin};
pub use reservation::{Held, Reservation};
pub use text::{limit, parse, to_text};
pub use usage::Usage;

/// One app, with the limits that override the defaults.
#[derive(Debug, Clone)]
pub struct Configured {
    pub app: AppId,
    pub name: AppName,
    pub overrides: Overrides,
}

/// The limits of all apps, and the decisions that need no store.
pub struct Quotas {
    apps: ArcSwap<HashMap<AppId, Arc<AppQuotas>>>,
    /// The limits of apps that override nothing.
    defaults: ArcSwap<Limits>,
    /// Held while `apps` is replaced; nothing else is locked under it.
    configuring: Mutex<()>,
    metrics: Metrics,
}

impl Quotas {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            apps: ArcSwap::default(),
            defaults: ArcSwap::default(),
            configuring: Mutex::default(),
            metrics,
        }
    }

    /// Sets the limits of apps that override nothing. Call it before [`Quotas::configure`].
    pub fn set_defaults(&self, defaults: Limits) {
        self.defaults.store(Arc::new(defaults));
    }

    /// Sets all apps. Apps that existed before keep their counts; the counts of removed apps are forgotten.
    pub fn configure(&self, apps: impl IntoIterator<Item = Configured>) {
        let _one = self.configuring.lock();
        let before = self.apps.load();
        let defaults = **self.defaults.load();
        let mut now = HashMap::new();
        for Configured { app, name, overrides } in apps {
            let app_quotas = match before.get(&app) {
                Some(app_quotas) => app_quotas.clone(),
                None => Arc::new(AppQuotas::new(app, name, self.metrics.clone())),
            };
            app_quotas.limit(defaults, overrides);
            now.insert(app, app_quotas);
        }
        for gone in before.iter().filter(|(app, _)| !now.contains_key(app)) {
            self.metrics.forget(gone.1.name());
        }
        self.apps.store(Arc::new(now));
    }

    /// `None` for an app that was removed, or that [`Quotas::configure`] does not know yet.
    pub fn app(&self, app: AppId) -> Option<Arc<AppQuotas>> {
        self.apps.load().get(&app).cloned()
    }

    /// The app, if it has any limit.
    pub fn limited(&self, app: AppId) -> Option<Arc<AppQuotas>> {
        self.apps.load().get(&app).filter(|app_quotas| app_quotas.is_limited()).cloned()
    }

    pub(crate) fn all_limited(&self) -> Vec<Arc<AppQuotas>> {
        self.apps.load().values().filter(|app_quotas| app_quotas.is_limited()).cloned().collect()
    }

    pub fn limit(&self, app: AppId, quota: Quota) -> Option<u64> {
        self.apps.load().get(&app)?.limit_of(quota)
    }

    /// Takes tokens of a rate.
    pub fn take(&self, app: AppId, quota: Quota, count: u64) -> Result<(), OverQuota> {
        match self.limited(app) {
            Some(app_quotas) => app_quotas.take(quota, count),
            None => Ok(()),
        }
    }

    /// Returns one token of `publishes_per_second`, which was taken for a replayed request.
    pub fn give_back_publish(&self, app: AppId) {
        if let Some(app_quotas) = self.limited(app) {
            app_quotas.give_back(app::Rate::Publishes);
        }
    }

    /// Whether a rate has a token, for callers whose work would be useless without one.
    pub fn check_rate(&self, app: AppId, quota: Quota) -> Result<(), OverQuota> {
        self.limited(app).map_or(Ok(()), |app_quotas| app_quotas.check_rate(quota))
    }

    /// Counts a connection of a device with a verified token, until the permit is dropped. `replaces`: the connection
    /// replaces one that is already counted, and needs no room.
    pub fn enter(&self, app: AppId, replaces: impl FnOnce() -> bool) -> Result<Option<Permit>, OverQuota> {
        match self.app(app) {
            Some(app_quotas) => app_quotas.enter(replaces).map(Some),
            None => Ok(None),
        }
    }

    /// How many topics a device may subscribe to, at most `most`.
    pub fn subscriptions_max(&self, app: AppId, most: usize) -> usize {
        let limit = self.limit(app, Quota::SubscriptionsPerDevice);
        limit.map_or(most, |limit| usize::try_from(limit).unwrap_or(most).min(most))
    }

    /// Counts a refusal by [`Quotas::subscriptions_max`], or by another limit that has no counter here.
    pub fn refused(&self, app: AppId, quota: Quota) -> Option<OverQuota> {
        let app_quotas = self.limited(app)?;
        let limit = app_quotas.limit_of(quota)?;
        Some(app_quotas.refuse(quota, limit, counts::RETRY_AFTER))
    }

    /// Checks a count that the caller keeps, such as the number of API keys.
    pub fn check(&self, app: AppId, quota: Quota, present: u64) -> Result<(), OverQuota> {
        let Some(app_quotas) = self.limited(app) else { return Ok(()) };
        match app_quotas.limit_of(quota) {
            Some(limit) if present >= limit => Err(app_quotas.refuse(quota, limit, counts::RETRY_AFTER)),
            _ => Ok(()),
        }
    }

    /// Charges messages that a shard wrote in one turn. The debt refuses publishes until it is repaid.
    pub fn delivered(&self, app: AppId, count: u64) {
        if let Some(app_quotas) = self.apps.load().get(&app) {
            app_quotas.count(Counted::Deliveries, count);
            if app_quotas.is_limited() {
                app_quotas.charge(Quota::DeliveriesPerSecond, count);
            }
        }
    }

    /// Counts for the figures of an app, which no quota limits.
    pub(crate) fn count(&self, app: AppId, what: Counted, count: u64) {
        if let Some(app_quotas) = self.apps.load().get(&app) {
            app_quotas.count(what, count);
        }
    }

    /// Counts answers of push services.
    pub(crate) fn count_pushes(&self, app: AppId, outcome: Outcome, count: u64) {
        match outcome {
            Outcome::Pushed => self.count(app, Counted::PushesAccepted, count),
            Outcome::PushRefused | Outcome::PushTokenGone | Outcome::PushTokenSuspect => {
                self.count(app, Counted::PushesRefused, count);
            }
            _ => {}
        }
    }

    /// What this node counted for each app since it started, or since the app exists.
    pub fn figures(&self) -> Vec<AppFigures> {
        self.apps.load().values().map(|app_quotas| app_quotas.figures()).collect()
    }

    /// [`Self::figures`] of one app.
    pub fn figures_of(&self, app: AppId) -> Option<AppFigures> {
        Some(self.apps.load().get(&app)?.figures())
    }

    /// Charges recipients of push work that was taken.
    pub(crate) fn pushed(&self, app: AppId, count: u64) {
        if let Some(app_quotas) = self.limited(app) {
            app_quotas.charge(Quota::PushesPerSecond, count);
        }
    }

    /// Whether the app's push work has to wait, as far as this node knows: each node counts what it sends.
    pub fn pushes_wait(&self, app: AppId) -> bool {
        let debt = self.limited(app).and_then(|app_quotas| app_quotas.debt(Quota::PushesPerSecond));
        debt.is_some_and(|debt| !debt.is_zero())
    }

    /// Apps whose push work has to wait, and for how long.
    pub(crate) fn push_debts(&self) -> Vec<(AppId, Duration)> {
        let apps = self.apps.load();
        let limited = apps.values().filter(|app_quotas| app_quotas.is_limited());
        let debts = limited
            .filter_map(|app_quotas| Some((app_quotas.app(), app_quotas.debt(Quota::PushesPerSecond)?)));
        debts.filter(|(_, debt)| !debt.is_zero()).collect()
    }
}
