//! What each app may use, and what it uses: the limits that apply, counters, token buckets, and the refusals.
//!
//! ```text
//!   auth's snapshot of apps ──► Quotas::configure ──► OfApp (limits, buckets, counts) ◄── refresh (store::Usages)
//!   API, gateway, senders   ──► take · reserve · enter ──► OverQuota, counted in `noroshi_quota_refused_total`
//! ```
//!
//! Decided here, enforced where a request, a connection or a subscription enters: `admit` has the decisions that need
//! the store. An app without limits costs one look at a map; nothing here is on the way of a fan-out, whose deliveries
//! are charged once a turn of a shard ([`Quotas::delivered`]).
//!
//! Rates and connections are of this node. What the store holds is counted there every few seconds (`refresh`) and
//! carried forward by what this node adds meanwhile (`stored`), so a single node does not add beyond a limit, and several
//! nodes pass it by what they add between two counts. Topics are the exception: see `known`. A lowered limit removes nothing: it refuses what is new.

pub(crate) mod admit;
mod entry;
mod held;
mod known;
mod metrics;
mod of_app;
pub(crate) mod refresh;
mod stored;
mod text;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use noroshi_types::quota::{Limits, Quota, Quotas as Overrides};
use noroshi_types::{AppId, AppName};
use parking_lot::Mutex;

pub use admit::{InOrder, Origin};
pub use held::{Admission, Held};
pub use metrics::Metrics;
pub use of_app::{OfApp, Permit};
pub use stored::Reservation;
pub use text::{limit, parse, to_text};

/// Why something was refused, and when to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the app's quota {} of {limit} is used up", .quota.as_str())]
pub struct OverQuota {
    pub quota: Quota,
    pub limit: u64,
    /// Earlier it is refused again.
    pub after: Duration,
}

impl OverQuota {
    /// Whole seconds for `Retry-After` (RFC 9110 §10.2.3), at least one.
    pub fn after_s(&self) -> u64 {
        (self.after.as_millis() as u64).div_ceil(1_000).max(1)
    }
}

/// One app as the configuration of quotas sees it.
#[derive(Debug, Clone)]
pub struct Configured {
    pub app: AppId,
    pub name: AppName,
    pub overrides: Overrides,
}

/// One quota of an app, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    pub quota: Quota,
    pub limit: Option<u64>,
    /// The app's own limit rather than the node's default.
    pub is_own: bool,
    /// None where it is not counted.
    pub used: Option<u64>,
    /// At this node since it started.
    pub refused: u64,
}

/// Owned by [`crate::Delivery`].
pub struct Quotas {
    apps: ArcSwap<HashMap<AppId, Arc<OfApp>>>,
    /// Of the configuration.
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

    /// The limits of apps that override nothing. To be called before [`Quotas::configure`].
    pub fn set_defaults(&self, defaults: Limits) {
        self.defaults.store(Arc::new(defaults));
    }

    /// All apps there are. Those that stay keep what was counted; of those that are gone everything is forgotten.
    pub fn configure(&self, apps: impl IntoIterator<Item = Configured>) {
        let _one = self.configuring.lock();
        let before = self.apps.load();
        let defaults = **self.defaults.load();
        let mut now = HashMap::new();
        for Configured { app, name, overrides } in apps {
            let of_app = match before.get(&app) {
                Some(of_app) => of_app.clone(),
                None => Arc::new(OfApp::new(app, name, self.metrics.clone())),
            };
            of_app.limit(defaults, overrides);
            now.insert(app, of_app);
        }
        for gone in before.iter().filter(|(app, _)| !now.contains_key(app)) {
            self.metrics.forget(gone.1.name());
        }
        self.apps.store(Arc::new(now));
    }

    /// None of an app that is gone, or was not told of yet.
    pub fn app(&self, app: AppId) -> Option<Arc<OfApp>> {
        self.apps.load().get(&app).cloned()
    }

