//! Campaigns as far as push work changes them: their row, their sums and those of their variants, and their end.

use std::collections::HashMap;

use noroshi_types::{AppId, CampaignId, Timestamp};

use super::campaign_sum;
use super::statement::Db;
use super::writer::Write;
use crate::engine::campaign::{
    CampaignNum, CampaignRow, Count, Counts, VariantNotifications, count_of, ended_of,
};
use crate::engine::record::Record;
use crate::ids::{Ids, Num};
use crate::{Error, VariantNum, VariantSums};

pub(super) fn load(db: &Db, num: CampaignNum) -> Result<Option<CampaignRow>, Error> {
    let sql = "SELECT num, id, state, notification FROM campaigns WHERE num = ?1";
    Ok(db.first(sql, (num,), |row| CampaignRow::of(row, 0))?.flatten())
}

/// Adds to the campaign's sums, and to those of the variant that the notification belongs to.
pub(super) fn count(db: &Db, count: &Count) -> Result<(), Error> {
    if count.count == 0 {
        return Ok(());
    }
    let reason = count.reason.unwrap_or_default();
    let sql = "INSERT INTO campaign_counts (campaign, outcome, reason, count) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT DO UPDATE SET count = count + excluded.count";
    db.run(sql, (count.campaign, count.outcome as u8, reason, count.count as i64))?;
    match count.num {
        Some(num) => campaign_sum::count_variant(db, num, count.outcome, reason, count.count),
        None => Ok(()),
    }
}

/// The notification belongs to the variant from now on.
pub(super) fn add_to_variant(
    db: &Db,
    num: Num,
    campaign: CampaignNum,
    VariantNum(variant): VariantNum,
) -> Result<(), Error> {
    let sql = "INSERT INTO variant_notifications (num, campaign, variant) VALUES (?1, ?2, ?3)";
    db.run(sql, (num, campaign, variant)).map(drop)
}

/// The notifications that outcomes of the campaign's variants are recorded under.
pub(super) fn variants(db: &Db, campaign: CampaignNum) -> Result<VariantNotifications, Error> {
    let sql = "SELECT variant, notification FROM campaign_variants WHERE campaign = ?1";
    let found = db.all(sql, (campaign,), |row| Ok(((campaign, VariantNum(row.code(0)?)), row.int(1)?)))?;
    Ok(HashMap::from_iter(found))
}

/// The sums of every variant of a campaign, in order.
pub(super) fn variant_sums(db: &Db, ids: &Ids, campaign: CampaignNum) -> Result<Vec<VariantSums>, Error> {
    let sql = "SELECT variant, notification FROM campaign_variants WHERE campaign = ?1 ORDER BY variant";
    db.all(sql, (campaign,), |row| {
        let sql =
            "SELECT outcome, reason, count FROM campaign_variant_counts WHERE campaign = ?1 AND variant = ?2
                   ORDER BY outcome, reason";
        let counts = counts(db, sql, (campaign, row.int(0)?))?;
        Ok(VariantSums { notification: ids.id(row.int(1)?), counts })
    })
}

pub(super) fn counts(db: &Db, sql: &str, values: impl rusqlite::Params) -> Result<Counts, Error> {
    Ok(db.all(sql, values, |row| count_of(row, 0))?.into_iter().flatten().collect())
}

/// Ends a campaign that was walked to its end and has no batch left. Returns the campaign if it ended with this.
pub(super) fn settle(
    w: &Write<'_>,
    num: CampaignNum,
    now: Timestamp,
) -> Result<Option<(AppId, CampaignId)>, Error> {
    let sql = "UPDATE campaigns SET state = 5 WHERE num = ?1 AND walked = 1 AND state IN (3, 4)
               AND NOT EXISTS (SELECT 1 FROM push_queue WHERE campaign = ?1 AND campaign > 0)
               RETURNING app, id";
    let done = w.db.first(sql, (num,), |row| ended_of(row))?;
    if done.is_some() {
        set_ended(w, num, now)?;
    }
    Ok(done)
}

/// From the end of a campaign on, its trace and its lines are kept for the retention.
pub(super) fn set_ended(w: &Write<'_>, num: CampaignNum, now: Timestamp) -> Result<(), Error> {
    w.db.run("UPDATE campaigns SET finished_at = ?2 WHERE num = ?1", (num, now.0 as i64))?;
    let keep_until = now.saturating_add(w.options.trace_retention).0 as i64;
    let sql = "UPDATE notifications SET keep_until = ?2 WHERE num IN (
                   SELECT notification FROM campaigns WHERE num = ?1
                   UNION ALL SELECT notification FROM campaign_variants WHERE campaign = ?1)";
    w.db.run(sql, (num, keep_until)).map(drop)
}
