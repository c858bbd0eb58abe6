//! Counts in the store what limited apps hold, one app after the other, so that all counts take a small part of one
//! reader's time ([`super::counts`]). Apps without such limits are never counted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{AppId, Quota, Topic};

use super::app::{AppQuotas, Shown};
use super::{Quotas, counts};
use crate::context::Context;
use crate::error::Error;

/// How often the task looks for apps whose count is due.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long a batch of logins waits for the first count of an app. After that, its new devices must retry.
const FIRST_COUNT_TIMEOUT: Duration = Duration::from_millis(250);

pub struct Usage {
    pub(crate) context: Arc<Context>,
    pub(crate) quotas: Arc<Quotas>,
}

impl Usage {
    /// Counts apps as they are due. Never ends.
    pub(crate) async fn run(&self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            for app_quotas in
                self.quotas.all_limited().into_iter().filter(|app_quotas| app_quotas.counts.is_due())
            {
                if let Err(error) = self.count(&app_quotas).await {
                    tracing::warn!(app = %app_quotas.name(), %error, "could not count the rows of an app; retrying");
                }
            }
        }
    }

    /// Counts, unless another caller just did. Awaited by callers that cannot decide without a count: after a start,
    /// and after a limit was set on a quota that was not counted before. After a failed count it fails at once for a
    /// while, so that the callers that waited for that count do not each run one that fails.
    async fn count(&self, app_quotas: &Arc<AppQuotas>) -> Result<(), Error> {
        let _one = app_quotas.counts.counting.lock().await;
        if !app_quotas.counts.is_due() {
            return if app_quotas.counts.is_counted() { Ok(()) } else { Err(Error::Overloaded) };
        }
        let (wanted, start) = (app_quotas.counts.wanted(), app_quotas.counts.begin());
        match self.context.store.usage(app_quotas.app(), &wanted, self.context.now()).await {
            Ok(counted) => app_quotas.counts.end(&start, &counted),
            Err(error) => {
                app_quotas.counts.fail(start.began.elapsed());
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// The app, if it has any limit.
    pub(crate) fn limited(&self, app: AppId) -> Option<Arc<AppQuotas>> {
        self.quotas.limited(app)
    }

    /// The app, if it has any limit, with every count that its limits need.
    pub(super) async fn counted(&self, app: AppId) -> Result<Option<Arc<AppQuotas>>, Error> {
        let Some(app_quotas) = self.quotas.limited(app) else { return Ok(None) };
        if !app_quotas.counts.is_counted() {
            self.count(&app_quotas).await?;
        }
        Ok(Some(app_quotas))
    }

    /// Whether the app was counted, now or after a short wait. A count that takes longer continues.
    pub(super) async fn counted_soon(self: &Arc<Self>, app_quotas: &Arc<AppQuotas>) -> bool {
        if app_quotas.counts.is_counted() {
            return true;
        }
        let counts = &app_quotas.counts;
        let is_idle = counts.counting.try_lock().is_ok();
        let _ = tokio::time::timeout(FIRST_COUNT_TIMEOUT, async {
            match is_idle {
                true => {
                    let (usage, of) = (self.clone(), app_quotas.clone());
                    drop(self.context.runtime.spawn(async move { usage.count(&of).await }).await);
                }
                // Waits for the count that runs.
                false => drop(counts.counting.lock().await),
            }
        })
        .await;
        counts.is_counted()
    }

    /// Those of the topics that are new to the store, if their number is limited.
    pub(super) async fn unknown_topics<'a>(
        &self,
        app_quotas: &AppQuotas,
        topics: impl Iterator<Item = &'a Topic>,
    ) -> Result<BTreeSet<Topic>, Error> {
        if app_quotas.limit_of(Quota::Topics).is_none() {
            return Ok(BTreeSet::new());
        }
        let perhaps = app_quotas.topics.unknown(topics);
        if perhaps.is_empty() {
            return Ok(BTreeSet::new());
        }
        let unknown: BTreeSet<Topic> =
            self.context.store.unknown_topics(app_quotas.app(), &perhaps).await?.into_iter().collect();
        app_quotas.topics.learn(perhaps.iter().filter(|topic| !unknown.contains(*topic)));
        Ok(unknown)
    }

    /// Whether a front may forward messages of the app. Waits only briefly for the first count, because the front's
    /// next round waits for the answers of all apps.
    pub async fn admit_relay(self: &Arc<Self>, app: AppId) -> Result<(), Error> {
        if let Some(app_quotas) = self.quotas.limited(app)
            && !self.counted_soon(&app_quotas).await
            && let Some(quota) = app_quotas.counts.uncounted()
        {
            let limit = app_quotas.limit_of(quota).unwrap_or(u64::MAX);
            return Err(super::OverQuota { quota, limit, after: counts::RETRY_AFTER }.into());
        }
        Ok(())
    }

    /// The quotas of an app with the use that is known without a count; `None` for an app that was removed.
    pub fn known(&self, app: AppId) -> Option<Vec<Shown>> {
        Some(self.quotas.app(app)?.shown(|_| None))
    }

    /// The quotas of an app with its use; `None` for an app that was removed. `all` also counts quotas without a limit,
    /// which reads everything that the app holds.
    pub async fn shown(&self, app: AppId, all: bool) -> Result<Option<Vec<Shown>>, Error> {
        let Some(app_quotas) = self.quotas.app(app) else { return Ok(None) };
        if !app_quotas.counts.is_counted() || app_quotas.counts.is_due() {
            self.count(&app_quotas).await?;
        }
        let missing: Vec<Quota> =
            Quota::STORED.into_iter().filter(|quota| all && app_quotas.limit_of(*quota).is_none()).collect();
        let counted = self.context.store.usage(app, &missing, self.context.now()).await?;
        let of = |quota| counted.iter().find(|(counted, _)| *counted == quota).map(|(_, used)| *used);
        Ok(Some(app_quotas.shown(of)))
    }
}
