//! How campaigns end: by their last batch, or aborted; and what is left of them. The order of locks is in
//! [`super`].

use std::sync::Arc;

use noroshi_types::{AppId, CampaignId, DeviceNum, Outcome, Timestamp};

use super::sum::{Count, count};
use super::{CampaignNum, id_of, locked, rows, variant};
use crate::ids::{Ids, Num};
use crate::postgres::outcome::{self, Part};
use crate::postgres::transaction::{Failed, Tx};
use crate::{Departed, Error, VariantNum, Work, device_list};

/// Batches or lines that one commit removes: some 10 µs each.
pub(super) const PURGE_ROWS: i64 = 1_000;

/// Stands for campaigns among the advisory locks ("camp").
pub(super) const LOCKS: i32 = 0x6361_6d70;

/// From the end of a campaign on its trace is kept for the retention.
pub(super) async fn keep_trace(
    tx: &Tx,
    campaigns: &[CampaignNum],
    keep_until: Timestamp,
) -> Result<(), Failed> {
    let sql = "UPDATE notifications SET keep_until = $2 WHERE num IN (
                   SELECT notification FROM campaigns WHERE num = ANY($1)
                   UNION ALL SELECT notification FROM campaign_variants WHERE campaign = ANY($1))";
    tx.execute(sql, &[&campaigns, &(keep_until.0 as i64)]).await?;
    Ok(())
}

/// To be asked after batches of these campaigns were removed and before [`settle`]: whoever enqueues the last of
/// them has done so before, or does so after this transaction.
pub(in crate::postgres) async fn hold_open(tx: &Tx, nums: &[CampaignNum]) -> Result<(), Failed> {
    let mut keys: Vec<i32> = nums.iter().map(|num| (num % (1 << 31)) as i32).collect();
    keys.sort_unstable();
    let sql = "SELECT pg_advisory_xact_lock_shared($1, key) FROM unnest($2::int[]) AS key";
    tx.query(sql, &[&LOCKS, &keys]).await?;
    Ok(())
}

/// Ends those that were walked to their end and have no batch left; which.
pub(in crate::postgres) async fn settle(
    tx: &Tx,
    nums: &[CampaignNum],
    now: Timestamp,
    keep_until: Timestamp,
) -> Result<Vec<(AppId, CampaignId)>, Failed> {
    let sql = "SELECT num FROM campaigns WHERE num = ANY($1) AND walked = 1 AND state IN (3, 4)
               ORDER BY num FOR NO KEY UPDATE";
    let walked: Vec<CampaignNum> = tx.query(sql, &[&nums]).await?.iter().map(|row| row.get(0)).collect();
    if walked.is_empty() {
        return Ok(Vec::new());
    }
    // A statement of its own, so that it sees what was committed before the rows were locked.
    let done = tx
        .query(
            "UPDATE campaigns SET state = 5, finished_at = $2
             WHERE num = ANY($1) AND walked = 1 AND state IN (3, 4)
               AND NOT EXISTS (SELECT 1 FROM push_queue q WHERE q.campaign = campaigns.num AND q.campaign > 0)
             RETURNING app, id, num",
            &[&walked, &(now.0 as i64)],
        )
        .await?;
    if done.is_empty() {
        return Ok(Vec::new());
    }
    let ended: Vec<CampaignNum> = done.iter().map(|row| row.get(2)).collect();
    keep_trace(tx, &ended, keep_until).await?;
    done.iter().map(|row| Ok((AppId(row.get::<_, i64>(0) as u32), id_of(row.get(1))?))).collect()
}

