//! Campaigns as far as push work changes them: their row and their end.
//!
//! The call that removes a campaign's last batch ends the campaign; several may remove batches at once on several nodes.
//! Locks, always in this order, after those of the queue's rows:
//!
//! 1. An advisory lock of the campaign: shared by calls that remove batches ([`hold_open`]), exclusive for the call that
//!    enqueues the last of them ([`lock_alone`]). So a call that removes a batch knows whether more can follow.
//! 2. The campaign's row, by [`settle`] where no more can follow: of two calls that remove the last batches, the second
//!    waits for the first and sees that nothing is left.
//! 3. Sums, in order ([`super::campaign_sum`]).

use std::collections::HashMap;

use noroshi_types::{AppId, CampaignId, Timestamp};

use super::transaction::{Failed, Tx};
use crate::engine::campaign::{CampaignNum, CampaignRow, ended_of};

/// Names campaigns among the advisory locks ("camp").
const LOCKS: i32 = 0x6361_6d70;

/// The rows of those of `nums` that exist.
pub(super) async fn rows(tx: &Tx, nums: &[CampaignNum]) -> Result<HashMap<CampaignNum, CampaignRow>, Failed> {
    if nums.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = "SELECT num, id, state, notification FROM campaigns WHERE num = ANY($1)";
    let mut found = HashMap::new();
    for row in tx.query(sql, &[&nums]).await? {
        found.extend(CampaignRow::of(&row, 0)?.map(|campaign| (campaign.num, campaign)));
    }
    Ok(found)
}

/// The exclusive form of [`hold_open`].
pub(super) async fn lock_alone(tx: &Tx, id: CampaignId) -> Result<(), Failed> {
    let sql = "SELECT pg_advisory_xact_lock($1, (num % 2147483648)::int) FROM campaigns WHERE id = $2";
    tx.query(sql, &[&LOCKS, &id.as_bytes().as_slice()]).await.map(drop)
}

/// From the end of a campaign on, its trace is kept for the retention.
pub(super) async fn keep_trace(tx: &Tx, campaigns: &[CampaignNum], now: Timestamp) -> Result<(), Failed> {
    let sql = "UPDATE notifications SET keep_until = $2 WHERE num IN (
                   SELECT notification FROM campaigns WHERE num = ANY($1)
                   UNION ALL SELECT notification FROM campaign_variants WHERE campaign = ANY($1))";
    tx.execute(sql, &[&campaigns, &(tx.context().keep_until(now).0 as i64)]).await?;
    Ok(())
}

/// Called after batches of these campaigns were removed and before [`settle`]: a caller that enqueues their last batches
/// has committed before, or does so after this transaction.
pub(super) async fn hold_open(tx: &Tx, nums: &[CampaignNum]) -> Result<(), Failed> {
    let mut keys: Vec<i32> = nums.iter().map(|num| (num % (1 << 31)) as i32).collect();
    keys.sort_unstable();
    let sql = "SELECT pg_advisory_xact_lock_shared($1, key) FROM unnest($2::int[]) AS key";
    tx.query(sql, &[&LOCKS, &keys]).await?;
    Ok(())
}

/// Ends campaigns that were walked to their end and have no batch left. Returns those that ended with this.
pub(super) async fn settle(
    tx: &Tx,
    nums: &[CampaignNum],
    now: Timestamp,
) -> Result<Vec<(AppId, CampaignId)>, Failed> {
    let sql = "SELECT num FROM campaigns WHERE num = ANY($1) AND walked = 1 AND state IN (3, 4)
               ORDER BY num FOR NO KEY UPDATE";
    let walked: Vec<CampaignNum> = tx.query(sql, &[&nums]).await?.iter().map(|row| row.get(0)).collect();
    if walked.is_empty() {
        return Ok(Vec::new());
    }
    // A separate statement, so that it sees what was committed before the rows were locked.
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
    keep_trace(tx, &ended, now).await?;
    done.iter().map(|row| Ok(ended_of(row)?)).collect()
}
