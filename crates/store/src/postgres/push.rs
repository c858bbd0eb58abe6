//! [`PushQueue`] for PostgreSQL: `take` and `claim` (leases, and which devices still need a push), `finish` with `token`,
//! `walk`, and `recipient`. [`super::group`] writes the work of accepted requests.
//!
//! Several nodes take and finish at once. What they lock is described in `claim` (confirmations and claims),
//! [`super::push_queue`] (rows), `take` (leases) and [`super::campaign_row`] (the end of a campaign).

pub(super) mod claim;
mod finish;
mod recipient;
mod take;
mod token;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{AppId, BatchId, CampaignId, DeviceNum, NotificationId, Timestamp};

use super::transaction::Tx;
use super::{Postgres, audience, push_queue};
use crate::engine::push;
use crate::{
    Audience, AudiencePage, Error, Finished, FinishedCounts, Invalidation, Lease, NewBatch, PushContent,
    PushPart, PushQueue, PushRecipient, Renewal, Take, Taken, Walk, Walks, Work,
};

#[async_trait::async_trait]
impl PushQueue for Postgres {
    async fn take(&self, take: Take) -> Result<Taken, Error> {
        take::take(self, take).await
    }

    async fn renew(
        &self,
        leases: Vec<Lease>,
        until: Timestamp,
        lease: Duration,
        why: Renewal,
    ) -> Result<Vec<BatchId>, Error> {
        let (leases, holder) = (Arc::new(leases), self.holder);
        self.write(move |tx| {
            let leases = leases.clone();
            async move { push_queue::renew(&tx, holder, &leases, (until, lease), why).await }
        })
        .await
    }

    async fn finish(&self, finished: Vec<Finished>, now: Timestamp) -> Result<FinishedCounts, Error> {
        let (finished, keep_until) = (Arc::new(finished), self.keep_until(now));
        let ids = self.ids.clone();
        self.write(move |tx| {
            let (ids, finished) = (ids.clone(), finished.clone());
            async move { finish::finish(&tx, &ids, &finished, (now, keep_until)).await }
        })
        .await
    }

    async fn push_recipients(
        &self,
        app: AppId,
        work: Work,
        campaign: Option<CampaignId>,
        devices: Vec<DeviceNum>,
    ) -> Result<Vec<PushRecipient>, Error> {
        self.read(|tx| recipient::find(tx, &self.ids, app, work, campaign, &devices)).await
    }

    async fn push_content(&self, app: AppId, id: NotificationId) -> Result<Option<PushContent>, Error> {
        self.read(|tx| recipient::content(tx, &self.ids, app, id)).await
    }

    async fn walks(&self, now: Timestamp, limit: usize) -> Result<Walks, Error> {
        self.read(|tx| walk::due(tx, &self.ids, now, limit)).await
    }

    async fn walked(
        &self,
        walk: &Walk,
        batches: Vec<NewBatch>,
        cursor: Option<u64>,
        parts: Vec<PushPart>,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let (walk, from) = (walk.id as i64, walk.cursor as i64);
        let page = Arc::new(walk::Page { walk, from, batches, cursor, parts });
        self.write(move |tx| {
            let page = page.clone();
            async move { walk::walked(&tx, &page, now).await }
        })
        .await
    }

    async fn audience(
        &self,
        app: AppId,
        audience: &Audience,
        after: u64,
        limit: usize,
    ) -> Result<AudiencePage, Error> {
        self.read(|tx| audience::page(tx, app, audience, after as i64, limit.max(1))).await
    }

    async fn invalidations(&self, app: AppId, after: u64, limit: usize) -> Result<Vec<Invalidation>, Error> {
        self.read(async |tx: Tx| push::invalidations(&tx, app, after, limit).await).await
    }
}
