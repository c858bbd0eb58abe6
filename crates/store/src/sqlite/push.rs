//! [`PushQueue`] for SQLite: `take` and `claim` (leases, and which devices still need a push), `finish` with `token`,
//! `walk`, and `recipient`.
//!
//! The queue's index for taking begins with lane, app, service and campaign. One seek finds the oldest row of each such
//! *group*. `take` reads the first row of every group and the rows it takes, but no rows that are busy, held, paused or
//! due later.

mod claim;
mod finish;
mod recipient;
mod take;
mod token;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{AppId, BatchId, CampaignId, DeviceNum, NotificationId, Timestamp};

use super::statement::ready;
use super::{Sqlite, audience, push_queue};
use crate::engine::push;
use crate::{
    Audience, AudiencePage, Error, Finished, FinishedCounts, Invalidation, Lease, NewBatch, PushContent,
    PushPart, PushQueue, PushRecipient, Renewal, Take, Taken, Walk, Walks, Work,
};

#[async_trait::async_trait]
impl PushQueue for Sqlite {
    async fn take(&self, take: Take) -> Result<Taken, Error> {
        self.write(take.batches_max, move |w| take::take(w, &take)).await
    }

    async fn renew(
        &self,
        leases: Vec<Lease>,
        until: Timestamp,
        _: Duration,
        why: Renewal,
    ) -> Result<Vec<BatchId>, Error> {
        self.write(leases.len(), move |w| push_queue::renew(w.db, &leases, until, why)).await
    }

    async fn finish(&self, finished: Vec<Finished>, now: Timestamp) -> Result<FinishedCounts, Error> {
        let rows = finished.iter().map(|one| 4 + one.parts.len() + one.again.len() + one.gone.len()).sum();
        self.write(rows, move |w| finish::finish(w, &finished, now)).await
    }

    async fn push_recipients(
        &self,
        app: AppId,
        work: Work,
        campaign: Option<CampaignId>,
        devices: Vec<DeviceNum>,
    ) -> Result<Vec<PushRecipient>, Error> {
        let ids = Arc::clone(&self.ids);
        self.read(move |db| recipient::find(db, &ids, app, work, campaign, &devices)).await
    }

    async fn push_content(&self, app: AppId, id: NotificationId) -> Result<Option<PushContent>, Error> {
        let ids = Arc::clone(&self.ids);
        self.read(move |db| recipient::content(db, &ids, app, id)).await
    }

    async fn walks(&self, now: Timestamp, limit: usize) -> Result<Walks, Error> {
        let ids = Arc::clone(&self.ids);
        self.read(move |db| walk::due(db, &ids, now, limit)).await
    }

    async fn walked(
        &self,
        walk: &Walk,
        batches: Vec<NewBatch>,
        cursor: Option<u64>,
        parts: Vec<PushPart>,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let rows = 2 + batches.len() + parts.len();
        let at = (walk.id, walk.cursor);
        self.write(rows, move |w| walk::walked(w.db, at, batches, cursor, &parts, now)).await
    }

    async fn audience(
        &self,
        app: AppId,
        audience: &Audience,
        after: u64,
        limit: usize,
    ) -> Result<AudiencePage, Error> {
        let audience = audience.clone();
        self.read(move |db| audience::page(db, app, &audience, after as i64, limit.max(1))).await
    }

    async fn invalidations(&self, app: AppId, after: u64, limit: usize) -> Result<Vec<Invalidation>, Error> {
        self.read(move |db| ready(push::invalidations(db, app, after, limit))).await
    }
}