    /// The app, if anything limits it.
    pub fn limited(&self, app: AppId) -> Option<Arc<OfApp>> {
        self.apps.load().get(&app).filter(|of_app| of_app.is_limited()).cloned()
    }

    pub(crate) fn all_limited(&self) -> Vec<Arc<OfApp>> {
        self.apps.load().values().filter(|of_app| of_app.is_limited()).cloned().collect()
    }

    pub fn limit(&self, app: AppId, quota: Quota) -> Option<u64> {
        self.apps.load().get(&app)?.limit_of(quota)
    }

    /// Takes tokens of a rate.
    pub fn take(&self, app: AppId, quota: Quota, count: u64) -> Result<(), OverQuota> {
        match self.limited(app) {
            Some(of_app) => of_app.take(quota, count),
            None => Ok(()),
        }
    }

    /// One token of `publishes_per_second` that was taken for a replay.
    pub fn give_back_publish(&self, app: AppId) {
        if let Some(of_app) = self.limited(app) {
            of_app.give_back(of_app::Rate::Publishes);
        }
    }

    /// Whether a rate has a token, for work that is worth nothing without one.
    pub fn check_rate(&self, app: AppId, quota: Quota) -> Result<(), OverQuota> {
        self.limited(app).map_or(Ok(()), |of_app| of_app.check_rate(quota))
    }

    /// A connection of a device whose token was verified. It counts until the permit is dropped. `replaces`: it takes the
    /// place of one that counts already, and so needs no room.
    pub fn enter(&self, app: AppId, replaces: impl FnOnce() -> bool) -> Result<Option<Permit>, OverQuota> {
        match self.app(app) {
            Some(of_app) => of_app.enter(replaces).map(Some),
            None => Ok(None),
        }
    }

    /// Topics that a device may subscribe to, at most `most`.
    pub fn subscriptions_max(&self, app: AppId, most: usize) -> usize {
        let limit = self.limit(app, Quota::SubscriptionsPerDevice);
        limit.map_or(most, |limit| usize::try_from(limit).unwrap_or(most).min(most))
    }

    /// Counts a refusal that was decided by [`Quotas::subscriptions_max`] or another limit that is no counter here.
    pub fn refused(&self, app: AppId, quota: Quota) -> Option<OverQuota> {
        let of_app = self.limited(app)?;
        let limit = of_app.limit_of(quota)?;
        Some(of_app.refuse(quota, limit, stored::RETRY_AFTER))
    }

    /// A count that somebody else keeps, such as API keys in memory.
    pub fn check(&self, app: AppId, quota: Quota, present: u64) -> Result<(), OverQuota> {
        let Some(of_app) = self.limited(app) else { return Ok(()) };
        match of_app.limit_of(quota) {
            Some(limit) if present >= limit => Err(of_app.refuse(quota, limit, stored::RETRY_AFTER)),
            _ => Ok(()),
        }
    }

    /// Messages that a shard wrote in its turn. The debt refuses publishes until it is repaid.
    pub fn delivered(&self, app: AppId, count: u64) {
        if let Some(of_app) = self.limited(app) {
            of_app.charge(Quota::DeliveriesPerSecond, count);
        }
    }

    /// Recipients of push work that was taken.
    pub(crate) fn pushed(&self, app: AppId, count: u64) {
        if let Some(of_app) = self.limited(app) {
            of_app.charge(Quota::PushesPerSecond, count);
        }
    }

    /// Apps whose push work waits, and for how long.
    pub(crate) fn push_debts(&self) -> Vec<(AppId, Duration)> {
        let apps = self.apps.load();
        let limited = apps.values().filter(|of_app| of_app.is_limited());
        let debts = limited.filter_map(|of_app| Some((of_app.app(), of_app.debt(Quota::PushesPerSecond)?)));
        debts.filter(|(_, debt)| !debt.is_zero()).collect()
    }
}