/// Removes batches of an aborted campaign that are not under way; whose, and whether there may be more.
pub(super) async fn purge_batches(
    tx: Tx,
    ids: Arc<Ids>,
    num: CampaignNum,
    now: Timestamp,
) -> Result<(Departed, bool), Failed> {
    let mut departed = Departed::default();
    let Some(campaign) = rows(&tx, &[num]).await?.remove(&num) else { return Ok((departed, false)) };
    let removed = tx
        .query(
            "WITH free AS (
                 SELECT id FROM push_queue WHERE campaign = $1 AND campaign > 0 AND leased_until = 0
                 ORDER BY campaign, due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
             DELETE FROM push_queue q USING free WHERE q.id = free.id RETURNING q.num, q.variant, q.recipients",
            &[&num, &PURGE_ROWS],
        )
        .await?;
    let variants = variant::notifications(&tx, &[num]).await?;
    let (mut parts, mut counts) = (Vec::new(), Vec::new());
    let outcome = Outcome::Cancelled;
    for row in &removed {
        let of: Num = row.get(0);
        let variant = VariantNum::from_code(row.get::<_, i64>(1) as u8);
        let devices: Vec<DeviceNum> = device_list::decode(row.get(2)).collect();
        let count = devices.len() as u64;
        let of_variant = variant.and_then(|variant| variants.get(&(num, variant)).copied());
        let noted = Some(of).filter(|of| *of > 0).or(of_variant);
        departed.add(Work::of(&ids, of, Some(campaign.id)), outcome, now, &devices);
        parts.push(Part::of(noted.unwrap_or(campaign.notification), outcome, now, devices));
        counts.push(Count { campaign: num, num: noted, outcome, reason: None, count });
    }
    outcome::add(&tx, &parts).await?;
    count(&tx, counts).await?;
    Ok((departed, removed.len() as i64 == PURGE_ROWS))
}

pub(super) async fn ended(tx: Tx, app: AppId, id: CampaignId) -> Result<CampaignNum, Failed> {
    let campaign = locked(&tx, app, id).await?;
    if campaign.state.ended() { Ok(campaign.num) } else { Err(Error::Conflict.into()) }
}

pub(super) async fn purge_lines(tx: Tx, num: CampaignNum, rows_max: i64) -> Result<u64, Failed> {
    let sql = "DELETE FROM campaign_lines WHERE campaign = $1 AND seq IN (
                   SELECT seq FROM campaign_lines WHERE campaign = $1 ORDER BY seq LIMIT $2)";
    tx.execute(sql, &[&num, &rows_max]).await
}

/// Removes lines of one campaign that ended before `ended_before` at the latest; how many, and whether there may be
/// more.
pub(in crate::postgres) async fn prune_lines(
    tx: &Tx,
    ended_before: Timestamp,
    rows_max: usize,
) -> Result<(u64, bool), Failed> {
    let sql = "SELECT num FROM campaigns WHERE lines = 1 AND finished_at <= $1 LIMIT 1";
    let Some(row) = tx.query_opt(sql, &[&(ended_before.0 as i64)]).await? else { return Ok((0, false)) };
    let num: CampaignNum = row.get(0);
    let removed = purge_lines(tx.clone(), num, rows_max as i64).await?;
    if removed < rows_max as u64 {
        tx.execute("UPDATE campaigns SET lines = 0 WHERE num = $1", &[&num]).await?;
    }
    // Another campaign may have some.
    Ok((removed, true))
}

/// What is left of it after its lines.
pub(super) async fn delete(tx: Tx, num: CampaignNum) -> Result<(), Failed> {
    for sql in [
        "WITH left_over AS (SELECT id FROM push_queue WHERE campaign = $1 AND campaign > 0 ORDER BY id FOR UPDATE)
         DELETE FROM push_queue q USING left_over WHERE q.id = left_over.id",
        "DELETE FROM campaigns WHERE num = $1",
        "DELETE FROM campaign_counts WHERE campaign = $1",
        "DELETE FROM campaign_latency WHERE campaign = $1",
        "DELETE FROM campaign_lines WHERE campaign = $1",
        "DELETE FROM campaign_variants WHERE campaign = $1",
        "DELETE FROM campaign_variant_counts WHERE campaign = $1",
    ] {
        tx.execute(sql, &[&num]).await?;
    }
    Ok(())
}
