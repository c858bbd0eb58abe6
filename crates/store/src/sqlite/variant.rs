//! Variants of campaigns: the notifications that are of one, and what became of them. A notification is of the same variant
//! for ever, so who looks at its device later counts for the variant that was sent.
//!
//! Campaigns without variants have no rows here.

use noroshi_types::{Outcome, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::campaign::{CampaignNum, CampaignRow};
use super::ids::{Ids, Num};
use super::notification;
use super::writer::Write;
use crate::{Error, NewCampaign, VariantNum, VariantSums};

/// Makes the variants of a new campaign, each with a notification of its own.
pub(super) fn make(
    w: &Write<'_>,
    campaign: CampaignNum,
    new: &NewCampaign,
    now: Timestamp,
) -> Result<(), Error> {
    for (place, variant) in (1..).zip(&new.variants) {
        let num = w.ids.next(now);
        notification::insert_for_campaign(w.db, num, new, (&variant.notification, &variant.data), now)?;
        let of_campaign = "UPDATE notifications SET campaign = ?2 WHERE num = ?1";
        w.db.prepare_cached(of_campaign)?.execute((num, campaign))?;
        let sql = "INSERT INTO campaign_variants (campaign, variant, notification) VALUES (?1, ?2, ?3)";
        w.db.prepare_cached(sql)?.execute((campaign, place, num))?;
        note(w.db, num, campaign, VariantNum(place))?;
    }
    Ok(())
}

/// The notification is of a variant from now on.
pub(super) fn note(
    db: &Connection,
    num: Num,
    campaign: CampaignNum,
    VariantNum(variant): VariantNum,
) -> Result<(), Error> {
    let sql = "INSERT INTO variant_notifications (num, campaign, variant) VALUES (?1, ?2, ?3)";
    db.prepare_cached(sql)?.execute((num, campaign, variant))?;
    Ok(())
}

/// Under which outcomes of work are recorded: its notification (0: none), else that of the variant that was drawn, else the
/// campaign's. None: the campaign was deleted.
pub(super) fn recorded_under(
    db: &Connection,
    num: Num,
    campaign: Option<CampaignRow>,
    variant: Option<VariantNum>,
) -> Result<Option<Num>, Error> {
    let (0, Some(campaign)) = (num, campaign) else { return Ok((num > 0).then_some(num)) };
    let of_variant = match variant {
        Some(variant) => notification(db, campaign.num, variant)?,
        None => None,
    };
    Ok(of_variant.or(Some(campaign.notification)))
}

/// Under which outcomes of a variant are recorded.
fn notification(
    db: &Connection,
    campaign: CampaignNum,
    VariantNum(variant): VariantNum,
) -> Result<Option<Num>, Error> {
    let sql = "SELECT notification FROM campaign_variants WHERE campaign = ?1 AND variant = ?2";
    Ok(db.prepare_cached(sql)?.query_row((campaign, variant), |row| row.get(0)).optional()?)
}

/// Adds to the sums of the variant that the notification is of; does nothing if it is of none.
pub(super) fn count(
    db: &Connection,
    num: Num,
    outcome: Outcome,
    reason: Option<&str>,
    count: u64,
) -> Result<(), Error> {
    if count == 0 {
        return Ok(());
    }
    let mut statement = db.prepare_cached(
        "INSERT INTO campaign_variant_counts (campaign, variant, outcome, reason, count)
         SELECT v.campaign, v.variant, ?2, ?3, ?4 FROM variant_notifications v
         JOIN campaigns c ON c.num = v.campaign WHERE v.num = ?1
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    statement.execute((num, outcome as u8, reason.unwrap_or_default(), count as i64))?;
    Ok(())
}

/// Every variant of a campaign, in order.
pub(super) fn sums(db: &Connection, ids: &Ids, campaign: CampaignNum) -> Result<Vec<VariantSums>, Error> {
    let sql = "SELECT variant, notification FROM campaign_variants WHERE campaign = ?1 ORDER BY variant";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((campaign,))?;
    let mut variants = Vec::new();
    while let Some(row) = rows.next()? {
        variants.push(VariantSums {
            notification: ids.id(row.get(1)?),
            counts: counts(db, campaign, row.get(0)?)?,
        });
    }
    Ok(variants)
}

fn counts(db: &Connection, campaign: CampaignNum, variant: u8) -> Result<Vec<(Outcome, String, u64)>, Error> {
    let sql =
        "SELECT outcome, reason, count FROM campaign_variant_counts WHERE campaign = ?1 AND variant = ?2
               ORDER BY outcome, reason";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((campaign, variant))?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(outcome) = Outcome::from_code(row.get(0)?) {
            counts.push((outcome, row.get(1)?, row.get::<_, i64>(2)? as u64));
        }
    }
    Ok(counts)
}
