//! Counts in the store what limited apps hold, one app after the other, so that all of it takes a small part of one
//! reader's time ([`super::stored`]). Apps without such limits are never counted.

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{AppId, Quota};

use super::{OfApp, Shown};
use crate::delivery::{Delivery, Error};

/// How often it is looked whose turn it is.
const LOOK: Duration = Duration::from_millis(500);

/// Never ends.
pub(crate) async fn run(delivery: &Delivery) {
    loop {
        tokio::time::sleep(LOOK).await;
        for of_app in delivery.quotas.all_limited().into_iter().filter(|of_app| of_app.counts.is_due()) {
            if let Err(error) = count(delivery, &of_app).await {
                tracing::warn!(app = %of_app.name(), %error, "what the app holds could not be counted; trying again");
            }
        }
    }
}

/// Counts unless somebody else just did. Awaited where nothing can be decided without it: after a start, and after a
/// quota was limited that was not counted before. After a count that failed it fails at once for a while, so those who
/// waited for that count do not each run one that fails.
pub(super) async fn count(delivery: &Delivery, of_app: &Arc<OfApp>) -> Result<(), Error> {
    let _one = of_app.counts.counting.lock().await;
    if !of_app.counts.is_due() {
        return if of_app.counts.is_counted() { Ok(()) } else { Err(Error::Overloaded) };
    }
    let (wanted, noted) = (of_app.counts.wanted(), of_app.counts.begin());
    match delivery.store.usage(of_app.app(), &wanted, delivery.clock.now()).await {
        Ok(counted) => of_app.counts.end(&noted, &counted),
        Err(error) => {
            of_app.counts.fail(noted.began.elapsed());
            return Err(error.into());
        }
    }
    Ok(())
}

impl Delivery {
    /// The quotas of an app with what is known of its use without counting; none of an app that is gone.
    pub fn known_quotas(&self, app: AppId) -> Option<Vec<Shown>> {
        Some(self.quotas.app(app)?.shown(|_| None))
    }

    /// The quotas of an app with what it uses; none of an app that is gone. `all` counts in the store what no limit
    /// needs, which reads all that the app holds.
    pub async fn shown_quotas(&self, app: AppId, all: bool) -> Result<Option<Vec<Shown>>, Error> {
        let Some(of_app) = self.quotas.app(app) else { return Ok(None) };
        if !of_app.counts.is_counted() || of_app.counts.is_due() {
            count(self, &of_app).await?;
        }
        let missing: Vec<Quota> =
            Quota::STORED.into_iter().filter(|quota| all && of_app.limit_of(*quota).is_none()).collect();
        let counted = self.store.usage(app, &missing, self.clock.now()).await?;
        let of = |quota| counted.iter().find(|(counted, _)| *counted == quota).map(|(_, used)| *used);
        Ok(Some(of_app.shown(of)))
    }
}
