//! Rows of the push queue.
//!
//! What several nodes do at once to the same row is kept apart by its lock: a take passes over rows that are
//! locked, everybody else waits. Rows are always locked in the order of their ids.

use std::collections::BTreeMap;
use std::time::Duration;

use noroshi_types::{AppId, BatchId, CampaignId, DeviceNum, Lane, Outcome, PushService, Timestamp};

use crate::ids::Num;
use crate::postgres::campaign::{self, CampaignNum, Count};
use crate::postgres::transaction::{Failed, Tx};
use crate::row::Fallback;
use crate::{Lease, Renewal, VariantNum, device_list};

/// Milliseconds by the engine's clock, which all nodes have in common.
pub(super) const ENGINE_NOW: &str = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint";

/// What the rows of one piece of work have in common.
#[derive(Debug, Clone, Copy)]
pub(in crate::postgres) struct Entry {
    pub app: AppId,
    pub lane: Lane,
    /// None: to be published.
    pub service: Option<PushService>,
    /// 0: of none.
    pub campaign: CampaignNum,
    /// 0: the campaign's message.
    pub num: Num,
    /// Of the campaign's experiment: drawn for all of a row that is written. None: nobody was drawn for yet, or it is
    /// what rows of a batch that ended have in common.
    pub variant: Option<VariantNum>,
    pub due_at: Timestamp,
    pub attempt: u32,
    pub fallback: Fallback,
}

/// Batches to be put onto the queue by one statement, column by column.
#[derive(Default)]
pub(in crate::postgres) struct NewRows {
    apps: Vec<i64>,
    lanes: Vec<i64>,
    services: Vec<i64>,
    campaigns: Vec<i64>,
    nums: Vec<i64>,
    variants: Vec<i64>,
    dues: Vec<i64>,
    attempts: Vec<i64>,
    fallbacks: Vec<i64>,
    recipients: Vec<Vec<u8>>,
}

impl NewRows {
    /// One batch; `recipients` must be sorted. Nothing is written for nobody.
    pub(in crate::postgres) fn push(&mut self, entry: &Entry, recipients: &[DeviceNum]) {
        if recipients.is_empty() {
            return;
        }
        self.apps.push(entry.app.0.into());
        self.lanes.push(entry.lane as i64);
        self.services.push(service_code(entry.service));
        self.campaigns.push(entry.campaign);
        self.nums.push(entry.num);
        self.variants.push(VariantNum::code(entry.variant).into());
        self.dues.push(entry.due_at.0 as i64);
        self.attempts.push(entry.attempt.into());
        self.fallbacks.push(entry.fallback as i64);
        self.recipients.push(device_list::encode(recipients));
    }

    pub(in crate::postgres) async fn insert(&self, tx: &Tx) -> Result<(), Failed> {
        if self.apps.is_empty() {
            return Ok(());
        }
        tx.execute(
            "INSERT INTO push_queue (app, lane, service, campaign, num, variant, due_at, attempt, fallback,
                                     leased_until, recipients)
             SELECT app, lane, service, campaign, num, variant, due_at, attempt, fallback, 0, recipients
             FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                         $7::bigint[], $8::bigint[], $9::bigint[], $10::bytea[])
                 AS new (app, lane, service, campaign, num, variant, due_at, attempt, fallback, recipients)",
            &[
                &self.apps,
                &self.lanes,
                &self.services,
                &self.campaigns,
                &self.nums,
                &self.variants,
                &self.dues,
                &self.attempts,
                &self.fallbacks,
                &self.recipients,
            ],
        )
        .await?;
        Ok(())
    }
}

pub(super) fn service_code(service: Option<PushService>) -> i64 {
    service.map_or(0, |service| service as i64)
}

/// The service of [`service_code`].
pub(in crate::postgres) fn service_of(code: i64) -> Option<PushService> {
    u8::try_from(code).ok().and_then(PushService::from_code)
}

pub(super) fn lane_of(code: i64) -> Lane {
    u8::try_from(code).ok().and_then(Lane::from_code).unwrap_or(Lane::Direct)
}

pub(in crate::postgres) fn sorted(mut devices: Vec<DeviceNum>) -> Vec<DeviceNum> {
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// Leases are told apart by when they end on their taker's clock; by the engine's clock they last for
/// `lease` from now.
pub(super) async fn renew(
    tx: &Tx,
    holder: i64,
    leases: &[Lease],
    (until, lease): (Timestamp, Duration),
    why: Renewal,
) -> Result<Vec<BatchId>, Failed> {
    let mut leases = leases.to_vec();
    leases.sort_unstable_by_key(|lease| lease.batch);
    let ids: Vec<i64> = leases.iter().map(|lease| lease.batch.0 as i64).collect();
    let untils: Vec<i64> = leases.iter().map(|lease| lease.until.0 as i64).collect();
    let sql = format!(
        "WITH held AS (
             SELECT q.id FROM unnest($1::bigint[], $2::bigint[]) AS lease (id, until)
             JOIN push_queue q ON q.id = lease.id
             WHERE q.leased_until = lease.until AND q.leased_until > 0
             ORDER BY q.id FOR UPDATE OF q)
         UPDATE push_queue q SET leased_until = $3::bigint, holder = CASE WHEN $3::bigint > 0 THEN $4::bigint ELSE 0 END,
                                 lapses_at = CASE WHEN $3::bigint > 0 THEN {ENGINE_NOW} + $5::bigint ELSE 0 END,
                                 takes = greatest(takes + $6::bigint, 0)
         FROM held WHERE q.id = held.id RETURNING q.id"
    );
    let (until, lease_ms) = (until.0 as i64, lease.as_millis() as i64);
    let rows = tx.query(&sql, &[&ids, &untils, &until, &holder, &lease_ms, &why.takes()]).await?;
    Ok(rows.iter().map(|row| BatchId(row.get::<_, i64>(0) as u64)).collect())
}

/// What [`cancel`] found of a notification's work.
pub(in crate::postgres) struct CancelledWork {
    /// Whom the batches were for that nobody had taken; sorted.
    pub unsent: Vec<DeviceNum>,
    /// There was any, also a walk, or batches under way whose retries are not wanted from now on.
    pub any: bool,
    num: Num,
    /// How many of the unsent each campaign counts.
    campaigns: BTreeMap<CampaignNum, u64>,
}

/// Removes the work of a notification that is not under way, and its walk.
pub(in crate::postgres) async fn cancel(tx: &Tx, num: Num) -> Result<CancelledWork, Failed> {
    // First the walk: whoever takes it on at this moment has put its page onto the queue afterwards.
    let walks = tx.execute("DELETE FROM push_walks WHERE num = $1", &[&num]).await?;
    let row =
        tx.query_one("SELECT EXISTS (SELECT 1 FROM push_queue WHERE num = $1 AND num > 0)", &[&num]).await?;
    let any = walks > 0 || row.get::<_, bool>(0);
    let rows = tx
        .query(
            "WITH free AS (
                 SELECT id FROM push_queue WHERE num = $1 AND num > 0 AND leased_until = 0 ORDER BY id FOR UPDATE)
             DELETE FROM push_queue q USING free WHERE q.id = free.id RETURNING q.recipients, q.campaign",
            &[&num],
        )
        .await?;
    let (mut devices, mut campaigns) = (Vec::new(), BTreeMap::new());
    for row in rows {
        let before = devices.len();
        devices.extend(device_list::decode(row.get(0)));
        *campaigns.entry(row.get::<_, CampaignNum>(1)).or_insert(0) += (devices.len() - before) as u64;
    }
    campaigns.remove(&0);
    Ok(CancelledWork { unsent: sorted(devices), any, num, campaigns })
}

impl CancelledWork {
    /// Has the campaigns count it. The trace of those that end with it, which are answered, is kept until
    /// `keep_until`.
    pub(in crate::postgres) async fn count(
        &self,
        tx: &Tx,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<Vec<(AppId, CampaignId)>, Failed> {
        if self.campaigns.is_empty() {
            return Ok(Vec::new());
        }
        let nums: Vec<CampaignNum> = self.campaigns.keys().copied().collect();
        campaign::hold_open(tx, &nums).await?;
        let done = campaign::settle(tx, &nums, now, keep_until).await?;
        let counts = self.campaigns.iter().map(|(&campaign, &count)| Count {
            campaign,
            num: Some(self.num),
            outcome: Outcome::Cancelled,
            reason: None,
            count,
        });
        campaign::count(tx, counts).await?;
        Ok(done)
    }
}
